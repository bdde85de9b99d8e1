"""The application in this process, under the offscreen platform, with a fake engine or a real one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QDeadlineTimer, QEvent, Qt, QTimer
from PySide6.QtTest import QTest

from pilotfish.desktop_app.conversation import Message
from pilotfish.desktop_app.store import Store
from pilotfish.desktop_app.widgets.application import application, build, open_store

PATIENCE_MS = 30_000  # the machines that run the tests are slow


class Application:
    """The window and all behind it. `PILOTFISH_DATA` must point to a folder of the test."""

    def __init__(self, command: Sequence[str] | None, store: Store | str | None = "open") -> None:
        self.app, self.is_closed = application(), False
        self.store = open_store() if store == "open" else store
        self.control = build(self.app, self.store, command)
        self.window, self.desk = self.control.window, self.control.desk
        self.composer, self.panel, self.sidebar = self.window.composer, self.window.panel, self.window.sidebar
        self.window.show()
        self.window.activateWindow()
        assert QTest.qWaitForWindowActive(self.window)

    def launch(self, bundle: Path | None) -> None:
        self.control.launch(bundle)
        if bundle is not None:
            self.wait(lambda: self.desk.engine.phase == "ready")

    def wait(self, until: Callable[[], bool]) -> None:
        """Runs the event loop until something holds."""
        deadline = QDeadlineTimer(PATIENCE_MS)
        while not until():
            assert not deadline.hasExpired(), "it did not come to that"
            QCoreApplication.processEvents()
            QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
            QTest.qWait(1)

    def type(self, text: str) -> None:
        """Types into what has the focus."""
        QTest.keyClicks(self.focused, text)

    def press(self, key: Qt.Key, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        QTest.keyClick(self.focused, key, modifiers)

    @property
    def focused(self):
        return self.app.focusWidget() or self.window

    def ask(self, text: str) -> Message:
        """Sends a message and waits for the reply."""
        self.composer.editor.setPlainText(text)
        self.composer.submit()
        self.wait(lambda: not self.desk.session.is_busy)
        return self.path[-1]

    @property
    def path(self) -> tuple[Message, ...]:
        return self.desk.session.conversation.path

    def close(self) -> None:
        """Ends it; idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        self.window.close()
        if self.store is not None:
            self.store.close()
        self.window.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


class GapMeter:
    """The times, in seconds, in which the event loop did not come round, and what this thread computed in each.

    The latter does not grow while other programs have the processor.
    """

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self.work: list[float] = []
        self._seen = (0.0, 0.0)
        self._timer = QTimer(interval=2, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._tick)

    def start(self) -> None:
        self.gaps.clear()
        self.work.clear()
        self._seen = (time.perf_counter(), time.thread_time())
        self._timer.start()

    def stop(self) -> None:
        """Both then have the longest first."""
        self._timer.stop()
        self.gaps.sort(reverse=True)
        self.work.sort(reverse=True)

    def _tick(self) -> None:
        now = (time.perf_counter(), time.thread_time())
        self.gaps.append(now[0] - self._seen[0])
        self.work.append(now[1] - self._seen[1])
        self._seen = now
