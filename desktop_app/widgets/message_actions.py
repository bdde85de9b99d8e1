"""What can be done with a message: a row of small buttons below it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QToolButton, QWidget

from pilotfish.desktop_app.conversation import Message
from pilotfish.desktop_app.widgets.look import Look


class MessageActions(QWidget):
    """Shows the buttons that fit the message."""

    copy_clicked = Signal()
    edit_clicked = Signal()
    regenerate_clicked = Signal()
    continue_clicked = Signal()
    chosen = Signal(str)

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._siblings: tuple[Message, ...] = ()
        self._index = 0
        self._layout = QHBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(2)
        self.previous = self._button("‹", self.tr("Show the version before this one"), lambda: self._choose(-1))
        self.count = QLabel(self)
        self.count.setFont(look.small_font)
        self.count.setProperty("role", "small")
        self._layout.addWidget(self.count)
        self.next = self._button("›", self.tr("Show the version after this one"), lambda: self._choose(1))
        self.copy = self._button(
            self.tr("Copy"), self.tr("Copy the message as it was written"), self.copy_clicked.emit
        )  # fmt: skip
        self.edit = self._button(
            self.tr("Edit"), self.tr("Ask with another text; this one stays"), self.edit_clicked.emit
        )  # fmt: skip
        self.regenerate = self._button(
            self.tr("Regenerate"), self.tr("Ask for another reply; this one stays"), self.regenerate_clicked.emit
        )  # fmt: skip
        self.continue_ = self._button(
            self.tr("Continue"), self.tr("Ask for the rest of this reply"), self.continue_clicked.emit
        )  # fmt: skip
        self._layout.addStretch(1)

    def show_for(self, message: Message, siblings: tuple[Message, ...], *, is_busy: bool) -> None:
        """Shows what can be done; while a reply is written, only what does not get in its way."""
        self._siblings = siblings
        self._index = next((index for index, each in enumerate(siblings) if each.id == message.id), 0)
        is_reply = message.role == "assistant"
        reason = message.stats.finish_reason if message.stats else None
        is_cut = is_reply and (message.state == "interrupted" or (message.state == "complete" and reason == "length"))
        self.count.setVisible(len(siblings) > 1)
        for each in (self.previous, self.next):
            each.setVisible(len(siblings) > 1 and not is_busy)
        self.count.setText(f"{self._index + 1} / {len(siblings)}")
        self.count.setAccessibleName(self.tr("Version {} of {}").format(self._index + 1, len(siblings)))
        self.copy.setVisible(bool(message.text))
        self.edit.setVisible(not is_busy and not is_reply and message.state != "unreadable")
        self.regenerate.setVisible(not is_busy and is_reply)
        self.continue_.setVisible(not is_busy and is_cut and bool(message.text))

    def _choose(self, step: int) -> None:
        """The last version is followed by the first."""
        self.chosen.emit(self._siblings[(self._index + step) % len(self._siblings)].id)

    def _button(self, text: str, tip: str, clicked: Callable[[], None]) -> QToolButton:
        button = QToolButton(self)
        button.setText(text)
        button.setFont(self._look.small_font)
        button.setProperty("role", "action")
        button.setAccessibleName(tip)
        button.setToolTip(self.tr("{} (Space, when it has the focus)").format(tip))
        button.clicked.connect(lambda: clicked())
        self._layout.addWidget(button)
        return button
