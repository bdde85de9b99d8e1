"""A switch that stays where it was put; works by mouse, Space and screen reader as a check box does."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QCheckBox, QSizePolicy, QWidget

from pilotfish.desktop_app.themes import LIGHT, Colours

WIDTH, HEIGHT, MARGIN = 40, 22, 3


class Switch(QCheckBox):
    """A check box without words of its own: give it an accessible name."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._colours = LIGHT
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def set_colours(self, colours: Colours) -> None:
        """Another theme."""
        self._colours = colours
        self.update()

    def sizeHint(self) -> QSize:
        """Room for the focus ring too."""
        return QSize(WIDTH + 2 * MARGIN, HEIGHT + 2 * MARGIN)

    def hitButton(self, pos: object) -> bool:  # noqa: ARG002 - everywhere
        """The whole switch can be clicked."""
        return True

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: ARG002 - the whole switch is drawn
        """The knob's place says the state, not the colour alone."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        groove = QRectF(MARGIN, MARGIN, WIDTH, HEIGHT)
        is_right = self.isChecked() != (self.layoutDirection() == Qt.LayoutDirection.RightToLeft)
        if self.hasFocus():
            painter.setPen(QPen(QColor(self._colours.text), 2))
            painter.drawRoundedRect(groove.adjusted(-2, -2, 2, 2), HEIGHT / 2 + 2, HEIGHT / 2 + 2)
        painter.setPen(QPen(QColor(self._colours.accent if self.isChecked() else self._colours.muted), 1.2))
        painter.setBrush(QColor(self._colours.accent if self.isChecked() else self._colours.surface))
        painter.drawRoundedRect(groove, HEIGHT / 2, HEIGHT / 2)
        size = HEIGHT - 8
        left = groove.right() - size - 4 if is_right else groove.left() + 4
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(self._colours.on_accent if self.isChecked() else self._colours.muted))
        painter.drawEllipse(QRectF(left, groove.top() + 4, size, size))
        painter.end()
