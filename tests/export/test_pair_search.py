"""Which drafts are found and how they are judged; what is measured, and that nothing of it stays behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.export.outline import outline_of_path
from pilotfish.export.pair_measure import Measurement, measure, measure_drafts, with_draft
from pilotfish.export.pair_search import find_drafts, models_in, sources_to_try
from pilotfish.export.quantize import parse_recipe
from pilotfish.runtime import Engine, GenerationOptions
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.catalog import load_catalog
from pilotfish.runtime.cli import run
from pilotfish.runtime.errors import CheckpointError, OptionError, PairingError, StorageError
from support.checkpoint_files import METADATA, OPTIONS, write_folder, write_gguf
from support.tiny_models import CONFIG, perturbed, tiny_bundle, tiny_weights
from support.vocabularies import with_other_texts

INT8 = parse_recipe("int8")
PROMPTS = ("the pilot fish", "the shark")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A target, drafts of one and two layers, one of as many as the target, one of another vocabulary, one damaged."""
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "models"
    folder.mkdir()
    weights = tiny_weights(replace(CONFIG, num_layers=3))
    write_gguf(folder / "target.gguf", METADATA | {"block_count": 3}, weights)
    write_gguf(folder / "equal.gguf", METADATA | {"block_count": 3}, perturbed(weights, 0.1))
    write_gguf(folder / "two.gguf", METADATA | {"block_count": 2}, tiny_weights(CONFIG))
    one = replace(CONFIG, num_layers=1)
    write_folder(folder / "one", OPTIONS | {"num_hidden_layers": 1}, tiny_weights(one))
    other = write_folder(folder / "other") / "tokenizer.json"
    other.write_text(with_other_texts(other.read_text(encoding="utf-8"), 40), encoding="utf-8")
    (folder / "damaged.gguf").write_bytes(b"GGUF\3")
    (folder / "notes.txt").write_text("no model")
    (folder / "empty").mkdir()
    return folder


def found_in(models: Path, *sources: str):
    target = outline_of_path(models / "target.gguf")
    return find_drafts(target, sources or [str(path) for path in models_in(models)], models, INT8)


def test_those_that_fit_come_first_the_smaller_the_earlier_and_the_target_is_none_of_them(models: Path):
    found = found_in(models)
    assert [Path(each.source).name for each in found] == ["one", "two.gguf", "equal.gguf", "other", "damaged.gguf"]
    assert [each.fits for each in found] == [True, True, True, False, False]
    assert [each.is_worth_trying for each in found] == [True, True, False, False, False]
    assert [each.ratio for each in found] == [*sorted(each.ratio for each in found[:3]), found[3].ratio, 0]
    assert found[2].ratio == 1


def test_a_verdict_says_why(models: Path):
    one, _, equal, other, damaged = found_in(models)
    assert one.verdict.startswith("fits: ")
    assert equal.verdict.endswith("it is not smaller than the target")
    assert other.verdict.startswith("another vocabulary: 40 of ")
    assert "is '" in other.fault
    assert "' in the draft" in other.fault
    assert damaged.verdict == "cannot be looked at"
    assert "damaged.gguf is truncated" in damaged.fault


def test_the_size_is_that_of_the_export(models: Path, tmp_path: Path):
    (one,) = found_in(models, str(models / "one"))
    assert run(["export", "--target", str(models / "one"), "-o", str(tmp_path / "out")]) == 0
    assert one.data_bytes == (tmp_path / "out/target/model.onnx.data").stat().st_size


def test_a_catalog_model_that_is_not_here_is_listed_with_the_remedy(models: Path):
    (found,) = found_in(models, "smollm2-135m")
    assert not found.fits
    assert "pilotfish pull smollm2-135m" in found.fault


def test_sources_are_tried_once_whatever_they_are_called(models: Path, tmp_path: Path):
    downloads = tmp_path / "cache/downloads"
    downloads.mkdir(parents=True)
    for name in ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf.verified", "x.gguf"):
        (downloads / name).write_text("x")
    given = ["owner/name", str(models / "one")]
    sources = sources_to_try(given, load_catalog(), tmp_path / "cache", [models, downloads])
    names = [Path(source).name for source in sources]
    assert names == ["name", "one", "smollm2-135m", "x.gguf", "damaged.gguf", "equal.gguf", "other", "target.gguf",
                     "two.gguf"]  # fmt: skip


def test_a_folder_to_look_in_may_be_a_model_and_must_be_there(models: Path):
    assert models_in(models / "one") == [models / "one"]
    with pytest.raises(OptionError, match="nowhere is not a folder"):
        models_in(models / "nowhere")


def test_a_measurement_counts_over_all_prompts(bundle_path: Path):
    options = GenerationOptions(16, num_draft_tokens=3)
    with Engine(load_bundle(bundle_path)) as engine:
        result = measure(engine, "model", PROMPTS, options)
        accepted = drafted = 0
        for prompt in PROMPTS:
            engine.reset()
            list(engine.generate([{"role": "user", "content": prompt}], replace(options, draft="model")))
            accepted, drafted = accepted + engine.stats.num_accepted, drafted + engine.stats.num_drafted
    assert result.acceptance_rate == accepted / drafted
    assert 0 < result.acceptance_rate < 1
    assert (result.num_equal, result.num_prompts) == (2, 2)
    assert result.tokens_per_s > 0
    assert result.speed_up == result.tokens_per_s / result.plain_tokens_per_s


