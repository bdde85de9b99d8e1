"""The rows of the messages in an area that scrolls. Only rows that are seen, or nearly so, are made.

Rows that are not made have an estimated height. When a height changes, what is in sight stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QWidget

from pilotfish.desktop_app.conversation import Message
from pilotfish.desktop_app.widgets.canvas import Canvas
from pilotfish.desktop_app.widgets.message_body import BUDGET
from pilotfish.desktop_app.widgets.message_row import MessageRow

COST_OF_ROW = 800  # in characters, as the budget is counted
END_PIXELS = 4
CHARACTERS_OF_A_LINE = 80


@dataclass(slots=True)
class _Slot:
    """A message and where it is, made or not. `width` is the one that its height is for."""

    message: Message
    height: int
    top: int = 0
    width: int = -1
    row: MessageRow | None = None


class MessageList(QScrollArea):
    """`advance` does a part of what is to be done, so that a frame never takes long; `work_arrived` asks for it."""

    work_arrived = Signal()

    def __init__(self, make_row: Callable[[Message, QWidget], MessageRow], parent: QWidget | None = None) -> None:
        """`make_row` makes the row of a message, a child of the widget given, that shows the message as it is."""
        super().__init__(parent)
        self._make_row = make_row
        self._slots: list[_Slot] = []
        self._by_id: dict[str, _Slot] = {}
        self._is_arranging = False
        self._canvas = Canvas(self)
        self._canvas.setAccessibleName(self.tr("Messages"))
        self.setWidget(self._canvas)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(self.tr("Messages of the chat"))
        self.setAccessibleDescription(self.tr("Page Up and Page Down scroll, Ctrl+End goes to the end"))
        self.verticalScrollBar().setSingleStep(40)
        self.verticalScrollBar().valueChanged.connect(self._ask_for_work)

    @property
    def is_at_end(self) -> bool:
        """Whether the end is in sight."""
        bar = self.verticalScrollBar()
        return bar.value() >= bar.maximum() - END_PIXELS

    @property
    def ids(self) -> list[str]:
        """The ids of the messages, from the first."""
        return [slot.message.id for slot in self._slots]

    @property
    def rows(self) -> list[MessageRow]:
        """The rows that are made, from the first."""
        return [slot.row for slot in self._slots if slot.row is not None]

    def set_messages(self, messages: Sequence[Message], em: float) -> None:
        """Shows these. Rows of those that were there before them in the same order stay; `em` is for estimates."""
        ids = self.ids
        same = next((i for i, each in enumerate(messages) if i >= len(ids) or ids[i] != each.id), len(messages))
        for slot in self._slots[same:]:
            _discard(slot)
        del self._slots[same:]
        for slot, message in zip(self._slots, messages, strict=False):
            slot.message = message
        self._slots.extend(_Slot(message, _estimated_height(message, em)) for message in messages[same:])
        self._by_id = {slot.message.id: slot for slot in self._slots}
        self._ask_for_work()

    def set_message(self, message: Message) -> MessageRow | None:
        """Takes a message that has changed; returns its row if it is made, which the caller brings up to date."""
        slot = self._by_id.get(message.id)
        if slot is None:
            return None
        slot.message, slot.width = message, -1
        self._ask_for_work()
        return slot.row

    def discard_rows(self, scale: float = 1.0) -> None:
        """Has all rows made anew, as they must look different, `scale` times as high; what is in sight stays so."""
        for slot in self._slots:
            _discard(slot)
            slot.height = round(slot.height * scale)
        self._ask_for_work()

    def scroll_to_end(self) -> None:
        """Shows the end."""
        self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())

    def scroll_to(self, message_id: str) -> MessageRow | None:
        """Shows a message from its beginning; returns its row, or None if it is not here."""
        slot = self._by_id.get(message_id)
        while slot is not None and slot.row is None:
            self.verticalScrollBar().setValue(slot.top)
            self.advance()
        if slot is not None:
            self.verticalScrollBar().setValue(slot.top)
        return slot.row if slot else None

    def advance(self, budget: int = BUDGET) -> bool:
        """Makes and renders about as much as `budget` characters; returns whether more is to be done."""
        is_at_end, near = self.is_at_end, self._near()
        for slot in reversed(near) if is_at_end else near:
            if budget > 0 and slot.row is None:
                slot.row = self._make_row(slot.message, self._canvas)
                slot.row.changed_height.connect(lambda slot=slot: self._forget_height(slot))
                budget -= COST_OF_ROW
            budget = self._render(slot, budget)
        for slot in self._slots:
            budget = self._render(slot, budget)
        self._arrange(is_at_end=is_at_end)
        near = self._near()
        return any(slot.row is None for slot in near) or any(row.body.is_behind for row in self.rows)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The end stays in sight if it was."""
        is_at_end = self.is_at_end
        super().resizeEvent(event)
        self._arrange(is_at_end=is_at_end)
        self._ask_for_work()

    def _ask_for_work(self) -> None:
        if not self._is_arranging:
            self.work_arrived.emit()

    def _forget_height(self, slot: _Slot) -> None:
        slot.width = -1
        self._arrange(is_at_end=self.is_at_end)

    def _render(self, slot: _Slot, budget: int) -> int:
        if budget > 0 and slot.row is not None and slot.row.body.is_behind:
            slot.width = -1
            return slot.row.advance(self.viewport().width(), budget)
        return budget

    def _near(self) -> list[_Slot]:
        """What is in sight, and half a page around it."""
        height = self.viewport().height()
        top = self.verticalScrollBar().value() - height // 2
        return [slot for slot in self._slots if slot.top < top + 2 * height and slot.top + slot.height > top]

    def _arrange(self, *, is_at_end: bool) -> None:
        """Puts the rows below each other. What was in sight at the top stays there, or else the end does."""
        if self._is_arranging:
            return
        self._is_arranging = True
        bar, width = self.verticalScrollBar(), self.viewport().width()
        seen = next((slot for slot in self._slots if slot.top + slot.height > bar.value()), None)
        offset = bar.value() - seen.top if seen else 0
        for slot in self._near():
            if slot.row is not None and slot.width != width:
                slot.height, slot.width = slot.row.lay_out(width), width
        top = 0
        for slot in self._slots:
            slot.top = top
            top += slot.height
            if slot.row is not None:
                slot.row.setGeometry(0, slot.top, width, slot.height)
        self._canvas.resize(width, max(top, 1))
        bar.setValue(bar.maximum() if is_at_end else seen.top + offset if seen else 0)
        self._is_arranging = False


def _discard(slot: _Slot) -> None:
    if slot.row is not None:
        slot.row.hide()
        slot.row.deleteLater()
    slot.row, slot.width = None, -1


def _estimated_height(message: Message, em: float) -> int:
    num_lines = 3 + len(message.text) // CHARACTERS_OF_A_LINE + message.text.count("\n")
    return round(num_lines * 1.3 * em)
