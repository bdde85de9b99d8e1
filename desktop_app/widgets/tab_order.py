"""The order in which Tab goes through widgets: as they are seen, in whatever order they were made."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QWidget

ORDERS_TAB = "orders_tab"  # the property of a window that leads Tab through all its parts itself


def in_tab_order(root: QWidget) -> list[QWidget]:
    """All that takes the focus inside `root`, and `root` itself if it does, from the top down, as lines are read.

    What holds others comes before them, also if they are scrolled out of sight above it.
    """
    found = [each for each in (root, *root.findChildren(QWidget)) if takes_tab(each)]
    corners = {each: each.mapTo(root, QPoint(0, 0)) for each in found}
    middles = {each: corners[each].y() + each.height() // 2 for each in found}  # those side by side differ in height
    sign = -1 if root.layoutDirection() == Qt.LayoutDirection.RightToLeft else 1

    def place(widget: QWidget) -> tuple[int, int, int]:
        held = [corners[other].y() for other in found if widget.isAncestorOf(other)]
        top = min(corners[widget].y(), *held) if held else middles[widget]
        return top, -widget.height(), sign * corners[widget].x()

    return sorted(found, key=place)


def takes_tab(widget: QWidget) -> bool:
    """Whether Tab can come to it now."""
    takes = (widget.focusPolicy() & Qt.FocusPolicy.TabFocus) == Qt.FocusPolicy.TabFocus
    return takes and widget.isVisible() and widget.isEnabled() and widget.focusProxy() is None
