"""The whole window over a real store and a real process, whose engine is a fake."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMessageBox

from pilotfish.desktop_app import places
from pilotfish.desktop_app.errors import NewerDatabaseError
from pilotfish.desktop_app.migrations import MIGRATIONS
from pilotfish.desktop_app.settings import load_settings
from pilotfish.desktop_app.themes import DARK
from pilotfish.desktop_app.widgets import engine_control
from pilotfish.desktop_app.widgets.application import open_store
from pilotfish.desktop_app.widgets.settings_dialog import SettingsDialog
from support.application import Application
from support.fake_engine import fake_command

BEGUN_MS = 1000  # after which the engine is at the reply; a stop that comes with the request ends it before it begins
REPLY = "The sky is **blue**. " * 20
CONTROL, ALT, SHIFT = (
    Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.AltModifier, Qt.KeyboardModifier.ShiftModifier,
)  # fmt: skip

Open = Callable[..., Application]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "pair"
    folder.mkdir()
    return folder


@pytest.fixture
def open_app(tmp_path: Path, qapp, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens the application in a folder of its own; each call is a launch."""
    monkeypatch.setenv("PILOTFISH_DATA", str(tmp_path / "data"))
    opened: list[Application] = []

    def launch(text: str = REPLY, **options) -> Application:
        opened.append(Application(fake_command(text, tmp_path, **{"tokens_per_s": 5000, **options})))
        return opened[-1]

    yield launch
    for each in opened:
        each.close()


def answer_box(seen: list[str], words: str) -> None:
    """Presses a button of the message box that comes next."""

    def press() -> None:
        box = QApplication.activeModalWidget()
        if not isinstance(box, QMessageBox):
            QTimer.singleShot(10, press)
            return
        seen.append(box.text())
        next(button for button in box.buttons() if words in button.text()).click()

    QTimer.singleShot(0, press)


def test_the_first_answer(open_app: Open, bundle: Path):
    app = open_app()
    app.launch(bundle)
    assert app.window.pages.currentWidget() is app.window.empty
    reply = app.ask("Why is the sky blue?")
    assert (reply.text, reply.state) == (REPLY.rstrip() + " ", "complete")
    assert app.window.pages.currentWidget() is app.window.transcript
    assert app.sidebar.current_id == app.desk.session.conversation.id
    app.wait(lambda: "% accepted" in app.panel.line)
    app.wait(lambda: "tokens" in app.composer.meter.text)
    assert app.window.header.model.text() == "pair"


def test_keyboard_only(open_app: Open, bundle: Path):
    app = open_app("word " * 100_000, tokens_per_s=1000)
    app.control.settings.apply(replace(app.control.settings.settings, reply=replace(
        app.control.settings.settings.reply, max_tokens=30)))  # fmt: skip
    app.launch(bundle)
    app.press(Qt.Key.Key_N, CONTROL)
    app.type("first question")
    app.press(Qt.Key.Key_Return)
    app.wait(lambda: not app.desk.session.is_busy)
    first = app.desk.session.conversation
    app.press(Qt.Key.Key_R, CONTROL)
    app.wait(lambda: len(app.desk.session.conversation.messages) == 3 and not app.desk.session.is_busy)
    app.press(Qt.Key.Key_Left, ALT)
    assert app.path[-1].id == first.path[-1].id
    app.press(Qt.Key.Key_Right, ALT)
    assert app.path[-1].id != first.path[-1].id
    app.press(Qt.Key.Key_E, CONTROL | SHIFT)
    app.type("edited")
    app.press(Qt.Key.Key_Return, CONTROL)
    app.wait(lambda: "edited" in app.path[0].text and not app.desk.session.is_busy)
    assert len(app.desk.session.conversation.siblings(first.path[0].id)) == 2
    app.press(Qt.Key.Key_N, CONTROL)
    assert app.path == ()
    app.press(Qt.Key.Key_F, CONTROL)
    app.type("first que")
    app.wait(lambda: app.sidebar.list.count() > 0 and app.sidebar.list.item(0).text() == "first question")
    app.press(Qt.Key.Key_Return)
    app.press(Qt.Key.Key_Return)
    assert app.desk.session.conversation.id == first.id
    app.press(Qt.Key.Key_Escape)
    assert app.sidebar.search.text() == ""


