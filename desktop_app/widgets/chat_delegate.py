"""How a line of the list of chats is drawn: a heading, or a title with a second line of muted text below it."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QColor, QFont, QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from pilotfish.desktop_app.themes import LIGHT, Colours

ID, SNIPPET, MESSAGE_ID, IS_WRITING = (Qt.ItemDataRole.UserRole + number for number in range(4))
PADDING = 8

Index = QModelIndex | QPersistentModelIndex


class ChatDelegate(QStyledItemDelegate):
    """Headings are the lines without an id."""

    colours: Colours = LIGHT

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        """One line, or two with a snippet."""
        num_lines = 2 if index.data(SNIPPET) else 1
        margin = 6 if index.data(ID) else 3
        return QSize(0, num_lines * option.fontMetrics.height() + 2 * margin + (6 if not index.data(ID) else 0))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draws the line."""
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_ground(painter, option, index)
        area = option.rect.adjusted(PADDING, 0, -PADDING, 0)
        if not index.data(ID):
            self._draw_heading(painter, area.adjusted(0, 6, 0, 0), index)
        elif index.data(SNIPPET):
            half = area.height() // 2
            self._draw_text(painter, area.adjusted(0, 4, 0, -half), index.data(), self.colours.text)
            self._draw_text(painter, area.adjusted(0, half, 0, -4), index.data(SNIPPET), self.colours.muted)
        else:
            text = f"{index.data()}  …" if index.data(IS_WRITING) else index.data()
            self._draw_text(painter, area, text, self.colours.text)
        painter.restore()

    def _draw_ground(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        state = option.state
        is_selected = bool(state & QStyle.StateFlag.State_Selected)
        if not index.data(ID) or not (is_selected or state & QStyle.StateFlag.State_MouseOver):
            return
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(self.colours.selection if is_selected else self.colours.raised))
        painter.drawRoundedRect(option.rect.adjusted(0, 1, 0, -1), 6, 6)
        if state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(QColor(self.colours.accent))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(option.rect.adjusted(1, 2, -1, -2), 5, 5)

    def _draw_heading(self, painter: QPainter, area: QRect, index: Index) -> None:
        font = QFont(painter.font())
        font.setPointSizeF(font.pointSizeF() * 0.85)
        font.setWeight(QFont.Weight.DemiBold)
        painter.setFont(font)
        self._draw_text(painter, area, index.data(), self.colours.muted)

    @staticmethod
    def _draw_text(painter: QPainter, area: QRect, text: str, ink: str) -> None:
        painter.setPen(QColor(ink))
        shown = painter.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, area.width())
        painter.drawText(area, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading, shown)
