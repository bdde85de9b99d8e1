"""What an empty chat shows: a greeting, and questions to begin with."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QVBoxLayout, QWidget

from pilotfish.desktop_app.widgets.icons import app_icon

LOGO_PIXELS = 72


class EmptyPage(QWidget):
    """`suggested` has the text of a question that was chosen."""

    suggested = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._logo = QLabel(self, alignment=Qt.AlignmentFlag.AlignCenter)
        self._logo.setPixmap(app_icon().pixmap(LOGO_PIXELS, LOGO_PIXELS))
        self._title = QLabel(self.tr("What can I help with?"), self, alignment=Qt.AlignmentFlag.AlignCenter)
        self._title.setProperty("role", "title")
        self._words = QLabel(self, alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        self._words.setProperty("role", "muted")
        self.set_temporary(False)
        column = QVBoxLayout(self)
        column.addStretch(3)
        for widget in (self._logo, self._title, self._words):
            column.addWidget(widget)
            column.addSpacing(6)
        column.addSpacing(12)
        column.addLayout(self._suggestions())
        column.addStretch(4)

    def set_temporary(self, is_temporary: bool) -> None:
        """Says what becomes of the chat."""
        self._words.setText(
            self.tr("This chat is temporary: it is never written to the disk.")
            if is_temporary
            else self.tr("Everything stays on this computer.")
        )

    def _suggestions(self) -> QVBoxLayout:
        column = QVBoxLayout()
        column.setSpacing(8)
        texts = (
            self.tr("Why is the sky blue?"),
            self.tr("Merge two sorted lists in Python"),
            self.tr("Explain recursion to a child"),
        )
        for text in texts:
            button = QPushButton(text, self)
            button.setObjectName("suggestion")
            button.setAccessibleName(text)
            button.setToolTip(self.tr("Ask this (Space)"))
            button.clicked.connect(lambda _=False, text=text: self.suggested.emit(text))
            column.addWidget(button, 0, Qt.AlignmentFlag.AlignHCenter)
        return column
