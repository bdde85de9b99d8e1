"""A chat session over a real store and a real process, whose engine is a fake or a tiny real bundle."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pilotfish.desktop_app.conversation import Conversation, new_id
from pilotfish.desktop_app.errors import ConversationError, SessionBusyError, StoreError
from pilotfish.desktop_app.protocol import Loaded
from pilotfish.desktop_app.reply_options import ReplyOptions
from pilotfish.desktop_app.session import ChatSession
from pilotfish.desktop_app.store import Store
from support.engine_events import EngineEvents, started
from support.fake_engine import fake_command

REPLY = " ".join(f"word{number}" for number in range(60))
ENDLESS = " ".join(f"word{number}" for number in range(100_000))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "data" / "chats.db") as opened:
        yield opened


class Talk:
    """A session, and the events that drive it."""

    def __init__(self, folder: Path, store: Store | None, text: str = REPLY, command=None, **session) -> None:
        self.events = EngineEvents()
        fake = command or fake_command(text, folder, tokens_per_s=5000)
        self.engine = started(self.events, *([] if command == "real" else [fake]))
        self.ticks = itertools.count(100)
        self.changed: list[str] = []
        self.session = ChatSession(
            Conversation(new_id(), 1.0), self.engine, store, changed=self.changed.append,
            clock=lambda: float(next(self.ticks)), **session,
        )  # fmt: skip

    def load(self, bundle: Path, **options) -> None:
        self.engine.load(bundle, **options)
        self.session.model = self.events.wait_for(Loaded).facts.name

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Handles events until the reply has ended, or `until` holds."""
        while self.session.is_busy and not (until and until()):
            self.session.handle(self.events.next())

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.session.conversation.path]


@pytest.fixture
def talk(tmp_path: Path, store: Store) -> Iterator[Talk]:
    opened = Talk(tmp_path, store)
    opened.load(tmp_path / "pair")
    yield opened
    opened.engine.close()


def test_a_message_is_saved_before_its_reply_and_the_reply_when_it_ends(talk: Talk, store: Store):
    asked = talk.session.send("Why is the sky blue?")
    saved = store.load(talk.session.conversation.id)
    assert [message.text for message in saved.path] == ["Why is the sky blue?", ""]
    assert saved.path[1].state == "streaming"
    with pytest.raises(SessionBusyError):
        talk.session.send("again")
    talk.run()
    assert talk.texts == ["Why is the sky blue?", REPLY]
    reply = talk.session.conversation.path[1]
    assert (reply.state, reply.stats.finish_reason, reply.stats.model) == ("complete", "end", "pair")
    assert (reply.stats.num_tokens, reply.stats.speculation) == (60, "on: fake")
    assert 0 < reply.stats.acceptance_rate < 1
    assert sum(span.num_characters for span in reply.spans) == len(REPLY)
    assert {span.origin for span in reply.spans} == {"model", "suffix", "target"}
    assert store.load(talk.session.conversation.id) == talk.session.conversation
    assert store.chats()[0].title == "Why is the sky blue?"
    assert {asked, reply.id} == set(talk.changed)


def test_edit_and_regenerate_make_branches(talk: Talk, store: Store):
    first = talk.session.send("one")
    talk.run()
    reply = talk.session.conversation.path[1]
    talk.session.regenerate(reply.id)
    talk.run()
    assert len(talk.session.conversation.siblings(reply.id)) == 2
    talk.session.edit(first, "two")
    talk.run()
    assert talk.texts == ["two", REPLY]
    talk.session.choose(first)
    assert talk.texts == ["one", REPLY]
    assert len(talk.session.conversation.messages) == 5
    assert store.load(talk.session.conversation.id) == talk.session.conversation
    for wrong in (lambda: talk.session.edit(reply.id, "x"), lambda: talk.session.regenerate(first)):
        with pytest.raises(ConversationError):
            wrong()


def test_a_reply_of_limited_length_is_continued_in_place(talk: Talk):
    talk.session.options = ReplyOptions(max_tokens=20)
    talk.session.send("one")
    talk.run()
    reply = talk.session.conversation.path[1]
    assert reply.stats.finish_reason == "length"
    talk.session.options = ReplyOptions()
    talk.session.continue_reply(reply.id)
    talk.run()
    whole = talk.session.conversation.path[1]
    assert (whole.id, whole.text, whole.stats.num_tokens) == (reply.id, REPLY, 60)
    assert len(talk.session.conversation.messages) == 2


@pytest.fixture
def endless(tmp_path: Path, store: Store) -> Iterator[Talk]:
    opened = Talk(tmp_path, store, ENDLESS, options=ReplyOptions(max_tokens=None))
    opened.load(tmp_path / "pair")
    yield opened
    opened.engine.close()


