"""A draft of the target's own first layers computes what these layers do, and stores no weight again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pilotfish import runtime as pilotfish
from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.config_json import config_from_hugging_face
from pilotfish.export.first_layers import first_layers, parse_layers
from pilotfish.export.outline import outline_of
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.reference import reference_logits
from pilotfish.export.sizes import GRAPH_BYTES, ExportSize, ModelSize
from pilotfish.export.sources import BuiltSource, TracedSource
from pilotfish.runtime import GenerationOptions
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.cli import run
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.errors import OptionError
from support.checkpoint_files import OPTIONS, write_gguf
from support.tiny_models import CONFIG, tiny_checkpoint, tiny_tokenizer, tiny_weights

IDS = np.random.default_rng(3).integers(0, 300, 20).tolist()
PROMPT = "the pilot fish swims ahead"
DEEP = replace(CONFIG, num_layers=4)
NAMES = {  # what the graph's names differ by
    "llama, tied": ({}, True),
    "llama, untied": ({}, False),
    "qwen3": ({"model_type": "qwen3"}, True),
    "granite": ({"model_type": "granite", "logits_scaling": 3.0, "residual_multiplier": 0.5}, True),
}


def source_of(recipe: str = "fp32", config=DEEP, **options) -> BuiltSource:
    return BuiltSource(tiny_checkpoint(config, tiny_weights(config, **options)), parse_recipe(recipe))


@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_the_draft_computes_what_a_model_of_these_layers_does(name: str, num_layers: int, tmp_path: Path):
    options, tied = NAMES[name]
    config = config_from_hugging_face(OPTIONS | options | {"num_hidden_layers": 4})
    weights = tiny_weights(config, tied=tied)
    target = BuiltSource(tiny_checkpoint(config, weights), parse_recipe("fp32"))
    bundle = load_bundle(write_bundle(target, first_layers(target, num_layers), tmp_path / "bundle"))
    draft = bundle.manifest.draft
    assert (draft.num_layers, draft.source["layers"]) == (num_layers, str(num_layers))
    assert draft.parity.mean_kl < 1e-6
    alone = tiny_checkpoint(
        replace(config, num_layers=num_layers), {key: each for key, each in weights.items() if key[1] < num_layers}
    )
    with Decoder(draft, bundle.path / draft.graph, device="cpu", context_length=64) as decoder:
        logits = decoder.forward(IDS, len(IDS))
        np.testing.assert_allclose(logits, reference_logits(alone, IDS), atol=1e-3)


@pytest.mark.parametrize("recipe", ["fp32", "int8", "int4-mixed", "w8a8"])
def test_no_weight_is_stored_twice_and_the_sizes_are_known(recipe: str, tmp_path: Path):
    target = source_of(recipe)
    path = write_bundle(target, first_layers(target, 2), tmp_path / "bundle", verify=False)
    whole = ModelSize(outline_of(target.checkpoint), target.recipe)
    size = ExportSize(whole, (replace(whole, num_first_layers=2),))
    assert [file.name for file in path.rglob("*.data")] == ["model.onnx.data"]
    assert (path / "target/model.onnx.data").stat().st_size == whole.data_bytes
    assert size.drafts[0].data_bytes == 0 < size.drafts[0].weight_bytes < whole.weight_bytes
    written = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert written <= size.disk_bytes <= written + 2 * GRAPH_BYTES
    with pilotfish.load(path, context_length=100) as engine:
        for role, decoder in engine._context.decoders.items():
            allocated = sum(buffer.numpy().nbytes for buffer in decoder.cache.buffers.values())
            assert size.models[role].cache_bytes(100) == allocated


def test_what_such_a_draft_reads_is_what_a_model_of_these_layers_would_store(tmp_path: Path):
    shallow = source_of("int8", replace(DEEP, num_layers=2))
    alone = write_bundle(shallow, None, tmp_path / "alone", verify=False)
    size = ModelSize(outline_of(source_of("int8").checkpoint), shallow.recipe, num_first_layers=2)
    assert size.weight_bytes == (alone / "target/model.onnx.data").stat().st_size
    assert size.num_parameters == outline_of(shallow.checkpoint).num_parameters


@pytest.mark.parametrize("recipe", ["fp32", "int8", "w8a8"])
def test_the_output_is_the_targets_own(recipe: str, tmp_path: Path):
    target = source_of(recipe)
    path = write_bundle(target, first_layers(target, 3), tmp_path / "bundle", verify=False)
    with pilotfish.load(path) as engine:
        found = []
        for draft in ("off", "model"):
            engine.reset()
            options = GenerationOptions(max_tokens=40, draft=draft, num_draft_tokens=4)
            found.append([token_id for chunk in engine.generate(PROMPT, options) for token_id in chunk.token_ids])
        assert found[0] == found[1]
        assert engine.stats.num_drafted > 0


def test_the_command_line_takes_layers_and_verifies_them_again(tmp_path: Path, capsys: pytest.CaptureFixture):
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    out = str(tmp_path / "out")
    arguments = ["export", "--target", source, "--draft", "layers:1", "-o", out]
    assert run([*arguments, "--dry-run"]) == 0
    draft_row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("draft"))
    assert " 0 " in draft_row
    assert run(arguments) == 0
    assert load_bundle(tmp_path / "out").manifest.draft.num_layers == 1
    assert run(["verify", out, "--target", source, "--draft", source]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--draft", "layers:2"], "the target has 2 layers; a draft of them has 1 to 1"),
        (["--draft", "layers:0"], "a draft of them has 1 to 1"),
        (["--draft", "layers:few"], "'layers:few' has no number of layers"),
        (["--draft", "layers:1", "--draft-quant", "int4"], "leave --draft-quant out"),
    ],
)
def test_what_makes_no_draft_is_refused(arguments: list[str], message: str, tmp_path: Path, capsys):
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    for more in ([], ["--dry-run"]):
        assert run(["export", "--target", source, "-o", str(tmp_path / "out"), *arguments, *more]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_layers_of_a_traced_model_are_not_known():
    traced = TracedSource(Path("folder"), parse_recipe("fp32"), tiny_tokenizer(), 1, 1)
    with pytest.raises(OptionError, match="no builder, so its layers are not known apart"):
        first_layers(traced, 1)


def test_a_model_is_no_layers():
    assert (parse_layers("owner/name"), parse_layers("layers:12")) == (None, 12)