def test_a_bundle_without_a_template_is_given_the_text(models: Path):
    bundle = load_bundle(tiny_bundle(models, draft_noise=None))
    tokenizer = replace(bundle.manifest.tokenizer, chat_template=None)
    with Engine(replace(bundle, manifest=replace(bundle.manifest, tokenizer=tokenizer))) as engine:
        assert measure(engine, "lookup", PROMPTS, GenerationOptions(4)).num_prompts == 2


def test_a_draft_is_put_beside_a_target_without_copying(bundle_path: Path, lookup_bundle_path: Path, models: Path):
    pair = with_draft(load_bundle(lookup_bundle_path), load_bundle(bundle_path))
    options = GenerationOptions(16)
    with Engine(pair) as engine:
        measured = measure(engine, "model", PROMPTS, options)
    assert measured.acceptance_rate == 1  # the target of the other bundle has the same weights
    assert with_draft(load_bundle(bundle_path), None).manifest.draft is None
    assert run(["export", "--target", str(models / "other"), "-o", str(models / "other-bundle")]) == 0
    with pytest.raises(PairingError, match="do not share a vocabulary"):
        with_draft(pair, load_bundle(models / "other-bundle"))


def measured_with(models: Path, drafts: list[str], measure_bundle, existing: Path | None = None):
    paths = [models / draft for draft in drafts]
    cache = models.parent / "cache"
    nothing = lambda what, done, total: None  # noqa: E731
    results = measure_drafts(models / "target.gguf", paths, (INT8, INT8), cache, measure_bundle, nothing, existing)
    assert list((cache / "bundles").iterdir()) == []
    return results


def test_each_draft_is_measured_beside_the_target_and_nothing_stays(models: Path):
    seen = []

    def note(bundle, draft: str) -> Measurement:
        folder = bundle.path.parent
        seen.append((draft, bundle.manifest.draft and bundle.manifest.draft.num_layers, len(list(folder.iterdir()))))
        return Measurement(0.5, 2.0, 1.0, 4, 4)

    results = measured_with(models, ["one", "damaged.gguf", "two.gguf"], note)
    assert seen == [("lookup", None, 1), ("model", 1, 2), ("model", 2, 2)]
    assert results[0].speed_up == 2
    assert "is truncated" in results[2]


def test_a_bundle_that_there_is_saves_the_export_of_the_target(models: Path):
    assert run(["export", "--target", str(models / "target.gguf"), "-o", str(models / "bundle")]) == 0
    paths = []
    note = lambda bundle, draft: paths.append(bundle.path) or Measurement(0, 1, 1, 1, 1)  # noqa: E731
    measured_with(models, ["one"], note, models / "bundle")
    assert paths == [models / "bundle"] * 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, CheckpointError("x")])
def test_nothing_stays_when_it_breaks_off(models: Path, error):
    def fail(*_: object) -> Measurement:
        raise error

    with pytest.raises((KeyboardInterrupt, CheckpointError)):
        measured_with(models, ["one"], fail)
    assert list((models.parent / "cache/bundles").iterdir()) == []


def test_a_disk_without_room_for_the_target_is_said(models: Path, monkeypatch: pytest.MonkeyPatch):
    usage = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr("pilotfish.export.staging.shutil.disk_usage", lambda _: usage)
    with pytest.raises(StorageError, match="bytes needed, 1,000 free"):
        measured_with(models, ["one"], lambda *_: None)


def test_the_command_lists_explains_and_measures(models: Path, capsys: pytest.CaptureFixture):
    arguments = ["pair", str(models / "target.gguf"), "--in", str(models), "--measure", "--max-tokens", "12"]
    assert run(arguments) == 0
    found, _, measured = capsys.readouterr().out.partition("measured")
    for part in ("fits: ", "not smaller", "is '", "in the draft", "damaged.gguf is truncated", "pilotfish pull"):
        assert part in found
    rows = measured.strip().splitlines()
    assert [row.split()[0].rpartition("/")[2] for row in rows[1:]] == ["lookup,", "one", "two.gguf"]
    assert all(row.endswith("4 of 4") for row in rows[1:])
    assert list((models.parent / "cache/bundles").iterdir()) == []
    assert not (models.parent / "cache/downloads").exists()


def test_the_command_speaks_json(models: Path, capsys: pytest.CaptureFixture):
    arguments = ["pair", str(models / "target.gguf"), str(models / "one"), "--in", str(models), "--json"]
    assert run(arguments) == 0
    drafts = json.loads(capsys.readouterr().out)["drafts"]
    by_name = {Path(each["source"]).name: each for each in drafts}
    assert by_name["one"]["is_worth_trying"]
    assert by_name["one"]["data_bytes"] > 0
    assert (by_name["equal.gguf"]["fits"], by_name["equal.gguf"]["is_worth_trying"]) == (True, False)
    assert "do not share a vocabulary" in by_name["other"]["fault"]
    assert run([*arguments, "--measure"]) == 2
    assert "give one of the two" in capsys.readouterr().err


def test_the_command_says_what_is_wrong_with_the_target(models: Path, capsys: pytest.CaptureFixture):
    assert run(["pair", str(models / "damaged.gguf")]) == 2
    assert "is truncated" in capsys.readouterr().err
