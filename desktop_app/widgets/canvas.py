"""What scrolls in a list of messages, and the order in which Tab goes through it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QScrollArea, QWidget

from pilotfish.desktop_app.widgets.tab_order import ORDERS_TAB, in_tab_order, takes_tab


class Canvas(QWidget):
    """Tab goes from one thing to the next as they are seen, in whatever order they were made."""

    def __init__(self, area: QScrollArea) -> None:
        """`area` is the one that it is to be scrolled in."""
        super().__init__()
        self._area = area

    def focusNextPrevChild(self, is_next: bool) -> bool:
        """To the next thing in it, or out of it behind the last one."""
        current = QApplication.focusWidget()
        chain = in_tab_order(self)
        if current not in chain or self.window().property(ORDERS_TAB):
            return super().focusNextPrevChild(is_next)
        index = chain.index(current) + (1 if is_next else -1)
        following = chain[index] if 0 <= index < len(chain) else self._outside(is_next)
        if following is None:
            return False
        following.setFocus(Qt.FocusReason.TabFocusReason if is_next else Qt.FocusReason.BacktabFocusReason)
        if self.isAncestorOf(following):
            self._area.ensureWidgetVisible(following)
        return True

    def _outside(self, is_next: bool) -> QWidget | None:
        """What takes the focus before or after the whole list."""
        widget = self.nextInFocusChain() if is_next else self.previousInFocusChain()
        while widget is not None and widget is not self:
            if takes_tab(widget) and not self.isAncestorOf(widget) and widget.window() is self.window():
                return widget
            widget = widget.nextInFocusChain() if is_next else widget.previousInFocusChain()
        return None
