"""The list of chats by date, with a search as you type, renaming in place, and an undo for what was deleted."""

from __future__ import annotations

import time
from collections.abc import Iterable

from PySide6.QtCore import QPoint, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QMenu,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from pilotfish.desktop_app.chat_dates import heading
from pilotfish.desktop_app.search import SearchHit
from pilotfish.desktop_app.store import ChatEntry
from pilotfish.desktop_app.themes import LIGHT, Colours
from pilotfish.desktop_app.widgets.chat_delegate import ID, IS_WRITING, MESSAGE_ID, SNIPPET, ChatDelegate
from pilotfish.desktop_app.widgets.icons import icon
from pilotfish.desktop_app.widgets.shortcuts import tool_tip

SEARCH_AFTER_MS = 120


class ConversationList(QFrame):
    """Shows what it is told to; each wish of the user is a signal with the id of a chat.

    `opened` has the id of a chat and that of the message that was found, or None.
    """

    opened = Signal(str, object)
    renamed = Signal(str, str)
    delete_requested = Signal(str)
    export_requested = Signal(str)
    undo_requested = Signal()
    new_requested = Signal(bool)
    import_requested = Signal()
    shortcuts_requested = Signal()
    search_changed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("sidebar")
        self._colours = LIGHT
        self.search = QLineEdit(self, clearButtonEnabled=True)
        self.list = QListWidget(self)
        self._delegate = ChatDelegate(self.list)
        self._new = QPushButton(f" {self.tr('New chat')}", self)
        self._more = QToolButton(self)
        self._undo_bar = QFrame(self)
        self._undo_words = QLabel(self._undo_bar, textFormat=Qt.TextFormat.PlainText, wordWrap=True)
        self._undo = QPushButton(self.tr("Undo"), self._undo_bar)
        self._nothing = QLabel(self, alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        self._pause = QTimer(self, singleShot=True, interval=SEARCH_AFTER_MS)
        self._set_up()
        self._name_controls()
        self._lay_out()
        self._connect()

    @property
    def current_id(self) -> str:
        """The chat that is selected; empty if none is."""
        item = self.list.currentItem()
        return item.data(ID) or "" if item is not None and item.isSelected() else ""

    def show_chats(
        self, entries: Iterable[ChatEntry], current_id: str, writing_ids: frozenset[str] = frozenset()
    ) -> None:
        """All chats, under headings by date."""
        self.list.blockSignals(True)  # what is filled in here was not edited by anybody
        self.list.clear()
        now_s, last_heading = time.time(), ""
        for entry in entries:
            words = heading(entry.changed_s, now_s, self.tr)
            if words != last_heading:
                self._add_heading(words)
                last_heading = words
            item = self._add(entry.id, entry.title or self.tr("Untitled"))
            item.setData(IS_WRITING, entry.id in writing_ids)
            item.setFlags(item.flags() | Qt.ItemFlag.ItemIsEditable)
            if entry.id == current_id:
                self.list.setCurrentItem(item)
        self.list.blockSignals(False)
        self._say_nothing(self.tr("Your chats will be here."))

    def show_hits(self, hits: Iterable[SearchHit], current_id: str) -> None:
        """What a search has found."""
        self.list.blockSignals(True)
        self.list.clear()
        for hit in hits:
            item = self._add(hit.chat_id, hit.title or self.tr("Untitled"))
            item.setData(SNIPPET, hit.snippet if hit.message_id else "")
            item.setData(MESSAGE_ID, hit.message_id)
            if hit.chat_id == current_id and self.list.currentItem() is None:
                self.list.setCurrentItem(item)
        self.list.blockSignals(False)
        self._say_nothing(self.tr("Nothing was found."))

    def neighbour(self, step: int) -> str:
        """The id of the chat so many lines below (or above) the selected one; empty at the end."""
        ids = [found for row in range(self.list.count()) if (found := self.list.item(row).data(ID))]
        here = ids.index(self.current_id) if self.current_id in ids else (-1 if step > 0 else len(ids))
        return ids[here + step] if 0 <= here + step < len(ids) else ""

    def rename_current(self) -> None:
        """Begins to edit the title of the selected chat."""
        item = self.list.currentItem()
        if item is not None and item.flags() & Qt.ItemFlag.ItemIsEditable:
            self.list.setFocus()
            self.list.editItem(item)

    def offer_undo(self, title: str) -> None:
        """Says that a chat was deleted, with a button that brings it back; empty takes the offer back."""
        self._undo_bar.setVisible(bool(title))
        shown = self.fontMetrics().elidedText(title, Qt.TextElideMode.ElideRight, 120)
        self._undo_words.setText(self.tr("Deleted: {title}").format(title=shown))

    def set_colours(self, colours: Colours) -> None:
        """Another theme."""
        self._colours = self._delegate.colours = colours
        self._new.setIcon(icon("new", colours.text))
        self._more.setIcon(icon("more", colours.muted))
        self._find_icon.setIcon(icon("search", colours.muted))
        self.list.viewport().update()

    def _add(self, chat_id: str, title: str) -> QListWidgetItem:
        item = QListWidgetItem(title, self.list)
        item.setData(ID, chat_id)
        item.setToolTip(title)
        return item

    def _add_heading(self, words: str) -> None:
        item = QListWidgetItem(words, self.list)
        item.setFlags(Qt.ItemFlag.NoItemFlags)

    def _say_nothing(self, words: str) -> None:
        is_empty = self.list.count() == 0
        self._nothing.setText(words)
        self._nothing.setVisible(is_empty)

    def _set_up(self) -> None:
        self.list.setItemDelegate(self._delegate)
        self.list.setMouseTracking(True)
        self.list.setEditTriggers(QListWidget.EditTrigger.EditKeyPressed)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setVerticalScrollMode(QListWidget.ScrollMode.ScrollPerPixel)
        self.list.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self._find_icon = QAction(self)
        self.search.addAction(self._find_icon, QLineEdit.ActionPosition.LeadingPosition)
        self._more.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self._more.setIconSize(QSize(18, 18))
        self._nothing.setProperty("role", "muted")
        self._undo_bar.hide()

    def _name_controls(self) -> None:
        self.search.setPlaceholderText(self.tr("Search"))
        self.search.setAccessibleName(self.tr("Search all chats"))
        self.search.setToolTip(tool_tip(self.tr("Search all chats"), "search"))
        self.list.setAccessibleName(self.tr("Chats"))
        self.list.setToolTip(self.tr("Enter opens a chat, F2 renames it, Delete deletes it"))
        self._new.setAccessibleName(self.tr("New chat"))
        self._new.setToolTip(tool_tip(self.tr("New chat"), "new_chat"))
        self._more.setAccessibleName(self.tr("More about chats"))
        self._more.setToolTip(self.tr("Temporary chat, import, export, shortcuts (Space)"))
        self._undo.setAccessibleName(self.tr("Bring the deleted chat back"))
        self._undo.setToolTip(tool_tip(self.tr("Bring the deleted chat back"), "undo_delete"))

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.addWidget(self._new, 1)
        head.addWidget(self._more)
        undo = QHBoxLayout(self._undo_bar)
        undo.setContentsMargins(0, 0, 0, 0)
        undo.addWidget(self._undo_words, 1)
        undo.addWidget(self._undo)
        column = QVBoxLayout(self)
        column.setContentsMargins(10, 10, 10, 10)
        column.setSpacing(8)
        column.addLayout(head)
        column.addWidget(self.search)
        column.addWidget(self._nothing)
        column.addWidget(self.list, 1)
        column.addWidget(self._undo_bar)

    def _connect(self) -> None:
        self._new.clicked.connect(lambda: self.new_requested.emit(False))
        self._more.setMenu(self._menu())
        self._undo.clicked.connect(self.undo_requested)
        self.search.textChanged.connect(self._pause.start)
        self.search.returnPressed.connect(self._enter_hits)
        self._pause.timeout.connect(lambda: self.search_changed.emit(self.search.text()))
        self.list.itemClicked.connect(self._open)
        self.list.itemActivated.connect(self._open)
        self.list.itemChanged.connect(self._rename)
        self.list.customContextMenuRequested.connect(self._show_menu_at)
        delete = QShortcut(QKeySequence(QKeySequence.StandardKey.Delete), self.list)
        delete.setContext(Qt.ShortcutContext.WidgetShortcut)
        delete.activated.connect(self._delete)

    def _open(self, item: QListWidgetItem) -> None:
        if item.data(ID):
            self.opened.emit(item.data(ID), item.data(MESSAGE_ID))

    def _rename(self, item: QListWidgetItem) -> None:
        if item.data(ID) and item.text().strip():
            self.renamed.emit(item.data(ID), " ".join(item.text().split()))

    def _delete(self) -> None:
        if self.current_id:
            self.delete_requested.emit(self.current_id)

    def _enter_hits(self) -> None:
        """Enter in the search goes on to what was found."""
        self._pause.stop()
        self.search_changed.emit(self.search.text())
        if self.list.count():
            self.list.setFocus()
            if not self.current_id:
                self.list.setCurrentRow(next(row for row in range(self.list.count()) if self.list.item(row).data(ID)))

    def _show_menu_at(self, place: QPoint) -> None:
        item = self.list.itemAt(place)
        if item is not None and item.data(ID):
            self.list.setCurrentItem(item)
            self._chat_menu(item.data(ID)).popup(self.list.viewport().mapToGlobal(place))

    def _chat_menu(self, chat_id: str) -> QMenu:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(self.tr("Rename"), self.rename_current)
        menu.addAction(self.tr("Export …"), lambda: self.export_requested.emit(chat_id))
        menu.addAction(self.tr("Delete"), lambda: self.delete_requested.emit(chat_id))
        return menu

    def _menu(self) -> QMenu:
        menu = QMenu(self)
        menu.addAction(self.tr("New temporary chat"), lambda: self.new_requested.emit(True))
        menu.addSeparator()
        menu.addAction(self.tr("Import a chat …"), self.import_requested.emit)
        menu.addAction(self.tr("Export this chat …"), lambda: self.export_requested.emit(self.current_id))
        menu.addSeparator()
        menu.addAction(self.tr("Keyboard shortcuts"), self.shortcuts_requested.emit)
        return menu
