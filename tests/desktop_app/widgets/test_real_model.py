"""The window with SmolLM2-135M for real."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QElapsedTimer, Qt

from support.application import Application

pytestmark = pytest.mark.real_model


@pytest.fixture
def app(tmp_path: Path, qapp, monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    monkeypatch.setenv("PILOTFISH_DATA", str(tmp_path / "data"))
    app = Application(None)
    settings = app.control.settings.settings
    reply = replace(settings.reply, temperature=0.0, max_tokens=400)
    app.control.settings.apply(replace(settings, reply=reply, loading=replace(settings.loading, context_length=2048)))
    yield app
    app.close()


def test_the_first_answer_and_the_next(app: Application, smollm2_bundle: Path):
    app.launch(smollm2_bundle)
    first = app.ask("What is the capital of France? Answer in one short sentence.")
    assert (first.state, first.stats.finish_reason) == ("complete", "end")
    assert "Paris" in first.text
    assert sum(span.num_characters for span in first.spans) == len(first.text)
    again = app.ask("Say exactly that again.")
    assert again.state == "complete"
    app.wait(lambda: app.panel.line.startswith(("Speculation on", "Speculation off because")))
    app.wait(lambda: "tokens" in app.composer.meter.text)
    assert [message.role for message in app.store.load(app.desk.session.conversation.id).path] == [
        "user", "assistant", "user", "assistant",
    ]  # fmt: skip


def test_speculation_that_is_switched_off_is_off(app: Application, smollm2_bundle: Path):
    app.launch(smollm2_bundle)
    app.panel.switch.click()
    reply = app.ask("Name three colours.")
    assert reply.stats.speculation.startswith("off")
    assert {span.origin for span in reply.spans} == {"target"}
    assert app.panel.line == "Speculation off because you switched it off"


def test_stop_while_loading_in_prefill_and_while_decoding(app: Application, smollm2_bundle: Path):
    app.control.launch(smollm2_bundle)
    app.wait(lambda: app.desk.engine.phase == "loading")
    report("loading", stop(app, lambda: app.desk.engine.phase == "empty"))
    app.control.engine.load(smollm2_bundle)
    app.wait(lambda: app.desk.engine.phase == "ready")
    app.composer.editor.setPlainText("the shark swims " * 350)
    app.composer.submit()
    report("in prefill", stop(app, lambda: not app.desk.session.is_busy))
    assert (app.path[-1].state, app.path[-1].text) == ("interrupted", "")
    app.control.chats.new()
    app.composer.editor.setPlainText("Tell me a very long story about the sea.")
    app.composer.submit()
    app.wait(lambda: len(app.path[-1].text) > 30)
    report("decoding", stop(app, lambda: not app.desk.session.is_busy))
    assert app.path[-1].state == "interrupted"
    assert len(app.path[-1].text) > 30
    assert app.ask("What is 2 plus 2?").state == "complete"


def stop(app: Application, until) -> int:
    """Presses Escape; the milliseconds until it has stopped."""
    clock = QElapsedTimer()
    clock.start()
    app.press(Qt.Key.Key_Escape)
    app.wait(until)
    return clock.elapsed()


def report(name: str, milliseconds: int) -> None:
    print(f"\nstop to idle {name}: {milliseconds} ms")
