from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.desktop_app.draft_search import find_drafts
from pilotfish.desktop_app.errors import DesktopError
from support.checkpoint_files import METADATA, OPTIONS, write_folder, write_gguf
from support.tiny_models import CONFIG, tiny_weights
from support.vocabularies import without_texts


def test_drafts_are_found_and_refusals_explained(tmp_path: Path):
    write_gguf(tmp_path / "target.gguf", METADATA | {"block_count": 2}, tiny_weights(CONFIG))
    write_folder(tmp_path / "one", OPTIONS | {"num_hidden_layers": 1}, tiny_weights(replace(CONFIG, num_layers=1)))
    other = write_folder(tmp_path / "other") / "tokenizer.json"
    other.write_text(without_texts(other.read_text(encoding="utf-8"), 40), encoding="utf-8")
    found = find_drafts(str(tmp_path / "target.gguf"), [str(tmp_path / "one")], str(tmp_path))
    assert Path(found[0].source).name == "one"
    assert found[0].is_worth_trying
    refused = next(each for each in found if Path(each.source).name == "other")
    assert not refused.fits
    assert "have no text of their own" in refused.fault


def test_a_search_that_fails_says_why(tmp_path: Path):
    with pytest.raises(DesktopError, match=r"nothing\.gguf"):
        find_drafts(str(tmp_path / "nothing.gguf"))
    with pytest.raises(DesktopError, match="cannot be started"):
        find_drafts("x", command=lambda arguments: [str(tmp_path / "no-program")])
    for code, words in (("print('{}')", "no answer that can be read"), ("raise SystemExit(3)", "exit code 3")):
        with pytest.raises(DesktopError, match=words):
            find_drafts("x", command=lambda arguments, code=code: [sys.executable, "-c", code])
