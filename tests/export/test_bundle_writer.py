"""A bundle appears whole or not at all, and only for a pair that fits together."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.checkpoint import Checkpoint
from pilotfish.export.graph import build_decoder
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sizes import GRAPH_BYTES
from pilotfish.export.sources import BuiltSource
from pilotfish.runtime import GenerationOptions, load
from pilotfish.runtime.bundle import ParityReport, load_bundle
from pilotfish.runtime.errors import DeviceError, OptionError, PairingError, ParityError, StorageError
from support.tiny_models import CONFIG, perturbed, tiny_bundle, tiny_checkpoint, tiny_tokenizer, tiny_weights

FP32 = parse_recipe("fp32")


def renamed_tokens(checkpoint: Checkpoint, number: int) -> Checkpoint:
    """The same model with the texts of `number` tokens changed."""
    tokenizer = json.loads(checkpoint.tokenizer.tokenizer_json)
    ids = tokenizer["model"]["vocab"]
    merged = [text for text, _ in sorted(ids.items(), key=lambda item: -item[1])][:number]
    for text in merged:
        ids[f"~{text}~"] = ids.pop(text)
    tokenizer["model"]["merges"] = []
    checkpoint.tokenizer = replace(checkpoint.tokenizer, tokenizer_json=json.dumps(tokenizer))
    return checkpoint


def test_progress_reaches_the_whole(tmp_path: Path):
    names = [f"{work} {role}" for work in ("exporting", "verifying") for role in ("target", "draft")]
    seen: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    source = BuiltSource(tiny_checkpoint(), FP32)
    write_bundle(source, source, tmp_path / "bundle", lambda what, done, total: seen[what].append((done, total)))
    for steps in seen.values():
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1] > 0


def test_a_draft_of_another_vocabulary_keeps_its_tokenizer(tmp_path: Path):
    draft = BuiltSource(renamed_tokens(tiny_checkpoint(), 40), FP32)
    path = write_bundle(BuiltSource(tiny_checkpoint(), FP32), draft, tmp_path / "bundle", genai=True)
    manifest = load_bundle(path).manifest
    own = manifest.draft_tokenizer
    assert (own.file, own.chat_template, manifest.draft.masked_ids) == ("draft/tokenizer.json", None, ())
    assert own.num_tokens == manifest.tokenizer.num_tokens
    assert (path / own.file).read_text(encoding="utf-8") == draft.tokenizer.tokenizer_json
    assert (path / manifest.tokenizer.file).read_text(encoding="utf-8") == tiny_tokenizer().tokenizer_json
    assert own.file in manifest.files
    # The weights are equal, but not the tokens of the sample.
    assert manifest.draft.parity.perplexity != pytest.approx(manifest.target.parity.perplexity, rel=0.01)
    assert json.loads((path / "pilotfish.json").read_text())["format"] == 2
    assert (path / "target/genai.onnx").exists()
    assert not (path / "draft/genai.onnx").exists()  # genai knows one tokenizer only


def test_a_draft_without_text_of_its_own_is_refused_and_nothing_written(tmp_path: Path):
    checkpoint = renamed_tokens(tiny_checkpoint(), 40)
    tokenizer = json.loads(checkpoint.tokenizer.tokenizer_json) | {"decoder": None}
    checkpoint.tokenizer = replace(checkpoint.tokenizer, tokenizer_json=json.dumps(tokenizer))
    with pytest.raises(PairingError, match="have no text of their own"):
        write_bundle(BuiltSource(tiny_checkpoint(), FP32), BuiltSource(checkpoint, FP32), tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_left_alone(tmp_path: Path):
    (tmp_path / "bundle").mkdir()
    with pytest.raises(OptionError, match="exists already"):
        write_bundle(BuiltSource(tiny_checkpoint(), FP32), None, tmp_path / "bundle")


def test_a_full_disk_is_noticed_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    usage = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr("pilotfish.export.staging.shutil.disk_usage", lambda _: usage)
    with pytest.raises(StorageError, match=r"bytes needed, 1,000 free"):
        write_bundle(BuiltSource(tiny_checkpoint(), FP32), None, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pilotfish.export.weight_file.WeightFile.append", full)
    with pytest.raises(StorageError, match="the disk is too full"):
        write_bundle(BuiltSource(tiny_checkpoint(), FP32), None, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_parent_that_is_a_file_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="cannot use"):
        write_bundle(BuiltSource(tiny_checkpoint(), FP32), None, tmp_path / "file" / "bundle")


def test_killed_at_any_time_it_leaves_no_bundle_and_a_rerun_completes(tmp_path: Path):
    script = textwrap.dedent(f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from pathlib import Path
        from support.tiny_models import tiny_bundle
        import pilotfish.export.weight_file as weight_file
        calls, append = 0, weight_file.WeightFile.append
        def dying(self, array):
            global calls
            calls += 1
            append(self, array)
            if calls == int(sys.argv[1]):
                self._file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
        weight_file.WeightFile.append = dying
        tiny_bundle(Path(sys.argv[2]))
    """)
    for calls in (1, 9, 20):
        run = subprocess.run([sys.executable, "-c", script, str(calls), str(tmp_path)], check=False)
        assert run.returncode == -signal.SIGKILL
        assert not (tmp_path / "bundle").exists()
    assert load_bundle(tiny_bundle(tmp_path)).manifest.draft is not None
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_the_manifest_says_what_was_exported(tmp_path: Path):
    target = BuiltSource(tiny_checkpoint(), parse_recipe("int8"))
    draft_config = replace(CONFIG, num_layers=1, vocab_size=352)
    draft = BuiltSource(tiny_checkpoint(draft_config, tiny_weights(draft_config)), parse_recipe("int4-b16"))
    manifest = load_bundle(write_bundle(target, draft, tmp_path / "bundle")).manifest
    assert (manifest.target.recipe, manifest.draft.recipe) == ("int8-b32", "int4-b16")
    assert (manifest.target.vocab_size, manifest.draft.vocab_size) == (320, 352)
    assert manifest.tokenizer.end_token_ids == (1,)
    assert manifest.tokenizer.eos_token == "<|end|>"
    assert manifest.tokenizer.num_tokens < 320
    assert manifest.target.parity.verified
    assert 0 < manifest.target.parity.mean_kl < manifest.draft.parity.mean_kl


