"""A trimmed head gives the whole head's logits of the tokens that it has, and its rows are all that is stored anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.config_json import config_from_hugging_face
from pilotfish.export.first_layers import first_layers
from pilotfish.export.frequency import frequent_ids
from pilotfish.export.outline import outline_of
from pilotfish.export.parity import measure_model
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sizes import GRAPH_BYTES, ExportSize, ModelSize
from pilotfish.export.sources import BuiltSource
from pilotfish.export.trimmed import Trimmed
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.cli import run
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.errors import BundleError, OptionError
from pilotfish.runtime.rows import read_head_ids
from support.checkpoint_files import OPTIONS, write_gguf
from support.tiny_models import CONFIG, SAMPLE, tiny_checkpoint, tiny_tokenizer, tiny_weights

IDS = np.random.default_rng(3).integers(0, 300, 20).tolist()
HEAD_IDS = np.sort(np.random.default_rng(4).choice(300, 200, replace=False)).astype(np.int64)
RECIPES = ("fp32", "int8", "int4", "int4-mixed", "source", "w8a8", "w8a16", "fp16", "int8-fp16")


def source_of(recipe: str, config=CONFIG, **options) -> BuiltSource:
    return BuiltSource(tiny_checkpoint(config, tiny_weights(config, **options)), parse_recipe(recipe))


def logits_of(bundle_path: Path) -> np.ndarray:
    draft = load_bundle(bundle_path).manifest.draft
    with Decoder(draft, bundle_path / draft.graph, device="cpu", context_length=64) as decoder:
        return decoder.forward(IDS, len(IDS)).copy()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_logits_are_those_of_the_whole_head(recipe: str, tied: bool, tmp_path: Path):
    source = source_of(recipe, tied=tied)
    whole = logits_of(write_bundle(source, source, tmp_path / "whole", verify=False))
    trimmed = write_bundle(source, Trimmed(source, HEAD_IDS), tmp_path / "trimmed", verify=False)
    np.testing.assert_allclose(logits_of(trimmed), whole[:, HEAD_IDS], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{"mlp_bias": True, "attention_bias": True}, {"model_type": "phi3"}])
def test_any_family_is_trimmed(options: dict, tmp_path: Path):
    source = source_of("int8", config_from_hugging_face(OPTIONS | options))
    whole = logits_of(write_bundle(source, source, tmp_path / "whole", verify=False))
    trimmed = write_bundle(source, Trimmed(source, HEAD_IDS), tmp_path / "trimmed", verify=False)
    np.testing.assert_allclose(logits_of(trimmed), whole[:, HEAD_IDS], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_sizes_are_known_and_nothing_is_stored_in_vain(recipe: str, tied: bool, tmp_path: Path):
    config = replace(CONFIG, vocab_size=2000)
    source = source_of(recipe, config, tied=tied)
    path = write_bundle(source, Trimmed(source, HEAD_IDS), tmp_path / "bundle", verify=False)
    whole = ModelSize(outline_of(source.checkpoint), source.recipe)
    size = ExportSize(whole, (replace(whole, num_head_ids=len(HEAD_IDS)),))
    written = {file.name: file.stat().st_size for file in (path / "draft").iterdir()}
    graph_bytes = written.pop("model.onnx") + written.pop("model.heads.onnx")
    assert graph_bytes < GRAPH_BYTES
    assert sorted(written) == ["model.head.data", "model.head_ids.npy", "model.onnx.data"]
    assert sum(written.values()) == size.drafts[0].data_bytes
    assert (size.drafts[0].data_bytes < whole.data_bytes) == (not tied)
    total = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert total <= size.disk_bytes <= total + 2 * GRAPH_BYTES
    assert size.drafts[0].num_parameters - whole.num_parameters == (200 - (0 if tied else 2000)) * config.hidden_size


def test_the_files_of_an_untied_model_have_the_checksums_that_the_manifest_says(tmp_path: Path):
    source = source_of("int8", tied=False)
    path = write_bundle(source, Trimmed(source, HEAD_IDS), tmp_path / "bundle")
    assert load_bundle(path).manifest.draft.source["head_ids"] == "200"
    assert run(["verify", str(path)]) == 0


def test_first_layers_can_have_a_trimmed_head(tmp_path: Path):
    target = source_of("int8", tied=False)
    whole = write_bundle(target, first_layers(target, 1), tmp_path / "whole", verify=False)
    path = write_bundle(target, Trimmed(first_layers(target, 1), HEAD_IDS), tmp_path / "bundle")
    np.testing.assert_allclose(logits_of(path), logits_of(whole)[:, HEAD_IDS], rtol=1e-5, atol=1e-5)
    outline = ModelSize(outline_of(target.checkpoint), target.recipe)
    assert (path / "target/model.onnx.data").stat().st_size == outline.data_bytes
    added = sum((path / "target" / name).stat().st_size for name in ("draft.head.data", "draft.head_ids.npy"))
    assert added == replace(outline, num_first_layers=1, num_head_ids=200).data_bytes


def test_a_trimmed_head_is_compared_with_its_source(tmp_path: Path):
    source = source_of("fp32")
    bundle = load_bundle(write_bundle(source, Trimmed(source, HEAD_IDS), tmp_path / "bundle"))
    draft, other = bundle.manifest.draft, source_of("fp32", seed=9)
    assert draft.parity.mean_kl < 1e-6 < measure_model(bundle, draft, other).mean_kl
    assert draft.parity.perplexity == pytest.approx(draft.parity.reference_perplexity, rel=1e-3)


def test_the_most_frequent_tokens_of_a_text_are_kept_and_those_that_end_it():
    files = tiny_tokenizer()
    (end,) = files.eos_token_ids
    ids = frequent_ids(files, 12, ["shark shark shark"])
    assert end in ids
    words = Tokenizer.from_str(files.tokenizer_json).encode("shark shark").ids
    assert max(words) > 200
    assert set(words) <= set(ids)
    assert frequent_ids(files, 12).tolist() == list(range(12))
    assert set(frequent_ids(files, 40, [SAMPLE])) >= set(frequent_ids(files, 20, [SAMPLE]))
    for num_ids in (1, 301):
        with pytest.raises(OptionError, match=f"a draft vocabulary of {num_ids} tokens is not between 2 and"):
            frequent_ids(files, num_ids)


@pytest.mark.parametrize("damage", ["missing", "not an array", "not ascending", "too large"])
def test_ids_that_do_not_fit_are_an_error(damage: str, tmp_path: Path):
    source = source_of("fp32")
    bundle = load_bundle(write_bundle(source, Trimmed(source, HEAD_IDS), tmp_path / "bundle", verify=False))
    path = bundle.path / "draft/model.head_ids.npy"
    if damage == "missing":
        path.unlink()
    elif damage == "not an array":
        path.write_bytes(b"no array")
    else:
        np.save(path, HEAD_IDS[::-1] if damage == "not ascending" else HEAD_IDS + 300)
    with pytest.raises(BundleError, match="export the bundle again"):
        logits_of(bundle.path) if damage != "missing" else read_head_ids(path, CONFIG.vocab_size)


def test_the_command_line_trims_by_a_text_and_tells_the_size(tmp_path: Path, capsys: pytest.CaptureFixture):
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    (tmp_path / "words.txt").write_text(SAMPLE, encoding="utf-8")
    arguments = ["export", "--target", source, "--draft", source, "-o", str(tmp_path / "out")]
    arguments += ["--draft-vocabulary", "100", "--frequency-text", str(tmp_path / "words.txt")]
    assert run([*arguments, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert run(arguments) == 0
    draft = tmp_path / "out/draft"
    written = sum(file.stat().st_size for file in draft.iterdir() if file.suffix != ".onnx")
    assert f"{written:,}" in next(line for line in printed.splitlines() if line.startswith("draft"))
    expected = frequent_ids(tiny_tokenizer(), 100, [SAMPLE])
    np.testing.assert_array_equal(np.load(draft / "model.head_ids.npy"), expected)
    assert run(["verify", str(tmp_path / "out"), "--draft", source]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--draft-vocabulary", "100"], "add --draft"),
        (["--draft", "layers:1", "--frequency-text", "x"], "add --draft-vocabulary"),
        (["--draft", "layers:1", "--draft-vocabulary", "100000"], "100000 tokens is not between"),
    ],
)
def test_what_trims_nothing_is_refused(arguments: list[str], message: str, tmp_path: Path, capsys):
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    for more in ([], ["--dry-run"]):
        assert run(["export", "--target", source, "-o", str(tmp_path / "out"), *arguments, *more]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_frequency_text_that_is_not_there_is_named(tmp_path: Path, capsys):
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    arguments = ["--draft", source, "--draft-vocabulary", "100", "--frequency-text", str(tmp_path / "no.txt")]
    assert run(["export", "--target", source, "-o", str(tmp_path / "out"), *arguments]) == 2
    assert "no.txt cannot be read" in capsys.readouterr().err
