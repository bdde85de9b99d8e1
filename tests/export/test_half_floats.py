"""Graphs in float16 and bfloat16. ONNX Runtime's CPU has no kernels for bfloat16, so those are widened to be run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, numpy_helper

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.graph import build_decoder
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import BuiltSource, open_source
from pilotfish.runtime.bundle import ModelEntry, load_bundle
from pilotfish.runtime.bus import Bus
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.engine import load
from pilotfish.runtime.errors import CacheFileError, DeviceError, OptionError
from pilotfish.runtime.kv_cache import KvCache
from support.checkpoint_files import OPTIONS, write_folder
from support.references import exported_logits
from support.tiny_models import CONFIG, tiny_bundle, tiny_checkpoint

IDS = np.random.default_rng(3).integers(0, 300, 30).tolist()


def widen(graph_path: Path) -> None:
    """Makes every bfloat16 of a graph, its weights included, a float32 of the same value."""
    model = onnx.load(graph_path)
    external_data_helper.convert_model_from_external_data(model)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.BFLOAT16:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    graph_path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(("recipe", "least"), [("bf16", 0.999), ("int8-bf16", 0.97), ("int4-mixed-b16-bf16", 0.7)])
def test_a_graph_in_bfloat16_holds_the_weights(recipe: str, least: float, tmp_path: Path):
    checkpoint = tiny_checkpoint()
    source = BuiltSource(checkpoint, parse_recipe(recipe))
    build_decoder(checkpoint, source.recipe, tmp_path)
    widen(tmp_path / "model.onnx")
    (tmp_path / "model.onnx.data").unlink()
    config = CONFIG
    model = ModelEntry(
        graph="model.onnx", family="llama", num_layers=config.num_layers, num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim, vocab_size=config.vocab_size, max_positions=config.max_positions, recipe=recipe,
        source={},
    )  # fmt: skip
    with Decoder(model, tmp_path / "model.onnx", device="cpu", context_length=64) as decoder:
        found = decoder.forward(IDS, len(IDS))
    expected = exported_logits(checkpoint, IDS, tmp_path / "exact")
    assert least < np.corrcoef(found.ravel(), expected.ravel())[0, 1] < 1 - 1e-7


def test_a_bundle_in_bfloat16_is_written_if_it_need_not_be_verified_here(tmp_path: Path):
    source = BuiltSource(tiny_checkpoint(), parse_recipe("int4-bf16"))
    with pytest.raises(OptionError, match=r"bfloat16 can be compared .* on CUDA only.*fp16.*--skip-verify"):
        write_bundle(source, None, tmp_path / "refused")
    assert list(tmp_path.iterdir()) == []
    model = load_bundle(write_bundle(source, None, tmp_path / "bundle", verify=False)).manifest.target
    assert (model.recipe, model.cache_dtype) == ("int4-b32-bf16", "bfloat16")
    assert model.cache_bytes_per_token * 2 == replace(model, cache_dtype="float32").cache_bytes_per_token


def test_caches_in_float16_take_half_of_the_memory(tmp_path: Path):
    model = load_bundle(tiny_bundle(tmp_path, "fp16", draft_noise=None, verify=True)).manifest.target
    cache = KvCache(model, 10, Bus("cpu"))
    assert sum(buffer.numpy().nbytes for buffer in cache.buffers.values()) == 10 * model.cache_bytes_per_token
    assert model.parity is not None
    assert model.parity.mean_kl < 1e-4


def test_what_bfloat16_cannot_do_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = load_bundle(tiny_bundle(tmp_path, draft_noise=None)).manifest.target
    cache = KvCache(model, 1, Bus("cpu"))
    monkeypatch.setattr(cache, "_dtype", "bfloat16")
    with pytest.raises(CacheFileError, match="bfloat16 can be neither saved nor restored"):
        next(cache.read_tokens())
    bundle = write_bundle(BuiltSource(tiny_checkpoint(), parse_recipe("bf16")), None, tmp_path / "half", verify=False)
    with pytest.raises(DeviceError, match=r"bfloat16.*--device cuda.*fp16 instead of bf16"):
        load(bundle)


def test_a_model_without_a_builder_is_refused(tmp_path: Path):
    folder = write_folder(tmp_path / "model", OPTIONS | {"model_type": "gpt_neox"})
    with pytest.raises(OptionError, match=r"has no builder.*a traced model computes in float32.*than int4-b32-fp16"):
        open_source(folder, parse_recipe("int4-fp16"))