def wrong_graph(checkpoint: Checkpoint, *arguments: object) -> str:
    """The graph of the same model with other weights."""
    other = tiny_checkpoint(checkpoint.config, perturbed(tiny_weights(checkpoint.config), 0.1))
    return build_decoder(other, *arguments)


@pytest.mark.parametrize("recipe", ["fp32", "int8", "w8a8", "w8a16"])
def test_a_graph_that_is_too_far_from_its_source_is_refused_and_nothing_left(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pilotfish.export.sources.build_decoder", wrong_graph)
    with pytest.raises(ParityError, match=r"the target is too far from its source: mean KL .* --skip-verify"):
        write_bundle(BuiltSource(tiny_checkpoint(), parse_recipe(recipe)), None, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_draft_that_is_too_far_from_its_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[Checkpoint] = []

    def second_wrong(checkpoint: Checkpoint, *arguments: object) -> str:
        calls.append(checkpoint)
        return (build_decoder if len(calls) == 1 else wrong_graph)(checkpoint, *arguments)

    monkeypatch.setattr("pilotfish.export.sources.build_decoder", second_wrong)
    source = BuiltSource(tiny_checkpoint(), FP32)
    with pytest.raises(ParityError, match="the draft is too far"):
        write_bundle(source, source, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_skipped_verification_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pilotfish.export.sources.build_decoder", wrong_graph)
    source = BuiltSource(tiny_checkpoint(), FP32)
    manifest = load_bundle(write_bundle(source, source, tmp_path / "bundle", verify=False)).manifest
    assert [model.parity for model in manifest.models.values()] == [ParityReport(verified=False)] * 2


def test_without_onnxruntime_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(DeviceError, match="pip install"):
        write_bundle(BuiltSource(tiny_checkpoint(), FP32), None, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []
    write_bundle(BuiltSource(tiny_checkpoint(), FP32), None, tmp_path / "bundle", verify=False)


@pytest.mark.parametrize("recipe", ["fp32", "int8", "int4", "int4-mixed", "source", "w8a8", "w8a16"])
def test_the_room_that_is_asked_for_holds_what_is_written(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not a byte of the models more, and no more than a little beside them."""
    asked = []
    monkeypatch.setattr(
        "pilotfish.export.bundle_writer.require_free_space", lambda path, num_bytes: asked.append(num_bytes)
    )
    source = BuiltSource(tiny_checkpoint(), parse_recipe(recipe))
    bundle = write_bundle(source, None, tmp_path / "bundle", verify=False)
    written = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())
    assert written <= asked[0] <= written + GRAPH_BYTES


def test_drafts_of_a_draft_share_its_tokenizer(tmp_path: Path):
    target, renamed = BuiltSource(tiny_checkpoint(), FP32), BuiltSource(renamed_tokens(tiny_checkpoint(), 40), FP32)
    path = write_bundle(target, renamed, tmp_path / "bundle", lower_drafts=[renamed], verify=False)
    manifest = load_bundle(path).manifest
    assert [manifest.tokenizer_of(draft) for draft in manifest.drafts] == [manifest.draft_tokenizer] * 2
    assert manifest.tokenizer_of(manifest.target) == manifest.tokenizer != manifest.draft_tokenizer
    with load(path) as engine:
        assert len(engine.calibration.drafts) == 2
        written, plain = (
            [
                token
                for chunk in engine.generate("the pilot", GenerationOptions(24, draft=draft))
                for token in chunk.token_ids
            ]
            for draft in ("model", "off")
        )
        assert written == plain
    with pytest.raises(PairingError, match="a draft of a draft must share its vocabulary, and draft and target do not"):
        write_bundle(target, target, tmp_path / "mixed", lower_drafts=[renamed], verify=False)
    assert not (tmp_path / "mixed").exists()
