"""Full-text search over all chats that are not deleted: every word must occur, in any case, also inside other words."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.desktop_app.database import storing
from pilotfish.desktop_app.store import Store

TRIGRAM = 3
SNIPPET_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message that has all words, or a chat whose title has them (`message_id` None). `snippet` is one line."""

    chat_id: str
    title: str
    message_id: str | None
    snippet: str


def search(store: Store, text: str, limit: int = 100) -> tuple[SearchHit, ...]:
    """What holds all the words of `text`: titles first, then messages, the newest first; nothing for no words."""
    words = text.split()
    if not words:
        return ()
    with storing(store.path):
        hits = [SearchHit(chat_id, title, None, title) for chat_id, title in _titles(store, words, limit)]
        for chat_id, title, message_id, found in _messages(store, words, limit - len(hits)):
            hits.append(SearchHit(chat_id, title, message_id, snippet(found, words)))
    return tuple(hits)


def snippet(text: str, words: list[str]) -> str:
    """The part of `text` around the first word that is found in it, on one line."""
    folded = text.casefold()
    places = [place for word in words if (place := folded.find(word.casefold())) >= 0]
    start = max(min(places, default=0) - SNIPPET_CHARACTERS // 4, 0)
    part = " ".join(text[start : start + SNIPPET_CHARACTERS].split())
    return f"{'…' if start else ''}{part}{'…' if start + SNIPPET_CHARACTERS < len(text) else ''}"


def _titles(store: Store, words: list[str], limit: int) -> list[tuple[str, str]]:
    conditions = " AND ".join(["title LIKE ? ESCAPE '\\'"] * len(words))
    query = f"SELECT id, title FROM chats WHERE deleted_s IS NULL AND {conditions} ORDER BY changed_s DESC LIMIT ?"  # noqa: S608 - marks only
    return store.connection.execute(query, (*map(_like, words), limit)).fetchall()


def _messages(store: Store, words: list[str], limit: int) -> list[tuple[str, str, str, str]]:
    # The index knows no parts shorter than three characters; many Chinese words have two.
    long, short = [w for w in words if len(w) >= TRIGRAM], [w for w in words if len(w) < TRIGRAM]
    conditions = ["texts MATCH ?"] * bool(long) + ["texts.text LIKE ? ESCAPE '\\'"] * len(short)
    match = [" ".join('"' + word.replace('"', '""') + '"' for word in long)] if long else []
    query = (
        "SELECT chats.id, chats.title, messages.id, texts.text FROM texts "  # noqa: S608 - marks only
        "JOIN messages ON messages.number = texts.rowid JOIN chats ON chats.id = messages.chat_id "
        f"WHERE chats.deleted_s IS NULL AND {' AND '.join(conditions)} ORDER BY messages.created_s DESC LIMIT ?"
    )
    return store.connection.execute(query, (*match, *map(_like, short), max(limit, 0))).fetchall()


def _like(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"
