"""The float32 reference computes what PyTorch computes, and refuses what it does not know."""

from __future__ import annotations

import importlib.util
import tracemalloc
from dataclasses import dataclass, fields, make_dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from pilotfish.export import reference
from pilotfish.export.checkpoint import open_checkpoint
from pilotfish.export.llama import ACTIVATIONS, DecoderConfig
from pilotfish.export.reference import reference_logits
from pilotfish.runtime.errors import CheckpointError
from support.checkpoint_files import write_folder, write_gguf
from support.references import pytorch_logits
from support.tiny_models import CONFIG, tiny_checkpoint, tiny_weights

# Test modules are no package, so the variants that both tests run over are taken from the file.
_spec = importlib.util.spec_from_file_location("graph_variants", Path(__file__).with_name("test_graph.py"))
variants = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(variants)
IDS, VARIANTS, checkpoint_of, assert_near = (
    variants.IDS,
    variants.VARIANTS,
    variants.checkpoint_of,
    variants.assert_near,
)


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_equal_pytorch(name: str):
    checkpoint, options = checkpoint_of(name)
    assert_near(reference_logits(checkpoint, IDS), pytorch_logits(checkpoint, IDS, options))


@pytest.mark.parametrize("name", ["llama", "qwen3", "granite", "phi3, window"])
def test_an_untied_head_is_used(name: str):
    checkpoint, options = checkpoint_of(name, tied=False)
    assert_near(reference_logits(checkpoint, IDS), pytorch_logits(checkpoint, IDS, options))


@pytest.mark.parametrize("name", ["llama, biases", "llama, llama3 rope", "smollm3"])
def test_rows_in_the_order_of_interleaved_pairs_give_the_same_logits(name: str):
    checkpoint, options = checkpoint_of(name, interleaved=True)
    assert_near(reference_logits(checkpoint, IDS), pytorch_logits(checkpoint, IDS, options))


def test_both_formats_of_one_model_give_the_same_logits(tmp_path: Path):
    weights = tiny_weights(CONFIG, tied=False)
    paths = write_folder(tmp_path / "folder", weights=weights), write_gguf(tmp_path / "file.gguf", weights=weights)
    logits = []
    for path in paths:
        with open_checkpoint(path) as checkpoint:
            logits.append(reference_logits(checkpoint, IDS))
    assert_near(logits[0], logits[1])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_is_known(activation: str):
    assert np.isfinite(reference_logits(tiny_checkpoint(replace(CONFIG, activation=activation)), IDS)).all()


def test_another_activation_is_refused():
    with pytest.raises(CheckpointError, match="activation 'mish'"):
        reference_logits(tiny_checkpoint(replace(CONFIG, activation="mish")), IDS)


def test_an_option_that_it_does_not_heed_is_refused_unless_it_is_off(monkeypatch: pytest.MonkeyPatch):
    capped = make_dataclass("Capped", [("softcap", float, 0.0)], bases=(DecoderConfig,), frozen=True)
    monkeypatch.setitem(reference._KNOWN, capped, reference._KNOWN[DecoderConfig])
    values = {field.name: getattr(CONFIG, field.name) for field in fields(CONFIG)}
    checkpoint = tiny_checkpoint()
    expected = reference_logits(checkpoint, IDS)
    checkpoint.config = capped(**values)
    np.testing.assert_array_equal(reference_logits(checkpoint, IDS), expected)
    checkpoint.config = capped(**values, softcap=30.0)
    with pytest.raises(CheckpointError, match=r"softcap is 30\.0, which the float32 reference does not know"):
        reference_logits(checkpoint, IDS)


def test_a_missing_weight_is_named():
    weights = tiny_weights(CONFIG)
    del weights["down", 1, "weight"]
    with pytest.raises(CheckpointError, match=r"down\.weight of layer 1 is missing"):
        reference_logits(tiny_checkpoint(CONFIG, weights), IDS)


@pytest.mark.parametrize("num_tokens", [0, 513])
def test_as_many_tokens_as_the_model_has_positions(num_tokens: int):
    with pytest.raises(ValueError, match=f"{num_tokens} tokens were given to a model of 512 positions"):
        reference_logits(tiny_checkpoint(), [1] * num_tokens)


@dataclass
class Table:
    """Rows that are made when they are read, so that only what the forward holds is in memory."""

    num_columns: int

    def rows(self, start: int, stop: int) -> np.ndarray:
        return np.full((stop - start, self.num_columns), 0.01, np.float32)


def test_no_weight_is_held_whole():
    config = replace(CONFIG, vocab_size=400_000)
    checkpoint = tiny_checkpoint(config, tiny_weights(CONFIG))
    table = Table(64)
    stored = checkpoint.tensors["embedding", -1, "weight"]
    checkpoint.tensors["embedding", -1, "weight"] = replace(stored, shape=(400_000, 64), rows=table.rows)
    seen: list[int] = []
    tracemalloc.start()
    try:
        logits = reference_logits(checkpoint, [1, 2], seen.append)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    num_weights = sum(int(np.prod(t.shape)) for t in checkpoint.tensors.values() if len(t.shape) == 2)
    assert sum(seen) == num_weights
    assert peak < logits.nbytes + 400_000 * 64 * 4 / 4
