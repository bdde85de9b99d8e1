"""The order in which Tab goes through widgets: as they are seen, in whatever order they were made."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QWidget


def in_tab_order(root: QWidget) -> list[QWidget]:
    """All that takes the focus inside `root`, and `root` itself if it does, from the top down, as lines are read."""
    found = [each for each in (root, *root.findChildren(QWidget)) if takes_tab(each)]
    holders = {each for each in found if any(each.isAncestorOf(other) for other in found)}
    return sorted(found, key=lambda widget: _place(root, widget, holds_others=widget in holders))


def takes_tab(widget: QWidget) -> bool:
    """Whether Tab can come to it now."""
    takes = (widget.focusPolicy() & Qt.FocusPolicy.TabFocus) == Qt.FocusPolicy.TabFocus
    return takes and widget.isVisible() and widget.isEnabled() and widget.focusProxy() is None


def _place(root: QWidget, widget: QWidget, *, holds_others: bool) -> tuple[int, int, int]:
    """What holds others comes before them; those side by side may differ in height."""
    corner = widget.mapTo(root, QPoint(0, 0))
    top = corner.y() if holds_others else corner.y() + widget.height() // 2
    is_mirrored = root.layoutDirection() == Qt.LayoutDirection.RightToLeft
    return top, -widget.height(), -corner.x() if is_mirrored else corner.x()
