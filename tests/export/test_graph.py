"""The exported graph computes what PyTorch computes for the same weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from pilotfish.export.bundle_writer import Source, write_bundle
from pilotfish.export.checkpoint import Checkpoint
from pilotfish.export.quantize import parse_recipe
from pilotfish.runtime.errors import CheckpointError
from support.references import exported_logits, pytorch_logits
from support.tiny_models import CONFIG, tiny_checkpoint, tiny_weights

IDS = np.random.default_rng(3).integers(0, 300, 48).tolist()
VARIANTS = {
    "llama": {},
    "llama, untied": {"tied": False},
    "llama, one kv head, small theta": {"num_kv_heads": 1, "rope_theta": 500.0},
    "llama, head size apart from the hidden size": {"head_dim": 32},
    "qwen2": {"family": "qwen2", "bias": True},
    "qwen2, untied": {"family": "qwen2", "bias": True, "tied": False, "rms_norm_eps": 1e-6},
}


def checkpoint_of(variant: dict) -> Checkpoint:
    options = {name: variant[name] for name in ("tied", "bias") if name in variant}
    config = replace(CONFIG, **{name: value for name, value in variant.items() if name not in options})
    return tiny_checkpoint(config, tiny_weights(config, **options))


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("interleaved", [False, True])
def test_logits_equal_pytorch(name: str, interleaved: bool, tmp_path: Path):
    checkpoint = checkpoint_of(VARIANTS[name])
    checkpoint.config = replace(checkpoint.config, rotary_interleaved=interleaved)
    np.testing.assert_allclose(exported_logits(checkpoint, IDS, tmp_path), pytorch_logits(checkpoint, IDS), atol=1e-3)


@pytest.mark.parametrize(
    ("recipe", "least"), [("int8", 0.97), ("int8-b16", 0.97), ("int8-b128", 0.97), ("w8a8", 0.9), ("int4-b16", 0.7)]
)
@pytest.mark.parametrize("tied", [True, False])
def test_quantized_logits_stay_near(recipe: str, least: float, tied: bool, tmp_path: Path):
    """The correlation with the fp32 logits; random weights have no outliers, so it tells a wrong layout at once."""
    checkpoint = checkpoint_of({"tied": tied})
    exact = exported_logits(checkpoint, IDS, tmp_path / "exact")
    near = exported_logits(checkpoint, IDS, tmp_path / "near", recipe)
    assert np.corrcoef(exact.ravel(), near.ravel())[0, 1] > least


@pytest.mark.parametrize("recipe", ["fp32", "int8", "int4", "w8a8"])
def test_tied_embeddings_are_stored_once_and_tensors_are_aligned(recipe: str, tmp_path: Path):
    config = replace(CONFIG, vocab_size=6400)
    sizes = {}
    for tied in (True, False):
        source = Source(tiny_checkpoint(config, tiny_weights(config, tied=tied)), parse_recipe(recipe))
        path = write_bundle(source, None, tmp_path / str(tied))
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
