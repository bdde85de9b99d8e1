"""The chats in the window: the list, the search, opening, renaming, deleting, and files."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QFileDialog

from pilotfish.desktop_app.desk import Desk
from pilotfish.desktop_app.drafts import NEW_CHAT, Drafts
from pilotfish.desktop_app.exchange import export_chat, import_chat
from pilotfish.desktop_app.search import search
from pilotfish.desktop_app.widgets.main_window import MainWindow
from pilotfish.desktop_app.widgets.telling import telling

_NOT_IN_NAMES = re.compile(r'[\\/:*?"<>|\0-\x1f]+')


class ChatControl(QObject):
    """`shown` is called when another chat is shown."""

    def __init__(
        self, window: MainWindow, desk: Desk, drafts: Drafts, shown: Callable[[], None], parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._window, self._desk, self._drafts, self._shown = window, desk, drafts, shown
        self._deleted: list[tuple[str, str]] = []  # (id, title), the last one last
        sidebar = window.sidebar
        sidebar.opened.connect(self.open)
        sidebar.renamed.connect(self.rename)
        sidebar.delete_requested.connect(self.delete)
        sidebar.undo_requested.connect(self.undo_delete)
        sidebar.new_requested.connect(self.new)
        sidebar.import_requested.connect(self.import_file)
        sidebar.export_requested.connect(self.export)
        sidebar.search_changed.connect(lambda text: self.refresh_list())

    def new(self, is_temporary: bool = False) -> None:
        """An empty chat."""
        self.keep_draft()
        self._desk.new_chat(is_temporary=is_temporary)
        self._changed()
        self._window.composer.setFocus()

    def open_draft(self) -> None:
        """What is shown at launch: an empty chat, with the message that was begun there."""
        self._changed()
        self._window.composer.setFocus()

    def open(self, chat_id: str, message_id: object = None) -> None:
        """Shows a chat, and in it the branch with a message that was found."""
        self.keep_draft()
        with telling(self._window.banner):
            self._desk.open_chat(chat_id)
            if isinstance(message_id, str) and not self._desk.session.is_busy:
                self._desk.session.choose(message_id)
            self._changed()
            if isinstance(message_id, str):
                self._window.transcript.scroll_to(message_id)

    def step(self, number: int) -> None:
        """The chat so many lines below in the list."""
        if chat_id := self._window.sidebar.neighbour(number):
            self.open(chat_id)

    def rename(self, chat_id: str, title: str) -> None:
        """Gives a chat another title."""
        with telling(self._window.banner):
            self._desk.rename(chat_id, title)
        self.refresh_list()

    def delete(self, chat_id: str) -> None:
        """Deletes a chat; the list offers to undo it."""
        with telling(self._window.banner):
            title = self._desk.conversation(chat_id).title or self.tr("Untitled")
            is_shown = chat_id == self._desk.session.conversation.id
            self._desk.delete(chat_id)
            self._deleted.append((chat_id, title))
            self._window.sidebar.offer_undo(title)
            if is_shown:
                self._changed()
        self.refresh_list()

    def delete_shown(self) -> None:
        """Deletes the chat that is shown, if there is anything in it."""
        if self._desk.session.conversation.messages:
            self.delete(self._desk.session.conversation.id)

    def undo_delete(self) -> None:
        """Brings the chat back that was deleted last."""
        if not self._deleted:
            return
        self.keep_draft()
        chat_id, _ = self._deleted.pop()
        with telling(self._window.banner):
            self._desk.restore(chat_id)
            self._changed()
        self._window.sidebar.offer_undo(self._deleted[-1][1] if self._deleted else "")

    def export(self, chat_id: str = "") -> None:
        """Asks for a file and writes a chat into it; the one that is shown if none is named."""
        conversation = self._desk.conversation(chat_id or self._desk.session.conversation.id)
        name = " ".join(_NOT_IN_NAMES.sub(" ", conversation.title).split()) or self.tr("chat")
        kinds = self.tr("Markdown, what is shown (*.md);;JSON, with all branches (*.json)")
        path, kind = QFileDialog.getSaveFileName(self._window, self.tr("Export the chat"), f"{name}.md", kinds)
        if path:
            chosen = Path(path)
            with telling(self._window.banner):
                export_chat(conversation, chosen if chosen.suffix else chosen.with_suffix(_suffix(kind)))

    def import_file(self) -> None:
        """Asks for a file and shows the chat in it."""
        kinds = self.tr("Chats (*.md *.json);;All files (*)")
        path, _ = QFileDialog.getOpenFileName(self._window, self.tr("Import a chat"), "", kinds)
        if path:
            with telling(self._window.banner):
                self.keep_draft()
                self._desk.import_chat(import_chat(Path(path), time.time()))
                self._changed()

    def go_to_search(self) -> None:
        """The search gets the focus."""
        self._window.sidebar.show()
        self._window.sidebar.search.setFocus()
        self._window.sidebar.search.selectAll()

    def leave_search(self) -> bool:
        """Back to all chats, if a search is shown and has the focus; whether it was."""
        search_field = self._window.sidebar.search
        if not (search_field.text() and (search_field.hasFocus() or self._window.sidebar.list.hasFocus())):
            return False
        search_field.clear()
        self._window.composer.setFocus()
        return True

    def keep_draft(self) -> None:
        """Remembers what was begun in the chat that is shown."""
        self._drafts.put(self._draft_key, self._window.composer.draft, is_temporary=self._desk.is_temporary)

    def refresh_list(self) -> None:
        """All chats, or what the search finds."""
        sidebar, current = self._window.sidebar, self._desk.session.conversation.id
        with telling(self._window.banner):
            words = sidebar.search.text()
            if words.strip() and self._desk.store is not None:
                sidebar.show_hits(search(self._desk.store, words), current)
            else:
                sidebar.show_chats(self._desk.chats(), current, self._desk.writing_ids)
        self._window.header.show_title(self._desk.session.conversation.title, self._desk.is_temporary)

    @property
    def _draft_key(self) -> str:
        conversation = self._desk.session.conversation
        return conversation.id if conversation.messages or self._desk.is_temporary else NEW_CHAT

    def _changed(self) -> None:
        self._window.composer.set_draft(self._drafts.get(self._draft_key))
        self._shown()
        self.refresh_list()


def _suffix(kind: str) -> str:
    return ".json" if "*.json" in kind else ".md"
