"""The context meter below the message: a bar and words, so that colour is never the only sign."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from pilotfish.desktop_app.meter_words import meter_words
from pilotfish.desktop_app.protocol import Counted
from pilotfish.desktop_app.themes import LIGHT, Colours


class ContextMeter(QWidget):
    """Hidden until there is something to show."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._colours = LIGHT
        self._level = "good"
        self._bar = _Bar(self)
        self._label = QLabel(self)
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self._bar)
        row.addWidget(self._label)
        self.hide()

    @property
    def text(self) -> str:
        """What it says."""
        return self._label.text()

    def set_colours(self, colours: Colours) -> None:
        """Another theme."""
        self._colours = colours
        self._paint()

    def show_count(self, counted: Counted | None, policy: str) -> None:
        """Shows a count, or nothing for None; `policy` is what happens when the context is full."""
        self.setVisible(counted is not None)
        if counted is None:
            return
        words = meter_words(counted, policy, self.tr)
        self._level, self._bar.share = words.level, words.share
        self._label.setText(words.text)
        self.setToolTip(words.details)
        self.setAccessibleName(self.tr("Context: {text}. {details}").format(text=words.text, details=words.details))
        self._paint()

    def _paint(self) -> None:
        ink = {"good": self._colours.muted, "warning": self._colours.warning, "error": self._colours.error}[self._level]
        self._label.setStyleSheet(f"color: {ink};")
        self._bar.ink, self._bar.ground = (self._colours.good if self._level == "good" else ink), self._colours.border
        self._bar.update()


class _Bar(QWidget):
    """A short bar that is filled by `share`, from the side where lines begin."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.share = 0.0
        self.ink = self.ground = "#000000"
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        """Small enough to go unnoticed."""
        return QSize(64, 6)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: ARG002 - the whole bar is drawn
        """Draws it."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        whole, filled = QRectF(self.rect()), max(self.share * self.width(), min(self.height(), self.width()))
        painter.setBrush(QColor(self.ground))
        painter.drawRoundedRect(whole, 3, 3)
        painter.setBrush(QColor(self.ink))
        left = whole.right() - filled if self.layoutDirection() == Qt.LayoutDirection.RightToLeft else 0.0
        painter.drawRoundedRect(QRectF(left, 0, filled, self.height()), 3, 3)
        painter.end()
