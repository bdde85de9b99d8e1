"""The desk over a real store and a real process with a fake engine; and the values it is made of."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pilotfish.desktop_app.chat_dates import heading
from pilotfish.desktop_app.conversation import Attachment
from pilotfish.desktop_app.desk import Desk
from pilotfish.desktop_app.drafts import Draft, Drafts
from pilotfish.desktop_app.engine_process import EngineProcess
from pilotfish.desktop_app.engine_state import EngineState, after, loading
from pilotfish.desktop_app.errors import StoreError
from pilotfish.desktop_app.load_record import LoadRecord
from pilotfish.desktop_app.protocol import Failed, Stopped
from pilotfish.desktop_app.remedies import Died
from pilotfish.desktop_app.reply_options import ReplyOptions
from pilotfish.desktop_app.store import Store
from support.engine_events import EngineEvents
from support.fake_engine import fake_command

REPLY = " ".join(f"word{number}" for number in range(40))


class Office:
    """A desk and the events that drive it."""

    def __init__(self, folder: Path, store: Store | None, record: LoadRecord | None = None, **fake) -> None:
        self.events = EngineEvents()
        command = fake_command(fake.pop("text", REPLY), folder, **{"tokens_per_s": 5000, **fake})
        self.process = EngineProcess(self.events.deliver, command, record)
        self.changed: list[str] = []
        self.desk = Desk(store, self.process, record, changed=self.changed.append)
        self.bundle = folder / "pair"
        self.bundle.mkdir(exist_ok=True)

    def run(self, until) -> None:
        while not until():
            self.desk.handle(self.events.next())

    def load(self) -> None:
        self.desk.load(self.bundle)
        self.run(lambda: self.desk.engine.phase != "loading")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "chats.db") as opened:
        yield opened


@pytest.fixture
def office(tmp_path: Path, store: Store) -> Iterator[Office]:
    opened = Office(tmp_path, store)
    opened.load()
    yield opened
    opened.desk.close()


def ask(office: Office, text: str) -> None:
    office.desk.session.send(text)
    office.run(lambda: not office.desk.session.is_busy)


def test_chats_are_kept_opened_renamed_deleted_and_brought_back(office: Office, store: Store):
    desk = office.desk
    ask(office, "first question")
    first = desk.session.conversation
    desk.new_chat()
    assert desk.session.conversation.path == ()
    ask(office, "second question")
    assert {each.title for each in desk.chats()} == {"first question", "second question"}
    desk.open_chat(first.id)
    assert desk.session.conversation == first
    ask(office, "and more")
    assert len(store.load(first.id).path) == 4
    desk.rename(first.id, "renamed")
    assert desk.session.conversation.title == store.load(first.id).title == "renamed"
    desk.delete(first.id)
    assert (desk.session.conversation.path, len(desk.chats())) == ((), 1)
    desk.restore(first.id)
    assert desk.session.conversation.title == "renamed"
    assert len(desk.chats()) == 2
    with pytest.raises(StoreError, match="no chat"):
        desk.open_chat("missing")
    assert desk.session.conversation.title == "renamed"


def test_a_reply_goes_on_while_another_chat_is_shown(tmp_path: Path, store: Store):
    office = Office(tmp_path, store, text="word " * 100_000, tokens_per_s=1000)
    office.desk.set_options(ReplyOptions(max_tokens=60))
    office.load()
    office.desk.session.send("go on without me")
    left = office.desk.session
    office.desk.new_chat()
    assert office.desk.writing_ids == {left.conversation.id}
    office.changed.clear()
    office.run(lambda: not office.desk.writing_ids)
    assert office.changed == []  # the window shows another chat
    assert store.load(left.conversation.id).path[1].state == "complete"
    office.desk.open_chat(left.conversation.id)
    assert len(office.desk.session.conversation.path) == 2
    office.desk.close()


def test_a_chat_that_is_opened_while_it_is_written_is_the_same_one(tmp_path: Path, store: Store):
    office = Office(tmp_path, store, text="word " * 100_000, tokens_per_s=1000)
    office.load()
    office.desk.session.send("a")
    left = office.desk.session
    office.desk.new_chat()
    office.desk.open_chat(left.conversation.id)
    assert office.desk.session is left
    office.desk.stop()
    office.run(lambda: not left.is_busy)
    assert left.conversation.path[1].state == "interrupted"
    office.desk.close()


def test_temporary_chats_and_a_desk_without_a_store_write_nothing(office: Office, tmp_path: Path):
    office.desk.new_chat(is_temporary=True)
    assert office.desk.is_temporary
    ask(office, "secret")
    assert office.desk.chats() == ()
    office.desk.rename(office.desk.session.conversation.id, "other")
    office.desk.delete(office.desk.session.conversation.id)
    assert office.desk.session.conversation.path == ()
    homeless = Office(tmp_path, None)
    homeless.load()
    ask(homeless, "secret")
    assert homeless.desk.is_temporary
    homeless.desk.close()


def test_a_stop_while_loading_and_a_restart_after_a_death(tmp_path: Path, store: Store):
    office = Office(tmp_path, store, load_s=60)
    office.desk.load(office.bundle)
    assert office.desk.engine.phase == "loading"
    office.desk.stop()
    office.run(lambda: office.desk.engine.phase != "loading")
    assert office.desk.engine == EngineState()
    os.kill(office.process.pid, signal.SIGKILL)
    office.run(lambda: office.desk.engine.phase == "dead")
    assert "SIGKILL" in office.desk.engine.cause
    office.desk.restart()
    assert office.process.is_running
    office.desk.close()


def test_an_engine_that_hangs_in_a_reply_is_replaced_and_loads_its_model_again(tmp_path: Path, store: Store):
    office = Office(tmp_path, store, prefill_s=600, deaf=1)
    office.load()
    office.desk.session.send("hello?")
    pid, request_id = office.process.pid, office.desk.stop()
    assert office.desk.awaits(request_id)
    office.desk.replace_engine()
    office.run(lambda: office.desk.engine.phase == "loading")
    assert not office.desk.awaits(request_id)
    question, reply = store.load(office.desk.session.conversation.id).path
    assert (question.text, reply.state) == ("hello?", "interrupted")
    assert "no longer answered" in reply.error
    office.run(lambda: office.desk.engine.phase == "ready")
    assert office.process.pid != pid
    assert office.desk.stop() is None
    office.desk.close()


def test_an_engine_that_hangs_in_a_load_is_replaced_by_an_empty_one(tmp_path: Path, store: Store):
    path = tmp_path / "loads.json"
    office = Office(tmp_path, store, LoadRecord(path), load_s=600, deaf=1)
    office.desk.load(office.bundle)
    office.run(lambda: office.desk.is_engine_ready)
    assert office.desk.awaits(office.desk.stop())
    office.desk.replace_engine()
    office.run(lambda: office.desk.engine.phase != "loading")
    assert office.desk.engine == EngineState()
    assert office.process.is_running
    office.desk.close()
    assert LoadRecord(path).crashed == (str(office.bundle),)  # at launch it would hang again


def test_a_bundle_that_crashed_the_engine_is_not_loaded_at_launch(tmp_path: Path, store: Store):
    path = tmp_path / "loads.json"
    office = Office(tmp_path, store, LoadRecord(path), die_in_load=int(signal.SIGSEGV))
    office.desk.launch(office.bundle)
    office.run(lambda: office.desk.engine.phase == "dead")
    assert office.desk.engine.name == "pair"
    office.desk.close()
    again = Office(tmp_path, store, LoadRecord(path))
    again.desk.launch()
    assert again.desk.engine.phase == "failed"
    assert "pair was not loaded, since the engine crashed" in again.desk.engine.cause
    again.desk.restart()  # the user asks for it
    again.run(lambda: again.desk.engine.phase == "ready")
    again.desk.close()
    third = Office(tmp_path, store, LoadRecord(path))
    third.desk.launch()  # it went well, so it is loaded again
    third.run(lambda: third.desk.engine.phase == "ready")
    third.desk.close()


def test_an_engine_that_cannot_be_started_is_dead_with_a_remedy(tmp_path: Path):
    process = EngineProcess(lambda event: None, [str(tmp_path / "missing")])
    desk = Desk(None, process)
    desk.launch(tmp_path)
    assert desk.engine.phase == "dead"
    assert "cannot be started" in desk.engine.cause
    assert desk.engine.remedy == "Install pilotfish again."


def test_the_state_follows_only_its_own_load():
    state = loading("/models/pair", 7)
    assert after(state, Stopped(6)) == state
    assert after(state, Failed(8, "x", "other", "nothing")) == state
    failed = after(state, Failed(7, "bundle", "the manifest is damaged", "export it again"))
    assert (failed.phase, failed.cause, failed.remedy) == ("failed", "The manifest is damaged.", "Export it again.")
    dead = after(state, Died("The engine crashed.", "Start it again.", "last words"))
    assert (dead.phase, dead.name, dead.details) == ("dead", "pair", "last words")


def test_drafts_survive_but_temporary_ones_never_reach_the_disk(tmp_path: Path):
    path = tmp_path / "data" / "drafts.json"
    drafts = Drafts(path)
    drafts.put("a", Draft("begun 🦈", (Attachment("f.txt", "text"),)))
    drafts.put("b", Draft("gone"))
    drafts.put("b", Draft("  "))
    drafts.put("t", Draft("secret"), is_temporary=True)
    assert drafts.get("t") == Draft("secret")
    drafts.save()
    assert b"secret" not in path.read_bytes()
    again = Drafts(path)
    assert again.get("a") == Draft("begun 🦈", (Attachment("f.txt", "text"),))
    assert again.get("b") == again.get("t") == Draft()
    path.write_text("{damaged", encoding="utf-8")
    assert Drafts(path).get("a") == Draft()


def test_headings_of_the_list():
    now = datetime(2026, 3, 20, 0, 30)
    for hours, expected in ((0.2, "Today"), (1, "Yesterday"), (24.4, "Yesterday"), (24.6, "Last 7 days"),
                            (24 * 10, "Last 30 days"), (24 * 60, "2026-01")):  # fmt: skip
        assert heading((now - timedelta(hours=hours)).timestamp(), now.timestamp()) == expected
