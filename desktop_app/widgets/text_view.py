"""A text to read: as high as it needs to be, with links that open nothing by themselves, and nothing read from disk."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from PySide6.QtCore import QByteArray, QPointF, QRectF, Qt, QUrl, Signal
from PySide6.QtGui import (
    QBrush,
    QColor,
    QContextMenuEvent,
    QFocusEvent,
    QGuiApplication,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QTextCursor,
    QTextFormat,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QMenu, QTextBrowser, QWidget

from pilotfish.desktop_app.widgets.look import Look
from pilotfish.desktop_app.widgets.visible_text import visible_text

SCHEMES = ("http", "https", "mailto")
_BY_MOUSE = Qt.TextInteractionFlag.TextBrowserInteraction
_PAGES = (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown)
_LINES = (Qt.Key.Key_Up, Qt.Key.Key_Down)


class Selecting(Protocol):
    """What a view tells of the pointer, so that a selection can go over several views."""

    def begin(self, view: TextView) -> None:
        """The button was pressed in `view`."""

    def extend(self, view: TextView, position: QPointF) -> None:
        """It was moved to a global position and is still down."""

    def select_all(self, view: TextView) -> None:
        """All that belongs together with `view` is to be selected."""

    def text(self, view: TextView) -> str:
        """What is selected in `view` and in those that belong to it."""


class TextView(QTextBrowser):
    """Its width is given, its height follows; `link_opened` has the address of a link that was clicked."""

    link_opened = Signal(str)

    def __init__(self, look: Look, selecting: Selecting, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.look = look
        self.has_quotes = False
        self._selecting = selecting
        self.setProperty("role", "text")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setLineWrapMode(QTextBrowser.LineWrapMode.FixedPixelWidth)
        self.document().setDocumentMargin(0)
        self.setFont(look.font)  # not that of the document, which Qt replaces by this one
        self.document().setIndentWidth(look.em * 1.3)
        self.setAccessibleName(self.tr("Text of the message"))
        self.anchorClicked.connect(self._open)
        self.highlighted.connect(lambda url: self.setToolTip(url.toString(QUrl.ComponentFormattingOption.FullyEncoded)))

    def lay_out(self, width: int) -> int:
        """Breaks the lines at `width` pixels and returns the height."""
        if self.lineWrapColumnOrWidth() != width:
            self.setLineWrapColumnOrWidth(width)
        return math.ceil(self.document().size().height())

    def enter(self) -> None:
        """Takes the focus, and the keyboard to select with until it goes elsewhere."""
        self.setTextInteractionFlags(_BY_MOUSE | Qt.TextInteractionFlag.TextSelectableByKeyboard)
        if not self.textCursor().hasSelection():
            self.moveCursor(QTextCursor.MoveOperation.Start)
        self.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def keep_selection(self, change: Callable[[], None]) -> None:
        """Changes the document; what is selected stays so."""
        cursor = self.textCursor()
        anchor, position = cursor.anchor(), cursor.position()
        change()
        if anchor != position:
            last = self.document().characterCount() - 1
            cursor = self.textCursor()
            cursor.setPosition(min(anchor, last))
            cursor.setPosition(min(position, last), QTextCursor.MoveMode.KeepAnchor)
            self.setTextCursor(cursor)

    def selected_text(self) -> str:
        """What is selected, as it is seen."""
        return visible_text(self.textCursor())

    def loadResource(self, kind: int, name: QUrl | str) -> object:  # noqa: ARG002
        """Nothing, from anywhere: a reply must not read files or tell others that it is read.

        Empty data, since Qt reads the file itself if it is given none.
        """
        return QByteArray()

    def copy_selection(self) -> None:
        """Puts plain text of all that is selected around here, also in other views, on the clipboard.

        Not by `createMimeDataFromSelection`: what Python makes there outlives Qt on the clipboard, and the program
        then ends in a crash.
        """
        QGuiApplication.clipboard().setText(self._selecting.text(self))

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """As the keys."""
        menu = QMenu(self)
        menu.addAction(self.tr("Copy")).triggered.connect(self.copy_selection)
        menu.addAction(self.tr("Select all")).triggered.connect(lambda: self._selecting.select_all(self))
        menu.exec(event.globalPos())
        menu.deleteLater()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """A selection begins here."""
        if event.button() == Qt.MouseButton.LeftButton:
            self._selecting.begin(self)
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """A selection may leave this view."""
        super().mouseMoveEvent(event)
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._selecting.extend(self, event.globalPosition())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Everything is the whole message, not this piece of it; what is around scrolls."""
        is_in_text = bool(self.textInteractionFlags() & Qt.TextInteractionFlag.TextSelectableByKeyboard)
        if event.matches(QKeySequence.StandardKey.SelectAll):
            self._selecting.select_all(self)
        elif event.matches(QKeySequence.StandardKey.Copy):
            self.copy_selection()
        elif event.key() in _PAGES or (event.key() in _LINES and not is_in_text):
            event.ignore()
        else:
            super().keyPressEvent(event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """The keyboard selects nothing any more."""
        if event.reason() != Qt.FocusReason.PopupFocusReason:
            self.setTextInteractionFlags(_BY_MOUSE)
        super().focusOutEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Whatever is around scrolls."""
        event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:
        """With bars beside quotes."""
        if self.has_quotes:
            self._paint_bars()
        super().paintEvent(event)

    def _paint_bars(self) -> None:
        painter = QPainter(self.viewport())
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QBrush(QColor(self.look.colours.border)))
        layout, block = self.document().documentLayout(), self.document().begin()
        while block.isValid():
            levels = block.blockFormat().intProperty(QTextFormat.Property.BlockQuoteLevel)
            if levels:
                rect = layout.blockBoundingRect(block)
                for level in range(min(levels, QUOTE_LEVELS)):
                    painter.drawRect(QRectF(level * self.look.em, rect.top(), 3, rect.height()))
            block = block.next()
        painter.end()

    def _open(self, url: QUrl) -> None:
        if url.scheme().lower() in SCHEMES:
            self.link_opened.emit(url.toString(QUrl.ComponentFormattingOption.FullyEncoded))


QUOTE_LEVELS = 8
"""Deeper quotes are indented no more."""
