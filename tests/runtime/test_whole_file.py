"""A file is replaced as a whole, or is as before and has nothing beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.runtime.whole_file import write_whole


def test_a_file_is_replaced(tmp_path: Path):
    path = tmp_path / "file"
    for text in ("first", "a second, longer one\nwith 鮫"):
        write_whole(path, text)
        assert path.read_text(encoding="utf-8") == text
    write_whole(path, "a\nb", newline="\r\n")
    assert path.read_bytes() == b"a\r\nb"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("refused", ["open", "replace"])
def test_what_was_there_stays_if_the_disk_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str):
    def refuse(path: Path, *args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    write_whole(path, "before")
    with monkeypatch.context() as patch:
        patch.setattr(Path, refused, refuse)
        with pytest.raises(OSError, match="No space"):
            write_whole(path, "after")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "nowhere" / "file", "text")
    assert list(tmp_path.iterdir()) == []
