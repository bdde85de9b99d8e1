"""The exported graph computes what PyTorch computes for the same weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.checkpoint import Checkpoint
from pilotfish.export.config_json import config_from_hugging_face
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import BuiltSource
from pilotfish.runtime.errors import CheckpointError
from support.references import built, exported_logits, open_decoder, pytorch_logits
from support.speculation import assert_it_drafts_for_itself
from support.tiny_models import CONFIG, tiny_checkpoint, tiny_weights

IDS = np.random.default_rng(3).integers(0, 300, 48).tolist()
OPTIONS = {
    "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 320, "max_position_embeddings": 512, "rope_theta": 10_000.0,
    "rms_norm_eps": 1e-5,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
GRANITE = {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.1,
           "logits_scaling": 8.0}  # fmt: skip
WINDOW = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}

# name: `config.json` options beside `OPTIONS`, with the family in the name's first word
VARIANTS = {
    "llama": {},
    "llama, one kv head, small theta": {"num_key_value_heads": 1, "rope_theta": 500.0},
    "llama, head size apart from the hidden size": {"head_dim": 32},
    "llama, biases": {"attention_bias": True, "mlp_bias": True},
    "llama, linear rope": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama, llama3 rope": {"rope_scaling": LLAMA3},
    "llama, yarn": {"rope_scaling": YARN},
    "llama, yarn without rounding": {"rope_scaling": YARN | {"truncate": False, "beta_fast": 4.0}},
    "llama, yarn with an attention factor": {"rope_scaling": YARN | {"attention_factor": 1.5}},
    "llama, yarn with mscale": {"rope_scaling": YARN | {"mscale": 2.0, "mscale_all_dim": 0.5}},
    "llama, gelu": {"hidden_act": "gelu"},
    "llama, tanh gelu": {"hidden_act": "gelu_pytorch_tanh"},
    "llama, quick gelu": {"hidden_act": "quick_gelu"},
    "llama, relu": {"hidden_act": "relu"},
    "mistral": {},
    "mistral, no window": {"sliding_window": None},
    "mistral, window": {"sliding_window": 7},
    "mistral, window of one token": {"sliding_window": 1},
    "mistral, window as long as the prompt": {"sliding_window": 48},
    "qwen2": {},
    "qwen2, window": {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 0},
    "qwen2, window from the second layer on": WINDOW,
    "qwen2, window by layer types": WINDOW | {"layer_types": ["sliding_attention", "full_attention"]},
    "qwen2, yarn": {"rope_scaling": YARN},
    "qwen3": {},
    "qwen3, heads of 32, one kv head, biases": {"head_dim": 32, "num_key_value_heads": 1, "attention_bias": True},
    "qwen3, window": WINDOW,
    "smollm3": {"no_rope_layer_interval": 2},
    "smollm3, listed layers, biases": {"no_rope_layers": [0, 1], "attention_bias": True, "mlp_bias": True},
    "smollm3, window": {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 7},
    "granite": GRANITE,
    "granite, biases": GRANITE | {"attention_bias": True, "mlp_bias": True},
    "phi3": {},
    "phi3, window": {"sliding_window": 7},
    "phi3, half of each head rotated": {"head_dim": 32, "partial_rotary_factor": 0.5},
}


def checkpoint_of(name: str, *, tied: bool = True, interleaved: bool = False) -> tuple[Checkpoint, dict]:
    """Random weights for a variant, and its whole `config.json`."""
    options = OPTIONS | VARIANTS[name] | {"model_type": name.split(",")[0]}
    config = config_from_hugging_face(options)
    config = replace(config, rope=replace(config.rope, interleaved=interleaved))
    return tiny_checkpoint(config, tiny_weights(config, tied=tied)), options


def assert_near(actual: np.ndarray, expected: np.ndarray) -> None:
    """Equal within a small part of the logits' scale; GELU for its tanh form would be off by 3e-4 of it."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_equal_pytorch_in_blocks_of_any_size_and_after_a_rollback(name: str, tmp_path: Path):
    checkpoint, options = checkpoint_of(name)
    others = IDS[:20] + IDS[::-1][:20]
    expected, expected_of_others = (pytorch_logits(checkpoint, ids, options) for ids in (IDS, others))
    with open_decoder(checkpoint, tmp_path) as decoder:
        for width in (len(IDS), 1, 3, 16):
            decoder.rollback(0)
            blocks = [IDS[start : start + width] for start in range(0, len(IDS), width)]
            assert_near(np.concatenate([decoder.forward(block, len(block)).copy() for block in blocks]), expected)
        decoder.rollback(20)
        assert_near(decoder.forward(others[20:], 20), expected_of_others[20:])
        decoder.rollback(18)
        assert_near(decoder.forward(IDS[18:23], 5), expected[18:23])
        assert_near(decoder.forward(IDS[23:], 25), expected[23:])


