"""Progress bars on the terminal for downloads and exports."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class ExportProgress:
    """Bars that appear as the work reports itself; a context manager."""

    def __init__(self, console: Console) -> None:
        """Draws on `console`, which may be a file: rich then leaves the bars out."""
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
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)

    def __enter__(self) -> ExportProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
