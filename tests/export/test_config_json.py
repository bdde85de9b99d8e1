"""What `config.json` says: every option that transformers heeds is read, or refused by its name."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import transformers

from pilotfish.export.config_json import OPTIONS, REQUIRED, config_from_hugging_face
from pilotfish.export.llama import FAMILIES
from pilotfish.export.rope import Linear, Llama3, Rope, Yarn
from pilotfish.runtime.errors import CheckpointError

BASE = {
    "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 512,
}  # fmt: skip
NEEDLESS = {  # what only training, caching or the longrope that is refused look at
    "attention_dropout", "embd_pdrop", "initializer_range", "original_max_position_embeddings", "pretraining_tp",
    "resid_pdrop", "use_cache",
}  # fmt: skip


def read(family: str, **options: object):
    return config_from_hugging_face(BASE | {"model_type": family} | options)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_option_of_transformers_is_unknown(family: str):
    made = transformers.AutoConfig.for_model(family).to_dict()
    own = made.keys() - transformers.PretrainedConfig().to_dict().keys() - NEEDLESS
    assert own <= {*REQUIRED, *OPTIONS[family]}


@pytest.mark.parametrize("family", FAMILIES)
def test_options_that_are_left_out_have_the_values_of_transformers(family: str):
    sparse = {"num_hidden_layers": 30, "hidden_size": 1024, "num_attention_heads": 32}
    full = transformers.AutoConfig.for_model(family, **sparse).to_dict()
    given = {name: full[name] for name in REQUIRED} | {"model_type": family}
    assert config_from_hugging_face(given) == config_from_hugging_face(full)


def test_biases_follow_the_options_and_the_family():
    assert read("llama").biased == frozenset()
    assert read("qwen2", attention_bias=True).biased == {"q", "k", "v"}
    assert read("qwen3", attention_bias=True).biased == {"q", "k", "v", "o"}
    assert read("llama", attention_bias=True, mlp_bias=True).biased == {"q", "k", "v", "o", "gate", "up", "down"}


def test_windows_hold_for_the_layers_that_the_family_says():
    def windows(family: str, **options: object) -> list[int | None]:
        config = read(family, **options)
        return [config.window(layer) for layer in range(4)]

    assert windows("llama", sliding_window=8) == [None] * 4
    assert windows("mistral") == [4096] * 4
    assert windows("mistral", sliding_window=None) == [None] * 4
    assert windows("phi3", sliding_window=8) == [8] * 4
    assert windows("qwen2", sliding_window=8) == [None] * 4
    window = {"use_sliding_window": True, "sliding_window": 8}
    assert windows("qwen2", **window, max_window_layers=3) == [None, None, None, 8]
    assert windows("qwen2", **window, max_window_layers=28) == [None] * 4
    kinds = ["full_attention", "sliding_attention"] * 2
    assert windows("qwen3", **window, layer_types=kinds) == [None, 8, None, 8]
    assert windows("smollm3", **window) == [None, None, None, 8]
    assert windows("smollm3", **window, no_rope_layers=[0, 1, 1, 0]) == [8, None, None, 8]


def test_layers_without_rotation_are_listed_or_come_at_an_interval():
    assert read("smollm3").unrotated_layers == {3}
    assert read("smollm3", no_rope_layer_interval=2).unrotated_layers == {1, 3}
    assert read("smollm3", no_rope_layers=[1, 0, 1, 1]).unrotated_layers == {1}
    assert read("llama", no_rope_layers=[0, 0, 0, 0]).unrotated_layers == frozenset()


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({"rope_type": "default"}, Rope(500.0, 16)),
        ({"type": "linear", "factor": 2}, Rope(500.0, 16, Linear(2.0))),
        (
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 64},
            Rope(500.0, 16, Llama3(8.0, 1.0, 4.0, 64)),
        ),
        ({"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.5}, Rope(500.0, 16, Yarn(4.0, 512), 1.5)),
    ],
)  # fmt: skip
def test_rope_is_read_in_the_forms_of_transformers_4_and_5(scaling: dict, expected: Rope):
    old = read("llama", rope_theta=500.0, rope_scaling=copy.deepcopy(scaling))
    new = read("llama", rope_parameters=scaling | {"rope_theta": 500.0})
    assert old == new
    assert old.rope == expected


def test_yarn_reaches_as_many_positions_as_it_was_made_for():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
    assert read("qwen2", rope_scaling=yarn).max_positions == 1024
    assert read("qwen2", rope_scaling=yarn, max_position_embeddings=2048).max_positions == 2048


def test_a_part_of_each_head_is_rotated():
    config = read("phi3", head_dim=64, partial_rotary_factor=0.75)
    assert config.rope.width == 48
    nested = read("phi3", head_dim=64, rope_parameters={"partial_rotary_factor": 0.75, "rope_theta": 10_000.0})
    assert config == nested


def test_null_means_what_transformers_takes_it_for():
    config = read("mistral", num_key_value_heads=None, head_dim=None, rope_scaling=None)
    assert (config.num_kv_heads, config.head_dim) == (4, 16)
    assert replace(config, num_kv_heads=2) == read("mistral")


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("gpt_bigcode", {}, "family 'gpt_bigcode'; supported are granite, llama, mistral, phi3, qwen2, qwen3, smollm3"),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'; supported is 'def"),
        ("phi3", {"rope_scaling": {"type": "longrope", "short_factor": []}}, "rope_type is 'longrope'"),
        ("qwen2", {"rope_scaling": {"type": "mrope", "mrope_section": [2]}}, "rope_type is 'mrope'"),
        (
            "qwen2",
            {"rope_scaling": {"type": "mrope", "rope_type": "default"}},
            "type is 'mrope'; supported is 'default'",
        ),
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": -4.0}}, r"Yarn\(factor=-4\.0.*must be positive"),
        ("llama", {"rope_scaling": {"rope_type": "linear"}}, "rope_scaling: factor is None"),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 0.0}}, "frequencies that are not positive"),
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "rope_scaling: low_freq_factor is None"),
        ("llama", {"rope_scaling": {"rope_type": "default", "mscale": 2.0}}, "mscale is 2.0, an option that is not"),
        ("qwen3", {"rope_parameters": {"full_attention": {}}}, "rope_parameters: full_attention is {}"),
        ("llama", {"rope_scaling": "yarn"}, "rope_scaling is 'yarn'; a JSON object is needed"),
        ("llama", {"rope_theta": None}, "rope_theta is None"),
        ("llama", {"rope_theta": 1}, r"rope theta is 1\.0; it must be above 1"),
        ("llama", {"partial_rotary_factor": 0.5}, "rotated part of a head 8 is not a multiple of 16"),
        ("llama", {"head_dim": 24}, "head size 24 is not a multiple of 16"),
        ("llama", {"hidden_act": "relu2"}, "hidden_act is 'relu2'; supported is 'silu', "),
        ("llama", {"attention_bias": "yes"}, "attention_bias is 'yes'; true or false is needed"),
        ("llama", {"num_hidden_layers": None}, "num_hidden_layers is None; a whole number is needed"),
        ("llama", {"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5; a whole number is needed"),
        ("llama", {"num_hidden_layers": -1}, "num_layers is -1"),
        ("llama", {"num_key_value_heads": 3}, "4 attention heads are not a multiple of 3 kv heads"),
        ("llama", {"quantization_config": {"quant_method": "gptq"}}, "weights are quantized"),
        ("mistral", {"sliding_window": 0}, "sliding window is 0; it must be positive"),
        ("qwen3", {"use_sliding_window": True, "layer_types": ["full_attention"]}, "a value for each layer is needed"),
        ("qwen3", {"use_sliding_window": True, "layer_types": ["linear_attention"] * 4}, "is 'linear_attention'; supp"),
        ("qwen3", {"layer_types": ["sliding_attention"] * 4}, "'sliding_attention', but no sliding_window is in use"),
        ("smollm3", {"layer_types": ["chunked_attention"] * 4}, "layer_types is 'chunked_attention'; supported is"),
        ("qwen2", {"layer_types": 3}, "layer_types is 3; a list with a value for each layer is needed"),
        ("smollm3", {"no_rope_layers": [1, 1]}, r"no_rope_layers is \[1, 1\]; a list with a value for each layer"),
        ("smollm3", {"no_rope_layer_interval": 0}, "no_rope_layer_interval is 0"),
        ("granite", {"logits_scaling": 0.0}, "logits_divisor is 0"),
    ],
)
def test_what_is_not_supported_is_named(family: str, changes: dict, message: str):
    with pytest.raises(CheckpointError, match=message):
        read(family, **changes)