def test_escape_stops_while_decoding_in_prefill_and_while_loading(open_app: Open, bundle: Path):
    app = open_app("word " * 100_000, tokens_per_s=500, prefill_s=0.5, load_s=2)
    app.control.launch(bundle)
    app.wait(lambda: app.window.header.stop.isVisible())
    app.press(Qt.Key.Key_Escape)
    app.wait(lambda: app.desk.engine.phase == "empty")
    assert app.window.header.model.text() == "Choose a model"
    app.control.engine.load(bundle)
    app.wait(lambda: app.desk.engine.phase == "ready")
    app.composer.editor.setPlainText("stop me while you read")
    app.composer.submit()
    app.press(Qt.Key.Key_Escape)
    app.wait(lambda: not app.desk.session.is_busy)
    assert (app.path[-1].text, app.path[-1].state) == ("", "interrupted")
    app.composer.editor.setPlainText("stop me while you write")
    app.composer.submit()
    app.wait(lambda: len(app.path[-1].text) > 50)
    app.composer._send.click()
    app.wait(lambda: not app.desk.session.is_busy)
    assert app.path[-1].state == "interrupted"
    assert len(app.path[-1].text) > 50


def test_a_killed_engine_is_told_and_restarted_by_a_button(open_app: Open, bundle: Path):
    app = open_app("word " * 100_000, tokens_per_s=1000)
    app.launch(bundle)
    app.composer.editor.setPlainText("go")
    app.composer.submit()
    app.wait(lambda: len(app.path[-1].text) > 200)
    os.kill(app.control.engine._desk._process.pid, signal.SIGKILL)
    app.wait(lambda: app.desk.engine.phase == "dead")
    assert "memory had run out (SIGKILL)" in app.window.banner.text
    assert app.path[-1].state == "interrupted"
    assert len(app.path[-1].text) > 200
    app.composer.editor.setPlainText("still there?")
    app.composer.submit()
    assert len(app.path) == 2  # it waits in the field
    assert app.composer.editor.toPlainText() == "still there?"
    assert app.window.banner.button.text() == "Restart"
    app.window.banner.button.click()
    app.wait(lambda: app.desk.engine.phase == "ready")
    assert app.window.banner.text == ""
    app.composer.submit()
    app.wait(lambda: len(app.path) == 4 and len(app.path[-1].text) > 100)


def test_an_engine_that_does_not_stop_can_be_restarted(open_app: Open, bundle: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine_control, "PATIENCE_MS", 50)
    app = open_app(prefill_s=600, deaf=1)
    app.launch(bundle)
    app.composer.editor.setPlainText("hello?")
    app.composer.submit()
    app.wait(lambda: app.desk.session.is_busy)
    QTest.qWait(BEGUN_MS)
    app.control.stop()
    app.wait(lambda: "has not stopped" in app.window.banner.text)
    assert app.window.banner.button.text() == "Restart the engine"
    app.window.banner.button.click()
    app.wait(lambda: app.desk.engine.phase == "ready" and not app.desk.session.is_busy)
    assert app.window.banner.text == ""
    assert app.path[-1].state == "interrupted"


def test_the_offer_to_restart_is_taken_back_when_the_reply_ends_after_all(
    open_app: Open, bundle: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine_control, "PATIENCE_MS", 50)
    app = open_app(prefill_s=4, deaf=1)
    app.launch(bundle)
    app.composer.editor.setPlainText("hello?")
    app.composer.submit()
    QTest.qWait(BEGUN_MS)
    app.composer.stop_requested.emit()
    app.wait(lambda: "has not stopped" in app.window.banner.text)
    app.wait(lambda: not app.desk.session.is_busy)
    assert app.window.banner.text == ""
    assert app.desk.engine.phase == "ready"


def test_a_bundle_that_crashed_is_not_loaded_again_at_launch(open_app: Open, bundle: Path):
    app = open_app(die_in_load=int(signal.SIGSEGV))
    app.control.launch(bundle)
    app.wait(lambda: app.desk.engine.phase == "dead")
    assert "crashed (SIGSEGV) while loading pair" in app.window.banner.text
    app.close()
    again = open_app()
    again.control.launch()
    assert again.desk.engine.phase == "failed"
    assert "pair was not loaded" in again.window.banner.text
    assert again.window.banner.button.text() == "Try again"
    again.window.banner.button.click()
    again.wait(lambda: again.desk.engine.phase == "ready")


