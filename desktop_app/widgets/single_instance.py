"""One program for one database: the second launch shows the window of the first, or says why it cannot."""

from __future__ import annotations

import hashlib
from pathlib import Path

from PySide6.QtCore import QLockFile, QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from pilotfish.desktop_app.errors import DesktopError

PATIENCE_MS = 1000


class SingleInstance(QObject):
    """Holds the lock while it lives. `shown_again` is emitted when the program was launched once more."""

    shown_again = Signal()

    def __init__(self, lock_path: Path, parent: QObject | None = None) -> None:
        """`DesktopError` if the folder cannot be written."""
        super().__init__(parent)
        try:
            lock_path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DesktopError(f"{lock_path.parent} cannot be used ({error.strerror}); make it writable") from error
        self._lock = QLockFile(str(lock_path))
        self._lock.setStaleLockTime(0)  # a lock is given up when its process has ended, never because it is old
        self._name = "pilotfish-" + hashlib.sha256(str(lock_path).encode()).hexdigest()[:16]
        self._server = QLocalServer(self)
        self._server.newConnection.connect(self._answer)

    def acquire(self) -> bool:
        """Whether this is the only one; if so, later launches are answered."""
        if not self._lock.tryLock(0):
            if self._lock.error() != QLockFile.LockError.LockFailedError:
                raise DesktopError(f"{self._lock.fileName()} cannot be written; make its folder writable")
            return False
        QLocalServer.removeServer(self._name)  # one that a crash has left
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.listen(self._name)
        return True

    def show_other(self) -> bool:
        """Asks the program that runs to show its window; whether it has heard."""
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        return socket.waitForConnected(PATIENCE_MS)

    @property
    def owner(self) -> str:
        """The process that holds the lock, in words."""
        pid, host, program = self._lock.getLockInfo()
        return f"{program or 'a program'} (process {pid}{f' on {host}' if host else ''})"

    def release(self) -> None:
        """Lets the next one in; idempotent."""
        self._server.close()
        self._lock.unlock()

    def _answer(self) -> None:
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.deleteLater()
            self.shown_again.emit()
