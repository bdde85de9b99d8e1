"""A strip that says what is wrong and what to do, with a button for the remedy."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QToolButton, QWidget

from pilotfish.desktop_app.themes import LIGHT, Colours
from pilotfish.desktop_app.widgets.icons import icon
from pilotfish.desktop_app.widgets.theme import set_role


class Banner(QFrame):
    """Hidden while there is nothing to say; a newer message takes the place of an older one."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("banner")
        self._words = QLabel(self, wordWrap=True, textFormat=Qt.TextFormat.PlainText)
        self._words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.button = QPushButton(self)
        self._close = QToolButton(self, autoRaise=True)
        self._close.setIconSize(QSize(14, 14))
        self._close.setToolTip(self.tr("Close this message (Space)"))
        self._close.setAccessibleName(self.tr("Close this message"))
        self._act: Callable[[], object] = self.hide
        row = QHBoxLayout(self)
        row.setContentsMargins(14, 8, 8, 8)
        row.addWidget(self._words, 1)
        row.addWidget(self.button)
        row.addWidget(self._close, 0, Qt.AlignmentFlag.AlignTop)
        self._close.clicked.connect(self.hide)
        self.button.clicked.connect(lambda: self._act())
        self.set_colours(LIGHT)
        self.hide()

    @property
    def text(self) -> str:
        """What it says; empty while it is hidden."""
        return "" if self.isHidden() else self._words.text()

    def say(self, text: str, level: str, words: str = "", act: Callable[[], object] | None = None) -> None:
        """Says `text`; `level` is `error`, `warning` or `muted`. `words` are on the button that calls `act`."""
        self._words.setText(text)
        self.setToolTip("")
        set_role(self._words, level)
        self.setAccessibleName(text)
        self._act = act or self.hide
        self.button.setText(words)
        self.button.setAccessibleName(words)
        self.button.setToolTip(self.tr("{words} (Space)").format(words=words))
        self.button.setVisible(act is not None)
        self.show()

    def set_colours(self, colours: Colours) -> None:
        """Another theme."""
        self._close.setIcon(icon("close", colours.muted))
