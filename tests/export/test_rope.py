"""Rotary tables against transformers' own, with the numbers of real models."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from pilotfish.export.config_json import config_from_hugging_face
from pilotfish.export.rope import Llama3, PerPair, Rope

OPTIONS = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 2048, "intermediate_size": 96,
    "num_attention_heads": 32, "vocab_size": 320, "max_position_embeddings": 4096, "rope_theta": 500_000.0,
}  # fmt: skip
SCALINGS = {
    "none": None,
    "linear": {"rope_type": "linear", "factor": 4.0},
    "Llama 3.2": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 8192},
    "Qwen2.5": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    "yarn, all keys": {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "beta_fast": 16.0,
                       "beta_slow": 2.0, "mscale": 1.0, "mscale_all_dim": 0.7, "truncate": False},
    "yarn, of a short context": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32},
}  # fmt: skip


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("heads", [16, 32])
def test_tables_equal_those_of_transformers(name: str, heads: int):
    options = OPTIONS | {"rope_scaling": SCALINGS[name], "num_attention_heads": heads}
    rope = config_from_hugging_face(options).rope
    reference = LlamaRotaryEmbedding(transformers.AutoConfig.for_model(**copy.deepcopy(options)))
    np.testing.assert_allclose(rope.frequencies, reference.inv_freq.numpy(), rtol=2e-6)
    with torch.no_grad():
        expected = reference(torch.zeros(1), torch.arange(64)[None])
    for table, wanted in zip(rope.tables(64), expected, strict=True):
        half = wanted[0, :, : rope.width // 2].numpy()  # transformers repeats the angles for the pair's other element
        np.testing.assert_allclose(table, half, atol=2e-5)


def test_divisors_for_each_pair_say_the_same_as_the_rule():
    plain, ruled = Rope(500_000.0, 64), Rope(500_000.0, 64, Llama3(32.0, 1.0, 4.0, 8192))
    divisors = plain.frequencies / ruled.frequencies
    assert divisors.min() == 1
    assert divisors.max() == pytest.approx(32)
    assert len(set(divisors.round(3))) > 3
    read = Rope(500_000.0, 64, PerPair(tuple(divisors.tolist())))
    np.testing.assert_allclose(read.tables(100), ruled.tables(100), atol=1e-6)


def test_far_positions_are_computed_in_double_precision():
    cos, sin = Rope(10_000.0, 64).tables(131_072)
    angle = 131_071 * 10_000.0 ** -(2 / 64)
    assert cos.dtype == sin.dtype == np.float32
    np.testing.assert_allclose([cos[-1, 1], sin[-1, 1]], [np.cos(angle), np.sin(angle)], atol=1e-6)
