"""Sizes told beforehand are those of the export, and a disk without room is noticed before it begins."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.checkpoint import open_checkpoint
from pilotfish.export.config_json import config_from_hugging_face
from pilotfish.export.outline import find_outline, outline_of, outline_of_path, outline_without_weights
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sizes import GRAPH_BYTES, ExportSize, ModelSize
from pilotfish.export.sources import BuiltSource
from pilotfish.export.staging import require_free_space
from pilotfish.runtime import load
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.catalog import load_catalog
from pilotfish.runtime.cli import run
from pilotfish.runtime.errors import CheckpointError, OptionError, StorageError
from support.checkpoint_files import OPTIONS, write_folder, write_gguf
from support.tiny_models import CONFIG, tiny_checkpoint, tiny_weights
from support.vocabularies import with_other_texts

WIDE = {"hidden_size": 272, "intermediate_size": 400, "head_dim": 48, "vocab_size": 1100}  # padded blocks
VARIANTS = {
    "tied": ({}, True),
    "untied": ({}, False),
    "untied, wide": (WIDE, False),
    "qwen2 with biases": (WIDE | {"model_type": "qwen2"}, True),
    "qwen3 with norms of heads": (WIDE | {"model_type": "qwen3", "head_dim": 256}, True),
    "phi3, fused": (WIDE | {"model_type": "phi3"}, False),
    "all biases": ({"attention_bias": True, "mlp_bias": True}, True),
}
RECIPES = ("fp32", "int8", "int8-b16", "int4", "int4-b128", "int4-mixed", "source", "w8a8", "w8a16", "fp16", "bf16",
           "int8-fp16", "int4-mixed-bf16", "source-fp16")  # fmt: skip


def checkpoint_of(name: str):
    options, tied = VARIANTS[name]
    config = config_from_hugging_face(OPTIONS | options)
    return tiny_checkpoint(config, tiny_weights(config, tied=tied))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", VARIANTS)
def test_the_predicted_data_file_is_the_one_that_is_written(name: str, recipe: str, tmp_path: Path):
    source = BuiltSource(checkpoint_of(name), parse_recipe(recipe))
    predicted = ModelSize(outline_of(source.checkpoint), source.recipe)
    bundle = write_bundle(source, None, tmp_path / "bundle", verify=False)
    assert (bundle / "target/model.onnx.data").stat().st_size == predicted.data_bytes
    assert (bundle / "target/model.onnx").stat().st_size < GRAPH_BYTES
    written = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())
    assert written <= ExportSize(predicted).disk_bytes <= written + GRAPH_BYTES


@pytest.mark.real_model
@pytest.mark.parametrize("recipe", ["source", "int4-mixed"])
def test_the_predicted_data_file_of_a_quantized_source(recipe: str, smollm2: Path, tmp_path: Path):
    with open_checkpoint(smollm2) as checkpoint:
        source = BuiltSource(checkpoint, parse_recipe(recipe))
        predicted = ModelSize(outline_of(checkpoint), source.recipe)
        assert predicted.outline.layouts
        bundle = write_bundle(source, None, tmp_path / "bundle", verify=False)
    assert (bundle / "target/model.onnx.data").stat().st_size == predicted.data_bytes


def test_parameters_are_counted_as_the_weights_are():
    for name in VARIANTS:
        checkpoint = checkpoint_of(name)
        matrices = [tensor.shape for tensor in checkpoint.tensors.values() if len(tensor.shape) == 2]
        assert outline_of(checkpoint).num_parameters == sum(rows * columns for rows, columns in matrices)


def test_a_head_that_repeats_the_embedding_is_stored_once(tmp_path: Path):
    weights = tiny_weights(CONFIG)
    weights["head", -1, "weight"] = weights["embedding", -1, "weight"]
    outline = outline_of_path(write_gguf(tmp_path / "tied.gguf", weights=weights))
    assert outline.is_tied
    assert not outline_of(tiny_checkpoint(tied=False)).is_tied


def test_the_caches_are_those_that_the_runtime_allocates(tmp_path: Path):
    source = BuiltSource(tiny_checkpoint(), parse_recipe("int8"))
    draft_config = replace(CONFIG, num_layers=1, max_positions=128)
    draft = BuiltSource(tiny_checkpoint(draft_config, tiny_weights(draft_config)), source.recipe)
    size = ExportSize(*(ModelSize(outline_of(each.checkpoint), each.recipe) for each in (source, draft)))
    with load(write_bundle(source, draft, tmp_path / "bundle"), context_length=300) as engine:
        for role, decoder in engine._context.decoders.items():
            allocated = sum(buffer.numpy().nbytes for buffer in decoder.cache.buffers.values())
            assert size.models[role].cache_bytes(300) == allocated
    caches = sum(model.cache_bytes(300) for model in size.models.values())
    assert size.memory_bytes(300) == caches + size.target.data_bytes + size.draft.data_bytes


def test_a_context_that_the_target_does_not_allow_is_refused():
    size = ExportSize(ModelSize(outline_of(tiny_checkpoint()), parse_recipe("int8")))
    assert (size.context_length(None), size.context_length(64)) == (512, 64)
    with pytest.raises(OptionError, match="context length 513 is not between 2 and the model's 512"):
        size.context_length(513)


def test_the_disk_of_the_output_is_asked_even_before_its_folder_is_there(tmp_path: Path, monkeypatch):
    asked = []
    usage = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr("pilotfish.export.staging.shutil.disk_usage", lambda path: asked.append(path) or usage)
    require_free_space(tmp_path / "not/yet/there", 1000)
    with pytest.raises(StorageError, match="1,001 bytes needed, 1,000 free; free some space, or choose"):
        require_free_space(tmp_path / "not/yet/there", 1001)
    assert asked == [tmp_path, tmp_path]


def test_without_weights_the_configuration_tells_the_same(tmp_path: Path):
    for number, (options, tied) in enumerate(VARIANTS.values()):
        config = config_from_hugging_face(OPTIONS | options)
        options = OPTIONS | options | {"tie_word_embeddings": tied}
        whole = write_folder(tmp_path / str(number), options, tiny_weights(config, tied=tied))
        expected = replace(outline_of_path(whole), name="owner/name", path=None)
        for file in whole.glob("*.safetensors"):
            file.unlink()
        assert outline_without_weights("owner/name", whole) == expected
        (whole / "config.json").write_text(json.dumps({**options, "tie_word_embeddings": None}))
        assert outline_without_weights("owner/name", whole) == expected
        (whole / "model.safetensors.index.json").unlink()
        assert not outline_without_weights("owner/name", whole).is_tied


def test_what_is_not_here_is_named(tmp_path: Path):
    with pytest.raises(OptionError, match=r"not on this machine yet \(98,362,432 bytes\); run `pilotfish pull smol"):
        find_outline("smollm2-135m", tmp_path)
    with pytest.raises(CheckpointError, match="no model 'nothing'"):
        find_outline("nothing", tmp_path)
    folder = write_folder(tmp_path / "owner--name")
    assert find_outline("owner/name", tmp_path) == outline_of_path(folder)


def test_a_dry_run_prints_sizes_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture):
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    arguments = ["export", "--target", source, "--draft", source, "--draft-quant", "int4", "-o", str(tmp_path / "out")]
    assert run([*arguments, "--dry-run", "--context", "100"]) == 0
    printed = capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    for part in ("int8-b32", "int4-b32", "context of 100 tokens", "free"):
        assert part in printed
    assert run([*arguments, "--skip-verify"]) == 0
    for role in ("target", "draft"):
        assert f"{(tmp_path / 'out' / role / 'model.onnx.data').stat().st_size:,}" in printed
    assert load_bundle(tmp_path / "out").manifest.draft is not None


def test_a_dry_run_needs_no_output_and_an_export_does(tmp_path: Path, capsys: pytest.CaptureFixture):
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    assert run(["export", "--target", source, "--dry-run"]) == 0
    assert "tiny.gguf" in capsys.readouterr().out
    assert run(["export", "--target", source]) == 2
    assert "--output" in capsys.readouterr().err
    assert run(["export", "--target", source, "-o", str(tmp_path / "out"), "--context", "64"]) == 2
    assert "--dry-run" in capsys.readouterr().err


def test_an_export_without_room_ends_before_it_begins(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    usage = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr("pilotfish.export.staging.shutil.disk_usage", lambda _: usage)
    for arguments in (["--dry-run"], []):
        assert run(["export", "--target", source, "-o", str(tmp_path / "new/out"), *arguments]) == 2
        assert "bytes needed, 1,000 free" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_dry_run_refuses_the_pairs_that_an_export_refuses(tmp_path: Path, capsys: pytest.CaptureFixture):
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    other = write_folder(tmp_path / "other")
    text = (other / "tokenizer.json").read_text(encoding="utf-8")
    (other / "tokenizer.json").write_text(with_other_texts(text, 40), encoding="utf-8")
    assert run(["export", "--target", source, "--draft", str(other), "--dry-run"]) == 2
    assert re.search(r"id \d+ is .* in the target and .* in the draft", capsys.readouterr().err)


@pytest.mark.real_model
def test_the_default_pair_takes_what_the_catalog_says(smollm2: Path):
    pair = load_catalog().default_pair
    size = ExportSize(ModelSize(outline_of_path(smollm2), parse_recipe(pair.target_recipe)), None)
    assert size.disk_bytes == pytest.approx(pair.bundle_bytes, rel=0.01)
    assert size.memory_bytes(size.context_length(None)) == pytest.approx(pair.memory_bytes, rel=0.01)
