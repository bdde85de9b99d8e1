"""Small files that are written as a whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str, newline: str | None = None) -> None:
    """Writes `text` in UTF-8 beside `path` and puts it in its place; `newline` as for `open`.

    `OSError` if that cannot be done, and then what was there is as before, and nothing lies beside it.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with unfinished.open("w", encoding="utf-8", newline=newline) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # else a file that is cut off may be in its place after a power failure
        unfinished.replace(path)
    except OSError:
        with suppress(OSError):  # what kept it from being written may keep it from being removed
            unfinished.unlink(missing_ok=True)
        raise
