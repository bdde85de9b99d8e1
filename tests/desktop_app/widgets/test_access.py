"""Names, the order of Tab, contrast, and text that runs from right to left, over the whole window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt

from pilotfish.desktop_app.conversation import Attachment
from pilotfish.desktop_app.drafts import Draft
from pilotfish.desktop_app.widgets.message_list import MessageList
from pilotfish.desktop_app.widgets.message_row import MessageRow
from support.application import Application
from support.fake_engine import fake_command
from support.walk import check_contrast, check_names, check_tab_order

REPLY = "שלום **عالم** 你好 🦈 `code`\n\n```python\nprint('hi')\n```\n\nEnd."


@pytest.fixture
def app(tmp_path: Path, qapp, monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    monkeypatch.setenv("PILOTFISH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pair").mkdir()
    app = Application(fake_command(REPLY, tmp_path, tokens_per_s=5000))
    app.window.resize(1100, 760)
    yield app
    qapp.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
    app.close()


def fill(app: Application, bundle: Path) -> None:
    """As much in sight as can be at once."""
    app.launch(bundle)
    app.ask("مرحبا 你好")
    app.control.replies.regenerate_last()
    app.wait(lambda: not app.desk.session.is_busy)
    app.window.panel.expand.setChecked(True)
    app.sidebar.offer_undo("a chat")
    app.window.banner.say("Something is wrong. Do something.", "error", "Do it", lambda: None)
    app.composer.set_draft(Draft("text", (Attachment("file.txt", "text"),)))
    app.composer.attach([bundle / "missing.txt"])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_control_has_a_name_and_can_be_read(app: Application, tmp_path: Path, theme: str):
    app.control.settings.apply(replace(app.control.settings.settings, theme=theme, tints=True))
    fill(app, tmp_path / "pair")
    app.wait(lambda: "tokens" in app.composer.meter.text)
    check_names(app.window, MessageList, MessageRow)
    check_contrast(app.window)


def test_tab_comes_to_every_control(app: Application, tmp_path: Path):
    fill(app, tmp_path / "pair")
    check_tab_order(app.window)


def test_the_first_launch_offers_a_model_and_every_control_has_a_name(app: Application):
    app.launch(None)
    assert app.window.pages.currentWidget() is app.window.welcome
    assert not app.composer.isVisible()
    check_names(app.window)


def test_the_model_of_the_first_launch_is_loaded_and_the_chat_begins(app: Application, tmp_path: Path):
    app.launch(None)
    app.window.welcome.ready.emit(tmp_path / "pair")
    app.wait(lambda: app.desk.engine.phase == "ready")
    assert app.window.pages.currentWidget() is app.window.empty
    assert app.composer.isVisible()
    assert app.ask("hello").state == "complete"


def test_right_to_left(app: Application, tmp_path: Path, qapp):
    qapp.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    fill(app, tmp_path / "pair")
    app.window.grab()
    assert app.path[-1].text == REPLY
    sidebar, content = app.sidebar.mapTo(app.window, app.sidebar.rect().center()), app.window.header
    assert sidebar.x() > content.mapTo(app.window, content.rect().center()).x()
    check_contrast(app.window)
