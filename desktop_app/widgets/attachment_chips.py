"""The files that go along with a message, as chips that can be taken away."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QLabel, QSizePolicy, QToolButton, QWidget

from pilotfish.desktop_app.attachments import size_in_words
from pilotfish.desktop_app.conversation import Attachment
from pilotfish.desktop_app.themes import LIGHT, Colours
from pilotfish.desktop_app.widgets.icons import icon

NUM_COLUMNS = 3
NAME_WIDTH = 180


class AttachmentChips(QWidget):
    """Shows attachments in the order in which they came; hidden while there is none."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._attachments: tuple[Attachment, ...] = ()
        self._colours = LIGHT
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setSpacing(6)
        self._grid.setColumnStretch(NUM_COLUMNS, 1)
        self.hide()

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """What is attached."""
        return self._attachments

    def set_attachments(self, attachments: tuple[Attachment, ...]) -> None:
        """Shows these instead."""
        if attachments != self._attachments:
            self._attachments = attachments
            self._rebuild()
            self.changed.emit()

    def set_colours(self, colours: Colours) -> None:
        """Another theme."""
        self._colours = colours
        self._rebuild()

    def remove(self, attachment: Attachment) -> None:
        """Takes one away."""
        self.set_attachments(tuple(each for each in self._attachments if each is not attachment))

    def _rebuild(self) -> None:
        while (item := self._grid.takeAt(0)) is not None:
            if (old := item.widget()) is not None:
                old.hide()
                old.deleteLater()
        for number, attachment in enumerate(self._attachments):
            chip = self._chip(attachment)
            self._grid.addWidget(chip, number // NUM_COLUMNS, number % NUM_COLUMNS)
            chip.show()  # now, not when the event loop comes round, so that Tab finds it
        self.setVisible(bool(self._attachments))

    def _chip(self, attachment: Attachment) -> QWidget:
        chip = QFrame(self)
        chip.setObjectName("chip")
        chip.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        label = QLabel(self._elided(attachment.name), chip)
        label.setTextFormat(Qt.TextFormat.PlainText)
        details = f"{attachment.name}, {size_in_words(attachment)}"
        label.setToolTip(details)
        remove = QToolButton(chip)
        remove.setIcon(icon("close", self._colours.muted))
        remove.setIconSize(QSize(12, 12))
        remove.setAutoRaise(True)
        remove.setToolTip(self.tr("Remove {name} (Space)").format(name=details))
        remove.setAccessibleName(self.tr("Remove {name}").format(name=details))
        remove.clicked.connect(lambda: self.remove(attachment))
        row = QHBoxLayout(chip)
        row.setContentsMargins(10, 2, 4, 2)
        row.setSpacing(4)
        row.addWidget(label)
        row.addWidget(remove)
        return chip

    def _elided(self, name: str) -> str:
        return self.fontMetrics().elidedText(name, Qt.TextElideMode.ElideMiddle, NAME_WIDTH)
