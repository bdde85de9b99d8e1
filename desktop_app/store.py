"""All chats in one SQLite file. Use a store only in the thread that opened it.

A temporary chat is simply never given to a store. Times are in seconds since the epoch.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilotfish.desktop_app.conversation import Conversation, Message
from pilotfish.desktop_app.database import open_database, storing, transaction
from pilotfish.desktop_app.errors import StoreError
from pilotfish.desktop_app.migrations import MIGRATIONS
from pilotfish.desktop_app.records import COLUMNS, messages_of, row_of, searchable_text


@dataclass(frozen=True, slots=True)
class ChatEntry:
    """A line of the list of chats."""

    id: str
    title: str
    changed_s: float


class Store:
    """An open database of chats; a context manager. `notice` is for the user if it is not empty.

    Every method raises `StoreError` if the disk is full, the file locked, or the like; then nothing has changed.
    """

    def __init__(self, path: Path, migrations: Sequence[str] = MIGRATIONS) -> None:
        """Opens `path`, or makes it. Replies that were being written when the program ended are now `interrupted`."""
        self.path = path
        self._connection, self.notice = open_database(path, migrations)
        with self._changing():
            self._interrupt_streaming()

    def chats(self, *, deleted: bool = False) -> tuple[ChatEntry, ...]:
        """All chats, the last changed first; or those that were deleted and not yet purged."""
        condition = "NOT NULL" if deleted else "NULL"
        query = f"SELECT id, title, changed_s FROM chats WHERE deleted_s IS {condition} ORDER BY changed_s DESC, id"  # noqa: S608 - no input
        with storing(self.path):
            return tuple(ChatEntry(*row) for row in self._connection.execute(query))

    def load(self, chat_id: str) -> Conversation:
        """A chat, deleted or not. A message that cannot be read is shown as such, with the state `unreadable`."""
        with storing(self.path):
            row = self._row("SELECT created_s, title, system_prompt FROM chats WHERE id = ?", chat_id)
            if row is None:
                raise StoreError(f"there is no chat {chat_id!r}; it was deleted for good")
            query = f"SELECT {COLUMNS}, is_chosen FROM messages WHERE chat_id = ? ORDER BY number"  # noqa: S608 - no input
            rows = self._connection.execute(query, (chat_id,)).fetchall()
        messages = messages_of(row[:-1] for row in rows)
        chosen = tuple(message.id for message, row in zip(messages, rows, strict=True) if row[-1])
        created_s, title, system_prompt = row
        return Conversation(chat_id, created_s, title, system_prompt, messages, chosen)

    def add(self, conversation: Conversation, now_s: float) -> None:
        """A new chat with all its messages, or none of it; `StoreError` if one of that id is there."""
        values = (conversation.id, conversation.title, conversation.system_prompt, conversation.created_s, now_s)
        with self._changing():
            if self._row("SELECT 1 FROM chats WHERE id = ?", conversation.id):
                raise StoreError(f"there is a chat {conversation.id!r} already")
            self._connection.execute(
                "INSERT INTO chats (id, title, system_prompt, created_s, changed_s) VALUES (?, ?, ?, ?, ?)", values
            )
            for message in conversation.messages:
                self._save(conversation.id, message)
            self._save_choices(conversation)

    def save_message(self, conversation: Conversation, message_id: str, now_s: float) -> None:
        """One message of a chat that is here, new or changed, and which branches are shown."""
        with self._changing():
            self._save(conversation.id, conversation.message(message_id))
            self._save_choices(conversation)
            self._connection.execute("UPDATE chats SET changed_s = ? WHERE id = ?", (now_s, conversation.id))

    def save_settings(self, conversation: Conversation) -> None:
        """The title, the system prompt and the shown branches of a chat that is here."""
        values = (conversation.title, conversation.system_prompt, conversation.id)
        with self._changing():
            self._connection.execute("UPDATE chats SET title = ?, system_prompt = ? WHERE id = ?", values)
            self._save_choices(conversation)

    def delete(self, chat_id: str, now_s: float) -> None:
        """Hides a chat from list and search; `restore` undoes it, until `purge`."""
        with self._changing():
            self._connection.execute("UPDATE chats SET deleted_s = ? WHERE id = ?", (now_s, chat_id))

    def restore(self, chat_id: str) -> None:
        """Undoes `delete`."""
        with self._changing():
            self._connection.execute("UPDATE chats SET deleted_s = NULL WHERE id = ?", (chat_id,))

    def purge(self, before_s: float) -> int:
        """Removes for good what was deleted before that time; the number of chats."""
        with self._changing():
            return self._connection.execute("DELETE FROM chats WHERE deleted_s < ?", (before_s,)).rowcount

    def close(self) -> None:
        """Closes the file; idempotent."""
        self._connection.close()

    @property
    def connection(self) -> sqlite3.Connection:
        """For the search, which reads only."""
        return self._connection

    def _save(self, chat_id: str, message: Message) -> None:
        query = (
            f"INSERT INTO messages (chat_id, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "  # noqa: S608 - no input
            "ON CONFLICT (id) DO UPDATE SET "
            "text = excluded.text, state = excluded.state, details = excluded.details "
            "WHERE chat_id = excluded.chat_id RETURNING number"
        )
        numbers = self._connection.execute(query, (chat_id, *row_of(message))).fetchall()
        if not numbers:
            raise StoreError(f"message {message.id!r} is in another chat already")
        ((number,),) = numbers
        if message.state != "streaming":  # a long reply is not indexed anew each second
            self._index(number, searchable_text(message))

    def _index(self, number: int, text: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO texts (rowid, text) VALUES (?, ?)", (number, text))

    def _save_choices(self, conversation: Conversation) -> None:
        chosen = "(id IN (SELECT value FROM json_each(?)))"
        query = f"UPDATE messages SET is_chosen = {chosen} WHERE chat_id = ? AND is_chosen <> {chosen}"  # noqa: S608 - no input
        ids = json.dumps(conversation.chosen_ids)
        self._connection.execute(query, (ids, conversation.id, ids))

    def _interrupt_streaming(self) -> None:
        rows = self._connection.execute("SELECT number, text FROM messages WHERE state = 'streaming'").fetchall()
        for number, text in rows:
            self._connection.execute("UPDATE messages SET state = 'interrupted' WHERE number = ?", (number,))
            self._index(number, str(text))

    def _row(self, query: str, *values: object) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._connection.execute(query, values).fetchone()
        return row

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with storing(self.path), transaction(self._connection):
            yield

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