def test_drafts_belong_to_their_chat_and_survive_a_restart(open_app: Open, bundle: Path):
    app = open_app()
    app.launch(bundle)
    app.ask("first")
    first = app.desk.session.conversation.id
    app.composer.editor.setPlainText("begun in the first")
    app.control.chats.new()
    assert app.composer.draft.is_empty
    app.composer.editor.setPlainText("begun in a new one")
    app.control.chats.open(first)
    assert app.composer.draft.text == "begun in the first"
    app.control.chats.new(is_temporary=True)
    app.composer.editor.setPlainText("a secret")
    app.close()
    again = open_app()
    again.launch(bundle)
    assert again.composer.draft.text == "begun in a new one"
    again.control.chats.open(first)
    assert again.composer.draft.text == "begun in the first"
    files = [path for path in places.data_dir().rglob("*") if path.is_file()]
    assert not any(b"a secret" in path.read_bytes() for path in files)


def test_a_draft_is_on_disk_a_moment_after_it_was_typed(open_app: Open, bundle: Path):
    app = open_app()
    app.launch(bundle)
    app.composer.editor.setPlainText("not yet sent")
    app.wait(lambda: places.drafts_path().exists() and "not yet sent" in places.drafts_path().read_text("utf-8"))


def test_a_disk_that_refuses_while_a_reply_streams_is_told_and_the_reply_goes_on(open_app: Open, bundle: Path):
    app = open_app("word " * 4000, tokens_per_s=1000)
    app.launch(bundle)
    app.composer.editor.setPlainText("go on")
    app.composer.submit()
    app.store.connection.execute("PRAGMA busy_timeout = 20")
    blocker = sqlite3.connect(app.store.path)
    blocker.execute("BEGIN IMMEDIATE")
    app.wait(lambda: "locked" in app.window.banner.text)
    length = len(app.path[-1].text)
    app.wait(lambda: len(app.path[-1].text) > length + 500)
    blocker.rollback()
    blocker.close()
    app.wait(lambda: app.window.banner.text == "")
    app.control.stop()
    app.wait(lambda: not app.desk.session.is_busy)


def test_a_changed_device_or_context_is_loaded_on_request(open_app: Open, bundle: Path):
    app = open_app()
    app.launch(bundle)
    settings = app.control.settings.settings
    app.control.settings.apply(replace(settings, loading=replace(settings.loading, context_length=1024)))
    assert app.desk.engine.facts.context_length == 4096
    assert app.desk.loaded_with != app.desk.load_options
    app.control.engine.restart()
    app.wait(lambda: app.desk.engine.phase == "ready")
    assert app.desk.engine.facts.context_length == 1024
    assert app.desk.loaded_with == app.desk.load_options


def test_the_settings_apply_at_once(open_app: Open, bundle: Path, qapp):
    app = open_app()
    app.launch(bundle)

    def change() -> None:
        dialog = qapp.activeModalWidget()
        if not isinstance(dialog, SettingsDialog):
            QTimer.singleShot(10, change)
            return
        dialog.changed.emit(replace(app.control.settings.settings, theme="dark", tints=True, speculates=False))
        dialog.reject()

    QTimer.singleShot(0, change)
    app.press(Qt.Key.Key_Comma, CONTROL)
    assert app.desk.session.options.draft == "off"
    assert not app.panel.is_wanted
    assert app.panel.tints.isChecked()
    assert app.window.palette().window().color().name() == DARK.window
    app.wait(lambda: load_settings(places.settings_path())[0].theme == "dark")


def test_a_long_chat_says_before_it_is_sent_that_old_messages_are_left_out(open_app: Open, bundle: Path):
    app = open_app("word " * 20)
    settings = app.control.settings.settings
    loading = replace(settings.loading, context_length=100)
    app.control.settings.apply(replace(settings, loading=loading, reply=replace(settings.reply, room=10)))
    app.launch(bundle)
    for _ in range(3):
        app.ask("question " * 10)
    app.composer.editor.setPlainText("more " * 20)
    app.wait(lambda: "left out" in app.composer.meter.text)


def test_delete_and_undo_by_keys(open_app: Open, bundle: Path):
    app = open_app()
    app.launch(bundle)
    app.ask("to be deleted")
    chat_id = app.desk.session.conversation.id
    app.press(Qt.Key.Key_Delete, CONTROL | SHIFT)
    assert app.path == ()
    assert app.sidebar.list.count() == 0
    app.press(Qt.Key.Key_Z, CONTROL | ALT)
    assert app.desk.session.conversation.id == chat_id
    assert app.sidebar.list.count() == 2


