"""Work that would make the window wait, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from PySide6.QtCore import QObject, Signal, SignalInstance

from pilotfish.runtime import PilotfishError


class Background(QObject):
    """Runs `work` once, after `start`; then emits `done` with what it gave, or `failed` with the message of its error.

    Connect methods of objects that live in the window's thread: they are called there.
    """

    done = Signal(object)
    failed = Signal(str)

    def __init__(self, work: Callable[[], object], parent: QObject) -> None:
        super().__init__(parent)
        self._work = work

    def start(self) -> None:
        """Begins; returns at once."""
        threading.Thread(target=self._run, name="background", daemon=True).start()

    def _run(self) -> None:
        try:
            result = self._work()
        except PilotfishError as error:
            self._tell(self.failed, str(error))
        else:
            self._tell(self.done, result)

    @staticmethod
    def _tell(signal: SignalInstance, value: object) -> None:
        with suppress(RuntimeError):  # the window was closed meanwhile, and this object is gone
            signal.emit(value)
