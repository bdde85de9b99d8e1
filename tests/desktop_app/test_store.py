from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.desktop_app.conversation import Attachment, Conversation, Message, ReplyStats, Span
from pilotfish.desktop_app.database import backup_path
from pilotfish.desktop_app.errors import NewerDatabaseError, StoreError
from pilotfish.desktop_app.migrations import MIGRATIONS
from pilotfish.desktop_app.search import search
from pilotfish.desktop_app.store import Store

STATS = ReplyStats("pair", 7, 40.0, 0.2, 0.71, 1.8, "on", "end")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.db"


def a_chat(chat_id: str = "c", question: str = "Why is the sky blue?") -> Conversation:
    reply = Message(
        f"{chat_id}-a", f"{chat_id}-q", "assistant", "Rayleigh 散乱 🦈", 2.0,
        spans=(Span("model", 9), Span("target", 4)), stats=STATS,
    )  # fmt: skip
    asked = Message(f"{chat_id}-q", None, "user", question, 1.0, attachments=(Attachment("a.py", "print(1)"),))
    return Conversation(chat_id, 1.0, "Sky", "be brief").with_message(asked).with_message(reply)


def raw(path: Path, query: str, *values: object) -> list:
    connection = sqlite3.connect(path)
    with connection:
        rows = connection.execute(query, values).fetchall()
    connection.close()
    return rows


def test_a_chat_comes_back_as_it_was(path: Path):
    chat = a_chat().with_message(Message("c-b", "c-q", "assistant", "other", 3.0)).choosing("c-a")
    with Store(path) as store:
        store.add(chat, 5.0)
        assert store.notice == ""
    with Store(path) as store:
        assert store.load("c") == chat
        assert [(entry.id, entry.title, entry.changed_s) for entry in store.chats()] == [("c", "Sky", 5.0)]


def test_the_database_is_in_wal_mode_with_foreign_keys(path: Path):
    with Store(path) as store:
        assert store.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store.connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
        orphan = replace(a_chat(), id="nowhere")
        with pytest.raises(StoreError):
            store.save_message(orphan, "c-q", 1.0)


def test_a_failed_add_leaves_nothing(path: Path):
    with Store(path) as store:
        store.add(a_chat("c"), 1.0)
        clash = replace(a_chat("d"), messages=a_chat("c").messages, chosen_ids=())
        with pytest.raises(StoreError):
            store.add(clash, 2.0)
        with pytest.raises(StoreError, match="already"):
            store.add(a_chat("c"), 2.0)
        assert [entry.id for entry in store.chats()] == ["c"]
        assert store.load("c") == a_chat("c")


def test_choices_titles_and_replies_are_saved(path: Path):
    with Store(path) as store:
        chat = a_chat()
        store.add(chat, 1.0)
        chat = chat.with_message(Message("c-b", "c-q", "assistant", "", 3.0, "streaming"))
        store.save_message(chat, "c-b", 3.0)
        chat = chat.with_replaced(replace(chat.message("c-b"), text="done", state="complete")).choosing("c-a")
        store.save_message(chat, "c-b", 4.0)
        assert store.load("c") == chat
        chat = replace(chat.choosing("c-b"), title="New", system_prompt="")
        store.save_settings(chat)
        assert store.load("c") == chat