def test_the_switch_of_speculation_goes_with_the_next_message_and_is_kept(open_app: Open, bundle: Path):
    app = open_app()
    app.launch(bundle)
    app.panel.switch.click()
    assert app.desk.session.options.draft == "off"
    app.ask("and now?")
    assert not app.panel.is_wanted
    app.close()
    assert not load_settings(places.settings_path())[0].speculates
    again = open_app()
    again.launch(bundle)
    assert not again.panel.is_wanted
    again.panel.switch.click()
    assert again.desk.session.options.draft == "auto"


def test_what_cannot_be_saved_goes_back_into_the_field_and_is_told(open_app: Open, bundle: Path):
    app = open_app()
    app.launch(bundle)
    app.store.connection.execute("PRAGMA busy_timeout = 50")
    blocker = sqlite3.connect(app.store.path)
    blocker.execute("BEGIN IMMEDIATE")
    app.composer.editor.setPlainText("keep me")
    app.composer.submit()
    assert "locked" in app.window.banner.text
    assert app.composer.editor.toPlainText() == "keep me"
    blocker.rollback()
    blocker.close()
    app.composer.submit()
    app.wait(lambda: len(app.path) == 2 and not app.desk.session.is_busy)


def test_a_link_is_asked_about_before_it_is_opened(open_app: Open, monkeypatch: pytest.MonkeyPatch):
    app = open_app()
    opened, seen = [], []
    monkeypatch.setattr(
        "pilotfish.desktop_app.widgets.reply_control.QDesktopServices.openUrl",
        lambda url: opened.append(url.toString()),
    )
    answer_box(seen, "No")
    app.window.transcript.link_opened.emit("https://example.org/a")
    assert opened == []
    answer_box(seen, "Yes")
    app.window.transcript.link_opened.emit("https://example.org/a")
    assert opened == ["https://example.org/a"]
    assert "https://example.org/a" in seen[0]
    app.window.transcript.link_opened.emit("file:///etc/passwd")
    assert "was not opened" in app.window.banner.text
    assert len(opened) == 1


def test_a_damaged_database_is_told_and_kept(open_app: Open):
    path = places.chats_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database at all" * 100)
    seen: list[str] = []
    answer_box(seen, "OK")
    app = open_app()
    assert "damaged" in seen[0]
    kept = [each for each in path.parent.iterdir() if "damaged" in each.name]
    assert kept[0].read_bytes() == b"no database at all" * 100
    assert app.desk.chats() == ()


def test_a_newer_database_is_told_and_left_alone(open_app: Open, bundle: Path):
    path = places.chats_path()
    open_app().close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 5}")
    connection.close()
    before = path.read_bytes()
    seen: list[str] = []
    answer_box(seen, "Quit")
    with pytest.raises(NewerDatabaseError):
        open_store()
    assert "later release" in seen[0]
    answer_box(seen, "Go on")
    app = open_app()
    app.launch(bundle)
    app.ask("without saving")
    assert app.desk.is_temporary
    app.close()
    assert path.read_bytes() == before


def test_geometry_is_kept(open_app: Open):
    app = open_app()
    app.window.resize(790, 620)  # within the screen of the platform
    app.close()
    assert open_app().window.size().toTuple() == (790, 620)


def test_chats_go_out_and_in_as_files(open_app: Open, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    app = open_app()
    app.launch(bundle)
    app.ask("Why: is the sky blue?")
    dialog = "pilotfish.desktop_app.widgets.chat_control.QFileDialog"
    proposed = []
    for kind, suffix in (("Markdown, what is shown (*.md)", ".md"), ("JSON, with all branches (*.json)", ".json")):
        monkeypatch.setattr(f"{dialog}.getSaveFileName", lambda *arguments, kind=kind, suffix=suffix: proposed.append(
            arguments[2]) or (str(tmp_path / f"chat{suffix[1:]}"), kind))  # fmt: skip
        app.control.chats.export()
        exported = tmp_path / f"chat{suffix[1:]}{suffix}"
        monkeypatch.setattr(f"{dialog}.getOpenFileName", lambda *arguments, path=exported: (str(path), ""))
        app.control.chats.import_file()
        assert [message.text for message in app.path] == ["Why: is the sky blue?", REPLY]
    assert proposed[0] == "Why is the sky blue.md"
    assert len(app.desk.chats()) == 3
