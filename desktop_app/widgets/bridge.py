"""What comes from other threads into Qt's own: events of the engine's process, and progress of an export."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, Signal, Slot


class Bridge(QObject):
    """`deliver` may be called from any thread; `arrived` is emitted in the thread that made the bridge, in order.

    After `close` nothing is emitted any more, not even what is on its way.
    """

    arrived = Signal(object)
    _crossed = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._is_closed = False
        self._crossed.connect(self._hand_over, Qt.ConnectionType.QueuedConnection)

    def deliver(self, event: object) -> None:
        """Takes an event and returns at once."""
        if not self._is_closed:
            self._crossed.emit(event)

    def close(self) -> None:
        """Lets nothing through any more; idempotent."""
        self._is_closed = True

    @Slot(object)
    def _hand_over(self, event: object) -> None:
        if not self._is_closed:
            self.arrived.emit(event)
