"""The demonstration: it streams, marks what was drafted, compares with the target alone, and uses the cache."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from pilotfish.export.demo import demo, prepared_bundle
from pilotfish.runtime import Engine, GenerationOptions, OptionError
from pilotfish.runtime.catalog import load_catalog
from pilotfish.runtime.cli import run
from pilotfish.runtime.terminal import print_stream
from support.tiny_models import tiny_bundle


def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=10_000, highlight=False)


def test_drafted_text_is_underlined_and_the_rest_is_not(engine: Engine):
    screen = console()
    chunks = list(engine.generate("the pilot fish", GenerationOptions(max_tokens=24, draft="model")))
    text, token_ids, finish_reason = print_stream(screen, chunks)
    printed = screen.file.getvalue()
    assert text == "".join(chunk.text for chunk in chunks)
    assert len(token_ids) == 24
    assert finish_reason == "length"
    drafted = [chunk.text for chunk in chunks if chunk.origin == "model" and chunk.text.strip()]
    assert drafted
    assert printed.count("\x1b[4;32m") >= len(drafted)


def test_the_last_line_compares_with_the_target_alone(engine: Engine):
    screen = console()
    demo(engine, "the pilot fish", GenerationOptions(max_tokens=24, draft="model"), screen)
    last = screen.file.getvalue().strip().splitlines()[-1]
    for part in ("tokens/s", "accepted", "tokens per round", "speculation on: model", "target only", "the same output"):
        assert part in last
    assert engine.stats.num_drafted == 0  # the comparison ran last, from cold caches
    assert engine.stats.num_cached_tokens == 0


def test_the_last_line_says_why_speculation_is_off(engine: Engine):
    screen = console()
    demo(engine, "the pilot fish", GenerationOptions(max_tokens=8, draft="off"), screen)
    assert "speculation off: it is switched off" in screen.file.getvalue()


def test_a_bundle_in_the_cache_is_used_and_a_damaged_one_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path))
    name = load_catalog().default_pair_name
    (tmp_path / "bundles").mkdir()
    made = tiny_bundle(tmp_path / "bundles", draft_noise=None).rename(tmp_path / "bundles" / name)
    spare = Path(shutil.copytree(made, tmp_path / "spare"))
    assert prepared_bundle(None, console()) == made
    (made / "tokenizer.json").unlink()
    monkeypatch.setattr("pilotfish.export.demo._export_pair", lambda _pair, path, _console: spare.rename(path))
    assert prepared_bundle(None, console()) == made
    assert (made / "tokenizer.json").is_file()


def test_an_unknown_pair_is_named():
    with pytest.raises(OptionError, match="no pair named 'smolm2'"):
        prepared_bundle("smolm2", console())


def test_an_unknown_model_ends_pull_with_code_2(capsys: pytest.CaptureFixture):
    assert run(["pull", "smollm2-135n"]) == 2
    assert "did you mean 'smollm2-135m'" in capsys.readouterr().err


@pytest.mark.real_model
def test_the_demo_runs_on_the_default_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, smollm2: Path):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path))
    (tmp_path / "downloads").mkdir()
    shutil.copy(smollm2, tmp_path / "downloads")
    for _ in range(2):
        assert run(["demo", "--max-tokens", "24"]) == 0
        assert "the same output" in capsys.readouterr().out
    assert run(["pull"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "downloads" / smollm2.name)
