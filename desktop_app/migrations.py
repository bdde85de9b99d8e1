"""The tables of the chat database. Migration n brings it from version n - 1 to n; released ones never change.

SQLite's `user_version` holds the version; 0 is an empty file.
"""

from __future__ import annotations

MIGRATIONS = (
    """
    CREATE TABLE chats (
        id TEXT PRIMARY KEY,
        title TEXT NOT NULL,
        system_prompt TEXT NOT NULL,
        created_s REAL NOT NULL,
        changed_s REAL NOT NULL,
        deleted_s REAL
    );
    CREATE TABLE messages (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        chat_id TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
        parent_id TEXT REFERENCES messages (id) ON DELETE CASCADE,
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        created_s REAL NOT NULL,
        state TEXT NOT NULL,
        is_chosen INTEGER NOT NULL DEFAULT 0,
        details TEXT NOT NULL
    );
    CREATE INDEX messages_by_chat ON messages (chat_id, number);
    CREATE INDEX messages_by_parent ON messages (parent_id);
    CREATE INDEX messages_by_state ON messages (state) WHERE state = 'streaming';
    -- Trigrams find parts of words, and so words of languages that put no spaces between them.
    CREATE VIRTUAL TABLE texts USING fts5(text, tokenize = 'trigram');
    CREATE TRIGGER texts_of_deleted AFTER DELETE ON messages BEGIN
        DELETE FROM texts WHERE rowid = old.number;
    END;
    """,
)
