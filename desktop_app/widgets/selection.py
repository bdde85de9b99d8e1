"""A selection with the pointer that goes over several views of a message."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPoint, QPointF
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QScrollArea, QWidget

from pilotfish.desktop_app.widgets.text_view import TextView

Siblings = Callable[[TextView], list[TextView]]


class Selection:
    """What is selected is so in the views of one message only."""

    def __init__(self, siblings: Siblings) -> None:
        """`siblings` are all views of the message of a view, itself among them, from the first to the last."""
        self._siblings = siblings
        self._owner: TextView | None = None

    def begin(self, view: TextView) -> None:
        """Forgets what was selected."""
        for each in self._all(self._owner):
            if each is not view:
                _select(each, None, None)
        self._owner = view

    def extend(self, view: TextView, position: QPointF) -> None:
        """Selects from where it began in `view` to a global position."""
        views = self._all(view)
        point = position.toPoint()
        start = views.index(view)
        stop = _index_at(views, point)
        _scroll_to(view, point)
        for index, each in enumerate(views):
            if index == start:
                continue
            if not min(start, stop) <= index <= max(start, stop):
                _select(each, None, None)
            elif index == stop:
                end = each.cursorForPosition(each.viewport().mapFromGlobal(point)).position()
                _select(each, 0 if stop > start else _end(each), end)
            else:
                _select(each, 0, _end(each))
        if stop != start:
            _select(view, view.textCursor().anchor(), _end(view) if stop > start else 0)

    def select_all(self, view: TextView) -> None:
        """Selects the whole message."""
        self.begin(view)
        for each in self._all(view):
            _select(each, 0, _end(each))

    def text(self, view: TextView) -> str:
        """What is selected in the message of `view`."""
        return "\n".join(text for each in self._all(view) if (text := each.selected_text()))

    def _all(self, view: TextView | None) -> list[TextView]:
        try:
            return self._siblings(view) if view is not None else []
        except RuntimeError:  # Qt has deleted it since
            return []


def _index_at(views: list[TextView], point: QPoint) -> int:
    """Which of the views is at the height of a global point, or the nearest one."""
    tops = [view.mapToGlobal(QPoint(0, 0)).y() for view in views]
    return max((index for index, top in enumerate(tops) if top <= point.y()), default=0)


def _select(view: TextView, anchor: int | None, position: int | None) -> None:
    cursor = view.textCursor()
    if anchor is None or position is None:
        if not cursor.hasSelection():
            return
        cursor.clearSelection()
    else:
        cursor.setPosition(anchor)
        cursor.setPosition(position, QTextCursor.MoveMode.KeepAnchor)
    view.setTextCursor(cursor)


def _end(view: TextView) -> int:
    return view.document().characterCount() - 1


def _scroll_to(view: QWidget, point: QPoint) -> None:
    parent = view.parentWidget()
    while parent is not None and not isinstance(parent, QScrollArea):
        parent = parent.parentWidget()
    if parent is not None and (content := parent.widget()) is not None:
        at = content.mapFromGlobal(point)
        parent.ensureVisible(at.x(), at.y(), 0, 8)
