"""Adding a model: `pilotfish export` in a process of its own, with its progress, cancelled by ending it.

What was downloaded before a cancel stays in the cache folder, so that the next attempt goes on from there.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pilotfish.desktop_app.codec import decoded, parse_json
from pilotfish.desktop_app.engine_process import NO_WINDOW
from pilotfish.desktop_app.errors import DesktopError, FormatError
from pilotfish.desktop_app.programs import pilotfish_command
from pilotfish.runtime.catalog import CatalogPair

NUM_LAST_WORDS = 20
END_TIMEOUT_S = 3.0

_NAME = re.compile(r"[^\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ExportProgress:
    """How far one of the export's works has come, such as "exporting target"; numbers of bytes or of weights."""

    progress: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class ExportEnded:
    """The export is over. `outcome` is `added`, `cancelled` or `failed`; `message` then says why and what to do."""

    output: Path
    outcome: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class ExportOrder:
    """What to export: a source is a GGUF file, a folder, a hub id or a catalog name; a recipe is as in the README."""

    target: str
    output: Path
    recipe: str = "int8"
    draft: str | None = None
    draft_recipe: str | None = None

    @property
    def arguments(self) -> list[str]:
        """Those of `pilotfish`."""
        draft = [f"--draft={self.draft}"] if self.draft else []
        draft_recipe = [f"--draft-quant={self.draft_recipe}"] if self.draft_recipe else []
        target = [f"--target={self.target}", f"--quant={self.recipe}"]
        return ["export", *target, *draft, *draft_recipe, f"--output={self.output}", "--progress-lines"]


class ModelExport:
    """An export that runs. `deliver` is called from a thread of this class; at last, once, with `ExportEnded`."""

    def __init__(
        self, order: ExportOrder, deliver: Callable[[ExportProgress | ExportEnded], None],
        command: Callable[[Sequence[str]], list[str]] = pilotfish_command,
    ) -> None:  # fmt: skip
        """Starts it; `DesktopError` if the system refuses."""
        self._order, self._deliver = order, deliver
        self._is_cancelled = False
        self._words: deque[str] = deque(maxlen=NUM_LAST_WORDS)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command(order.arguments), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                creationflags=NO_WINDOW, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise DesktopError(f"the export cannot be started ({error.strerror}); install pilotfish again") from error
        self._thread = threading.Thread(target=self._follow, name="export", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Ends it soon, and removes what it has written of the bundle; returns at once."""
        self._is_cancelled = True
        threading.Thread(target=self._end_process, name="export-cancel", daemon=True).start()

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits until it has ended and was delivered."""
        self._thread.join(timeout_s)

    def _end_process(self) -> None:
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))

    def _signal(self, number: int) -> None:
        """To the process and to those that it has started, such as pip."""
        if sys.platform == "win32":
            self._process.terminate()
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _follow(self) -> None:
        assert self._process.stderr is not None  # noqa: S101 - for mypy
        with self._process.stderr as pipe:
            for line in pipe:
                progress = parse_progress(line)
                if progress is None:
                    self._words.append(line.decode("utf-8", "replace").strip())
                else:
                    self._deliver(progress)
        exit_code = self._process.wait()
        self._deliver(self._ended(exit_code))

    def _ended(self, exit_code: int) -> ExportEnded:
        output = self._order.output
        if exit_code == 0:
            return ExportEnded(output, "added")
        # The export removes this itself unless it was killed.
        shutil.rmtree(output.with_name(f".{output.name}.partial"), ignore_errors=True)
        if self._is_cancelled:
            return ExportEnded(output, "cancelled")
        said = " ".join(word for word in self._words if word.startswith("pilotfish: "))
        if not said:
            said = f"the export ended with exit code {exit_code}: {' '.join(list(self._words)[-1:])}"
        return ExportEnded(output, "failed", said.removeprefix("pilotfish: "))


def pair_order(pair: CatalogPair, bundles: Path) -> ExportOrder:
    """The export of a pair of the catalog."""
    return ExportOrder(pair.target, bundles / pair.name, pair.target_recipe, pair.draft, pair.draft_recipe)


def free_name(source: str, bundles: Path) -> Path:
    """A folder for the bundle of a source, named after it, that is not there yet."""
    stem = re.split(r"[\\/]", source.rstrip("\\/"))[-1].removesuffix(".gguf")
    name = _NAME.sub("-", stem).strip("-.") or "model"
    names = (name if number == 1 else f"{name}-{number}" for number in range(1, 10_000))
    return next(path for path in map(bundles.joinpath, names) if not path.exists())


def parse_progress(line: bytes) -> ExportProgress | None:
    """The progress that a line tells; None if it is something else."""
    if not line.startswith(b'{"progress"'):
        return None
    try:
        return decoded(ExportProgress, parse_json(line))
    except FormatError:
        return None