@pytest.mark.parametrize("name", [name for name in VARIANTS if "rope_scaling" in VARIANTS[name] or "window" in name])
def test_a_rope_or_window_that_is_not_heeded_would_be_noticed(name: str):
    checkpoint, options = checkpoint_of(name)
    kept = [key for key in options if "window" not in key and key not in ("rope_scaling", "layer_types")]
    without = {key: options[key] for key in kept}
    expected, other = (pytorch_logits(checkpoint, IDS, given) for given in (options, without))
    reaches_all = options.get("sliding_window") in (len(IDS), None) and "rope_scaling" not in options
    assert (np.abs(other - expected).max() > 1e-2 * np.abs(expected).max()) != reaches_all


@pytest.mark.parametrize(
    "name", ["llama", "mistral, window", "qwen2, window", "qwen3", "smollm3", "granite", "phi3, window"]
)
def test_a_family_drafts_for_itself(name: str, tmp_path: Path):
    """Among them windows that are shorter than the text. Random models with a tied head tend to repeat one token."""
    checkpoint, _ = checkpoint_of(name, tied=False)
    assert_it_drafts_for_itself(*built(checkpoint, tmp_path), tmp_path)


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "granite", "phi3, window"])
def test_an_untied_head_is_used(name: str, tmp_path: Path):
    checkpoint, options = checkpoint_of(name, tied=False)
    assert_near(exported_logits(checkpoint, IDS, tmp_path), pytorch_logits(checkpoint, IDS, options))


@pytest.mark.parametrize(
    "name", ["llama", "llama, biases", "llama, llama3 rope", "mistral, window", "granite", "smollm3"]
)
def test_rows_in_the_order_of_interleaved_pairs_give_the_same_logits(name: str, tmp_path: Path):
    checkpoint, options = checkpoint_of(name, interleaved=True)
    assert_near(exported_logits(checkpoint, IDS, tmp_path), pytorch_logits(checkpoint, IDS, options))


@pytest.mark.parametrize(
    ("recipe", "least"),
    [
        ("fp16", 0.9999),
        ("int8-fp16", 0.97),
        ("int8", 0.97),
        ("int8-b16", 0.97),
        ("int8-b128", 0.97),
        ("w8a8", 0.9),
        ("w8a16", 0.97),
        ("int4-b16", 0.7),
    ],
)
@pytest.mark.parametrize(("name", "tied"), [("llama", True), ("llama", False), ("qwen3", True), ("granite", True)])
def test_quantized_logits_stay_near(recipe: str, least: float, name: str, tied: bool, tmp_path: Path):
    """The correlation with the fp32 logits; random weights have no outliers, so it tells a wrong layout at once."""
    checkpoint, _ = checkpoint_of(name, tied=tied)
    exact = exported_logits(checkpoint, IDS, tmp_path / "exact")
    near = exported_logits(checkpoint, IDS, tmp_path / "near", recipe)
    assert np.corrcoef(exact.ravel(), near.ravel())[0, 1] > least


@pytest.mark.parametrize("recipe", ["fp32", "int8", "int4", "w8a8", "w8a16"])
def test_tied_embeddings_are_stored_once_and_tensors_are_aligned(recipe: str, tmp_path: Path):
    config = replace(CONFIG, vocab_size=6400)
    sizes = {}
    for tied in (True, False):
        source = BuiltSource(tiny_checkpoint(config, tiny_weights(config, tied=tied)), parse_recipe(recipe))
        path = write_bundle(source, None, tmp_path / str(tied), verify=False)
        sizes[tied] = (path / "target/model.onnx.data").stat().st_size
        model = onnx.load(path / "target/model.onnx", load_external_data=False)
        for tensor in model.graph.initializer:
            offsets = [int(entry.value) for entry in tensor.external_data if entry.key == "offset"]
            assert all(offset % 65_536 == 0 for offset in offsets)
    assert sizes[False] - sizes[True] >= 6400 * 64 * parse_recipe(recipe).bits // 8


def test_a_head_stored_a_second_time_with_more_bits_counts_as_tied(tmp_path: Path):
    weights = tiny_weights(CONFIG)
    weights["head", -1, "weight"] = weights["embedding", -1, "weight"]
    coarse = np.round(weights["embedding", -1, "weight"] * 4) / 4
    coarse_is_near = np.linalg.norm(coarse - weights["head", -1, "weight"]) / np.linalg.norm(coarse)
    assert coarse_is_near < 0.2
    both = tiny_checkpoint(CONFIG, weights | {("embedding", -1, "weight"): coarse})
    fine = {key: value for key, value in weights.items() if key[0] != "head"}
    expected = exported_logits(tiny_checkpoint(CONFIG, fine), IDS, tmp_path / "fine")
    np.testing.assert_array_equal(exported_logits(both, IDS, tmp_path / "both"), expected)


def test_a_missing_or_misshapen_weight_is_named(tmp_path: Path):
    weights = tiny_weights(CONFIG)
    short = weights | {("down", 1, "weight"): np.zeros((64, 95), np.float32)}
    with pytest.raises(CheckpointError, match=r"down\.weight has shape \(64, 95\).*\(64, 96\)"):
        exported_logits(tiny_checkpoint(CONFIG, short), IDS, tmp_path)
    del weights["down", 1, "weight"]
    with pytest.raises(CheckpointError, match=r"down\.weight of layer 1 is missing"):
        exported_logits(tiny_checkpoint(CONFIG, weights), IDS, tmp_path)
    assert list(tmp_path.iterdir()) == []
