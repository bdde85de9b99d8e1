"""What scrolls in a list of messages, and the order in which Tab goes through it."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QApplication, QScrollArea, QWidget


class Canvas(QWidget):
    """Tab goes from one thing to the next as they are seen, in whatever order they were made."""

    def __init__(self, area: QScrollArea) -> None:
        """`area` is the one that it is to be scrolled in."""
        super().__init__()
        self._area = area

    def focusNextPrevChild(self, is_next: bool) -> bool:
        """To the next thing in it, or out of it behind the last one."""
        current = QApplication.focusWidget()
        chain = sorted((each for each in self.findChildren(QWidget) if _takes_tab(each)), key=self._place)
        if current not in chain:
            return super().focusNextPrevChild(is_next)
        index = chain.index(current) + (1 if is_next else -1)
        following = chain[index] if 0 <= index < len(chain) else self._outside(is_next)
        if following is None:
            return False
        following.setFocus(Qt.FocusReason.TabFocusReason if is_next else Qt.FocusReason.BacktabFocusReason)
        if self.isAncestorOf(following):
            self._area.ensureWidgetVisible(following)
        return True

    def _place(self, widget: QWidget) -> tuple[int, int, int]:
        """From the top down; what holds others before them; of those side by side the left one first."""
        corner = widget.mapTo(self, QPoint(0, 0))
        return corner.y(), -widget.height(), corner.x()

    def _outside(self, is_next: bool) -> QWidget | None:
        """What takes the focus before or after the whole list."""
        widget = self.nextInFocusChain() if is_next else self.previousInFocusChain()
        while widget is not None and widget is not self:
            if _takes_tab(widget) and not self.isAncestorOf(widget) and widget.window() is self.window():
                return widget
            widget = widget.nextInFocusChain() if is_next else widget.previousInFocusChain()
        return None


def _takes_tab(widget: QWidget) -> bool:
    takes = (widget.focusPolicy() & Qt.FocusPolicy.TabFocus) == Qt.FocusPolicy.TabFocus
    return takes and widget.isVisible() and widget.isEnabled() and widget.focusProxy() is None