KILLED = """
import os, signal, sys
from pathlib import Path
from pilotfish.desktop_app.conversation import Conversation, Message
from pilotfish.desktop_app.store import Store
store = Store(Path(sys.argv[1]))
chat = Conversation("c", 1.0).with_message(Message("q", None, "user", "question", 1.0))
store.add(chat, 1.0)
chat = chat.with_message(Message("a", "q", "assistant", "as far as this", 1.0, "streaming"))
store.save_message(chat, "a", 2.0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_what_was_checkpointed_before_a_kill_is_there_and_marked_interrupted(path: Path):
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)]).returncode == -9
    with Store(path) as store:
        question, reply = store.load("c").path
        assert (question.text, question.state) == ("question", "complete")
        assert (reply.text, reply.state) == ("as far as this", "interrupted")
        assert [hit.message_id for hit in search(store, "far")] == ["a"]


def test_delete_undo_and_purge(path: Path):
    with Store(path) as store:
        for chat_id in "cd":
            store.add(a_chat(chat_id), 1.0)
        store.delete("c", 10.0)
        assert [entry.id for entry in store.chats()] == ["d"]
        assert [entry.id for entry in store.chats(deleted=True)] == ["c"]
        assert {hit.chat_id for hit in search(store, "Rayleigh")} == {"d"}
        store.restore("c")
        assert store.load("c") == a_chat("c")
        assert {entry.id for entry in store.chats()} == {"c", "d"}
        store.delete("c", 10.0)
        assert store.purge(10.0) == 0
        assert store.purge(11.0) == 1
        with pytest.raises(StoreError, match="for good"):
            store.load("c")
        assert store.connection.execute("SELECT count(*) FROM texts").fetchone() == (2,)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("sky", ["c", "c-q"]),
        ("BLUE why", ["c-q"]),
        ("ayleig", ["c-a", "d-a"]),
        ("散乱", ["c-a", "d-a"]),
        ("青い", ["d-q"]),
        ("空は青い", ["d-q"]),
        ("rayleigh 散", ["c-a", "d-a"]),
        ("print(1)", ["c-q", "d-q"]),
        ("a.py", ["c-q", "d-q"]),
        ("100%", ["d-q"]),
        ("0%", ["d-q"]),
        ("%%", []),
        ('"', []),
        ('x" OR text:*', []),
        ("NEAR(", []),
        ("  ", []),
    ],
)
def test_search(path: Path, text: str, found: list[str]):
    with Store(path) as store:
        store.add(a_chat("c"), 1.0)
        store.add(replace(a_chat("d", "空は青い 100%"), title="空"), 1.0)
        assert sorted(hit.message_id or hit.chat_id for hit in search(store, text)) == found


def test_a_snippet_shows_the_place(path: Path):
    with Store(path) as store:
        store.add(a_chat("c", "x " * 500 + "the needle\nhere" + " y" * 500), 1.0)
        (hit,) = search(store, "Needle")
        assert "the needle here" in hit.snippet
        assert hit.snippet.startswith("…")
        assert hit.snippet.endswith("…")
        assert len(hit.snippet) < 130


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ("UPDATE messages SET details = '{broken' WHERE id = 'c-a'", "c-a"),
        ("UPDATE messages SET details = '{\"spans\": 3}' WHERE id = 'c-q'", "c-q"),
        ("UPDATE messages SET details = '{\"spans\": \"model:x\"}' WHERE id = 'c-q'", "c-q"),
        ("UPDATE messages SET role = 'robot' WHERE id = 'c-a'", "c-a"),
        ("UPDATE messages SET text = x'ff00' WHERE id = 'c-a'", "c-a"),
        ("UPDATE messages SET created_s = 'noon' WHERE id = 'c-q'", "c-q"),
        ("UPDATE messages SET parent_id = 'gone' WHERE id = 'c-a'", "c-a"),
        ("UPDATE messages SET id = x'00' WHERE id = 'c-a'", "damaged-1"),
    ],
)
def test_a_chat_with_one_bad_record_still_opens(path: Path, change: str, lost: str):
    with Store(path) as store:
        store.add(a_chat(), 1.0)
    raw(path, change)
    with Store(path) as store:
        assert store.notice == ""
        states = {message.id: message for message in store.load("c").messages}
        assert len(states) == 2
        assert states.pop(lost).state == "unreadable"
        (other,) = states.values()
        assert other.state == "complete"


@pytest.mark.parametrize("damage", ["garbage", "pages", "empty header"])
def test_a_damaged_database_is_moved_aside_and_a_new_one_begun(path: Path, damage: str):
    with Store(path) as store:
        for number in range(50):
            store.add(a_chat(f"c{number}", "question " * 200), 1.0)
    content = bytearray(path.read_bytes())
    if damage == "garbage":
        content = bytearray(b"this is no database at all" * 100)
    elif damage == "pages":
        content[4096 : len(content) // 2] = b"\xa5" * (len(content) // 2 - 4096)
    else:
        content[:100] = bytes(100)
    path.write_bytes(content)
    with Store(path) as store:
        assert store.chats() == ()
        (aside,) = path.parent.glob("chats.damaged-*.db")
        assert str(aside) in store.notice
        assert aside.read_bytes() == content
        store.add(a_chat(), 1.0)
    with Store(path) as store:
        assert store.notice == ""
        assert store.load("c") == a_chat()


def test_a_database_of_a_later_release_is_refused_and_not_touched(path: Path):
    with Store(path) as store:
        store.add(a_chat(), 1.0)
    raw(path, "PRAGMA user_version = 99")
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    with pytest.raises(NewerDatabaseError, match=r"version 99; this release knows \d+.*latest release"):
        Store(path)
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == before


def test_a_migration_makes_a_backup_first(path: Path):
    with Store(path) as store:
        store.add(a_chat(), 1.0)
    later = (*MIGRATIONS, "ALTER TABLE chats ADD COLUMN colour TEXT; DELETE FROM messages WHERE role = 'assistant'")
    with Store(path, later) as store:
        assert len(store.load("c").messages) == 1
    backup = backup_path(path, len(MIGRATIONS))
    with Store(backup) as store:
        assert store.load("c") == a_chat()
    with pytest.raises(NewerDatabaseError):
        Store(path)


def test_a_migration_that_fails_changes_nothing(path: Path):
    with Store(path) as store:
        store.add(a_chat(), 1.0)
    with pytest.raises(StoreError):
        Store(path, (*MIGRATIONS, "DELETE FROM messages; SELECT * FROM missing_table"))
    with Store(path) as store:
        assert store.load("c") == a_chat()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path):
    (tmp_path / "data").write_text("a file in the way")
    with pytest.raises(StoreError, match="writable"):
        Store(tmp_path / "data" / "chats.db")


def test_a_locked_database_is_an_error_and_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pilotfish.desktop_app.database.BUSY_TIMEOUT_S", 0.05)
    with Store(path) as store:
        other = sqlite3.connect(path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            store.add(a_chat(), 1.0)
        other.rollback()
        other.close()
        store.add(a_chat(), 1.0)
        assert store.load("c") == a_chat()
    assert not list(path.parent.glob("*damaged*"))
