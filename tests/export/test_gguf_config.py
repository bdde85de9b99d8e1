"""What GGUF metadata say of the decoder; what is not known is refused by its name."""

from __future__ import annotations

import numpy as np
import pytest

from pilotfish.export.gguf_config import config_from_gguf
from pilotfish.export.llama import DecoderConfig
from pilotfish.export.rope import Linear, PerPair, Yarn, yarn_attention_factor
from pilotfish.runtime.errors import CheckpointError
from support.checkpoint_files import METADATA


def read(architecture: str, divisors: list[float] | None = None, **changes: object) -> DecoderConfig:
    values = METADATA | {name.replace("__", "."): value for name, value in changes.items()}
    metadata = {f"{architecture}.{key}": value for key, value in values.items()}
    return config_from_gguf(metadata | {"general.architecture": architecture}, divisors)


def test_the_order_of_q_and_k_rows_follows_from_the_architecture():
    interleaved = {name: read(name).rope.interleaved for name in ("llama", "smollm3", "phi3", "qwen2", "qwen3")}
    assert interleaved == {"llama": True, "smollm3": True, "phi3": False, "qwen2": False, "qwen3": False}
    assert read("granite", logit_scale=8.0).rope.interleaved


def test_sizes_that_are_left_out_follow_from_others():
    metadata = {f"llama.{key}": value for key, value in METADATA.items() if key != "vocab_size"}
    metadata |= {"general.architecture": "llama", "tokenizer.ggml.tokens": ["a"] * 300}
    config = config_from_gguf(metadata)
    assert (config.vocab_size, config.head_dim, config.rope.width) == (300, 16, 16)
    del metadata["llama.attention.head_count_kv"]
    assert config_from_gguf(metadata).num_kv_heads == 4


def test_biases_are_left_to_the_weights_where_the_family_does_not_want_them():
    assert read("llama").biased is None
    assert read("qwen2").biased == {"q", "k", "v"}


def test_rope_scaling_is_read_as_llama_cpp_does():
    factor = {"rope__scaling__factor": 4.0}
    assert read("llama", rope__scaling__type="none", **factor).rope.scaling is None
    assert read("llama", **factor).rope.scaling == Linear(4.0)  # linear is the type where none is given
    assert read("llama", rope__scaling__factor=0.0).rope.scaling is None
    yarn = {"rope__scaling__type": "yarn", "rope__scaling__original_context_length": 256} | factor
    config = read("qwen3", **yarn)
    assert config.rope.scaling == Yarn(4.0, 256)
    assert config.rope.attention_factor == yarn_attention_factor(4.0) > 1
    assert config.max_positions == 1024
    scaled = read("qwen3", **yarn, rope__scaling__attn_factor=0.5, rope__scaling__yarn_beta_fast=16.0)
    assert scaled.rope.scaling == Yarn(4.0, 256, fast_turns=16.0)
    assert scaled.rope.attention_factor == config.rope.attention_factor / 2


def test_divisors_of_the_file_scale_the_frequencies():
    divisors = [1.0, 1.0, 1.5, 2.0, 8.0, 8.0, 8.0, 8.0]
    rope = read("llama", divisors).rope
    assert rope.scaling == PerPair(tuple(divisors))
    np.testing.assert_allclose(rope.frequencies * divisors, read("llama").rope.frequencies)


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("mamba", {}, "family 'mamba'; supported are granite, llama, phi3, qwen2, qwen3, smollm3"),
        ("llama", {"attention__head_count": None}, r"llama\.attention\.head_count is None; a whole number is needed"),
        ("llama", {"attention__head_count": [4, 4]}, r"attention\.head_count is \[4, 4\]; a whole number is needed"),
        ("llama", {"rope__scaling__type": "longrope"}, r"rope\.scaling\.type is 'longrope'; supported is 'none', 'lin"),
        ("llama", {"rope__dimension_count": 8}, r"llama\.rope\.dimension_count is 8; supported is 16"),
        ("phi3", {"rope__dimension_count": 8}, "rotated part of a head 8 is not a multiple of 16"),
        ("llama", {"expert_count": 8}, r"llama\.expert_count is 8; supported is 0"),
        ("llama", {"attention__causal": False}, r"attention\.causal is False; supported is True"),
        ("llama", {"attention__value_length": 32}, r"attention\.value_length is 32; supported is 16"),
        ("llama", {"attn_logit_softcapping": 50.0}, r"attn_logit_softcapping is 50\.0, an option that is not known"),
        ("qwen2", {"attention__sliding_window": 64}, r"qwen2\.attention\.sliding_window is 64, an option"),
        ("llama", {"logit_scale": 8.0}, r"llama\.logit_scale is 8\.0, an option"),
        ("granite", {}, r"granite\.logit_scale is None; a number is needed"),
        ("granite", {"logit_scale": 8.0, "rope__scaling__finetuned": False}, r"rope\.scaling\.finetuned is False"),
    ],
)
def test_what_is_not_supported_is_named(architecture: str, changes: dict, message: str):
    with pytest.raises(CheckpointError, match=message):
        read(architecture, **changes)


def test_divisors_that_do_not_fit_are_refused():
    with pytest.raises(CheckpointError, match=r"2 rotary divisors; 8 pairs are rotated"):
        read("llama", [1.0, 2.0])
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight and rope\.scaling\.type 'linear'; one is supported"):
        read("llama", [1.0] * 8, rope__scaling__factor=4.0)