def test_stop_leaves_what_is_there_and_the_next_message_is_answered(endless: Talk):
    endless.session.send("go")
    endless.run(until=lambda: len(endless.texts[1]) > 500)
    endless.session.stop()
    endless.run()
    reply = endless.session.conversation.path[1]
    assert (reply.state, reply.error, reply.stats.finish_reason) == ("interrupted", "", "cancelled")
    assert ENDLESS.startswith(reply.text)
    endless.session.options = ReplyOptions(max_tokens=5)
    endless.session.send("and?")
    endless.run()
    assert endless.session.conversation.path[3].state == "complete"


def test_a_growing_reply_is_on_disk_after_each_second(endless: Talk, store: Store):
    endless.session.send("go")
    endless.run(until=lambda: len(endless.texts[1]) > 500)
    (saved,) = (each for each in store.load(endless.session.conversation.id).path if each.role == "assistant")
    assert saved == endless.session.conversation.path[1]  # this clock ticks a second for each piece
    endless.ticks = itertools.repeat(0)  # and now it stands still
    length = len(endless.texts[1])
    endless.run(until=lambda: len(endless.texts[1]) > length + 500)
    assert store.load(endless.session.conversation.id).path[1] == saved


def test_a_child_that_dies_leaves_the_reply_and_a_reason(endless: Talk, store: Store):
    endless.session.send("go")
    endless.run(until=lambda: len(endless.texts[1]) > 500)
    os.kill(endless.engine.pid, signal.SIGKILL)
    endless.run()
    reply = store.load(endless.session.conversation.id).path[1]
    assert reply.state == "interrupted"
    assert len(reply.text) > 500
    assert "memory" in reply.error
    assert "start the engine again" in reply.error
    endless.session.send("still there?")
    assert endless.session.conversation.path[-1].state == "error"
    assert "start the engine again" in endless.session.conversation.path[-1].error
    assert not endless.session.is_busy


def test_a_temporary_chat_is_never_written(tmp_path: Path, store: Store):
    talk = Talk(tmp_path, None)
    talk.load(tmp_path)
    talk.session.send("secret word")
    talk.run()
    talk.session.choose(talk.session.conversation.path[0].id)
    talk.engine.close()
    assert talk.texts == ["secret word", REPLY]
    files = [path for path in store.path.parent.rglob("*") if path.is_file()]
    assert files
    assert not any(b"secret" in path.read_bytes() for path in files)


def test_a_message_that_cannot_be_saved_is_not_sent(talk: Talk, store: Store, monkeypatch: pytest.MonkeyPatch):
    talk.session.send("one")
    talk.run()
    before = talk.session.conversation
    blocker = sqlite3.connect(store.path)
    store.connection.execute("PRAGMA busy_timeout = 50")
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        talk.session.send("two")
    assert talk.session.conversation == before
    assert not talk.session.is_busy
    talk.session.regenerate(before.path[1].id)
    talk.run()
    assert talk.texts == ["one", REPLY]  # a reply is written even so
    assert "locked" in talk.session.store_fault
    blocker.rollback()
    blocker.close()


def test_the_meter_and_a_full_context(tmp_path: Path, store: Store):
    talk = Talk(tmp_path, store, options=ReplyOptions(overflow="stop", room=0))
    talk.load(tmp_path, context_length=20)
    talk.session.count("a b c")
    while talk.session.meter is None:
        talk.session.handle(talk.events.next())
    assert (talk.session.meter.num_tokens, talk.session.meter.limit, talk.session.meter.fault) == (3, 19, "")
    talk.session.send("x " * 30)
    talk.run()
    reply = talk.session.conversation.path[1]
    assert reply.state == "error"
    assert "begin a new chat" in reply.error
    talk.engine.close()


def test_a_real_bundle_answers_twice(bundle_path: Path, tmp_path: Path, store: Store):
    talk = Talk(tmp_path, store, command="real", options=ReplyOptions(max_tokens=12, temperature=0))
    talk.load(bundle_path)
    for text in ("the shark", "and the fish? 🦈"):
        talk.session.send(text)
        talk.run()
    replies = [message for message in talk.session.conversation.path if message.role == "assistant"]
    assert [(reply.state, reply.stats.num_tokens) for reply in replies] == [("complete", 12)] * 2
    assert all(sum(span.num_characters for span in reply.spans) == len(reply.text) for reply in replies)
    assert store.load(talk.session.conversation.id) == talk.session.conversation
    talk.engine.close()
    assert os.path.exists(store.path)
