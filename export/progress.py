"""Progress of downloads and exports: bars on the terminal, or lines for another program to read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINE_INTERVAL_S = 0.1


class ExportProgress:
    """Bars that appear as the work reports itself; a context manager."""

    def __init__(self, console: Console, *, as_lines: bool = False) -> None:
        """Draws on `console`, which may be a file: rich then leaves the bars out.

        With `as_lines` it writes lines `{"progress": what, "done": number, "total": number}` instead, some a second.
        """
        self._console = console
        self._as_lines = as_lines
        self._line_s = 0.0
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console)
        self._tasks: dict[str, TaskID] = {}

    def bytes_of(self, what: str) -> Callable[[int, int], None]:
        """A callback for one download: bytes done, bytes in all."""
        return lambda done, total: self._show(what, done, total)

    def weights(self, what: str, done: int, total: int) -> None:
        """A callback for exports: what is being done, weights done, weights in all."""
        self._show(what, done, total)

    def _show(self, what: str, done: int, total: int) -> None:
        if self._as_lines:
            now_s = time.monotonic()
            if done >= total or now_s - self._line_s >= LINE_INTERVAL_S:
                self._line_s = now_s
                self._console.file.write(json.dumps({"progress": what, "done": done, "total": total}) + "\n")
                self._console.file.flush()
            return
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)

    def __enter__(self) -> ExportProgress:
        if not self._as_lines:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
