"""How much the transcript does at a time, counted; and once the gaps that are left for the window."""

from __future__ import annotations

import time
from statistics import median

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

from pilotfish.desktop_app.conversation import Conversation, Message
from pilotfish.desktop_app.markdown_prose import LIMIT
from pilotfish.desktop_app.widgets import code_card, prose_view
from pilotfish.desktop_app.widgets.code_card import CodeCard
from pilotfish.desktop_app.widgets.message_body import BUDGET
from pilotfish.desktop_app.widgets.prose_view import ProseView
from pilotfish.desktop_app.widgets.transcript import Transcript
from support.nasty_markdown import LONG, long_document
from support.shown import chat_of, draw_all, open_transcript, with_text

CHARACTERS_A_FRAME = 2000 * 4 // 30  # of 2,000 tokens in a second


@pytest.fixture
def renders(monkeypatch) -> list[tuple[object, str]]:
    """What was rendered: the view and the text."""
    found: list[tuple[object, str]] = []
    show_text, show_piece = ProseView.show_text, CodeCard.show_piece

    def count_text(self, text, part=None):
        found.append((self, text))
        show_text(self, text, part)

    def count_piece(self, index, code, language, part=None):
        found.append(((self, index), code))
        show_piece(self, index, code, language, part)

    monkeypatch.setattr(prose_view.ProseView, "show_text", count_text)
    monkeypatch.setattr(code_card.CodeCard, "show_piece", count_piece)
    return found


@pytest.mark.parametrize("has_tints", [False, True], ids=["plain", "tinted"])
@pytest.mark.parametrize("name", LONG)
def test_a_frame_renders_little_however_long_the_reply_is(transcript: Transcript, renders, name: str, has_tints: bool):
    transcript.set_tints(has_tints)
    text, chat = long_document(name, 30_000), chat_of("q", "", state="streaming")
    transcript.show_conversation(chat)
    draw_all(transcript)
    most = 0
    for length in range(0, len(text) + CHARACTERS_A_FRAME, CHARACTERS_A_FRAME):
        renders.clear()
        transcript.update_message(with_text(chat, text[:length]), "m1")
        transcript.draw_frame()
        most = max(most, sum(len(each) for _, each in renders))
        assert len(renders) <= CHARACTERS_A_FRAME // 4
    assert most <= BUDGET + 2 * LIMIT + 200


def test_a_finished_block_is_rendered_once_more_at_most(transcript: Transcript, renders):
    text, chat = long_document("paragraphs", 30_000), chat_of("q", "", state="streaming")
    transcript.show_conversation(chat)
    for length in range(0, len(text) + CHARACTERS_A_FRAME, CHARACTERS_A_FRAME):
        transcript.update_message(with_text(chat, text[:length]), "m1")
        transcript.draw_frame()
    draw_all(transcript)
    by_text: dict[tuple[object, str], int] = {}
    for each in renders:
        by_text[each] = by_text.get(each, 0) + 1
    assert len(by_text) > 90
    assert set(by_text.values()) == {1}


def test_many_updates_are_one_frame_and_then_there_is_none(transcript: Transcript, renders, qtbot):
    chat = chat_of("q", "", state="streaming")
    transcript.show_conversation(chat)
    draw_all(transcript)
    renders.clear()
    for length in range(200):
        transcript.update_message(with_text(chat, "x" * length), "m1")
    assert renders == []
    qtbot.waitUntil(lambda: transcript.is_idle)
    assert [text for _, text in renders] == ["x" * 199]


def test_only_what_is_near_is_made_of_a_long_chat(transcript: Transcript):
    transcript.show_conversation(long_chat(500))
    draw_all(transcript)
    assert 2 <= len(transcript.list.rows) <= 20
    assert transcript.list.is_at_end
    assert transcript.list.rows[-1].message.id == "m499"
    for _ in range(10):
        bar = transcript.list.verticalScrollBar()
        bar.setValue(bar.value() - 500)
        draw_all(transcript)
        rows = {row.message.id for row in transcript.list.rows}
        assert rows == {f"m{499 - number}" for number in range(len(rows))}
    transcript.list.verticalScrollBar().setValue(0)
    draw_all(transcript)
    assert transcript.list.rows[0].message.id == "m0"


def test_500_messages_open_about_as_fast_as_a_page_of_them(qapp):
    few, many = median(opening_s(12) for _ in range(5)), median(opening_s(500) for _ in range(5))
    assert many < 4 * few


def long_chat(num_messages: int) -> Conversation:
    text = long_document("paragraphs", 700) + "\n\n```python\nx = 1\n```\n"
    messages = tuple(
        Message(f"m{i}", f"m{i - 1}" if i else None, "assistant" if i % 2 else "user", text, 1.0)
        for i in range(num_messages)
    )
    return Conversation(f"long {num_messages}", 1.0, messages=messages)


def opening_s(num_messages: int) -> float:
    chat = long_chat(num_messages)
    for transcript in open_transcript():
        QApplication.processEvents()
        started = time.process_time()
        transcript.show_conversation(chat)
        draw_all(transcript)
        return time.process_time() - started
    raise AssertionError("no transcript")


@pytest.mark.parametrize("name", ["paragraphs", "paragraph", "word", "code", "code line", "list", "table"])
def test_a_frame_late_in_a_long_reply_takes_about_as_long_as_an_early_one(transcript: Transcript, name: str):
    text, chat = long_document(name), chat_of("q", "", state="streaming")
    transcript.show_conversation(chat)

    def frames_s(first: int) -> float:
        durations = []
        for length in range(first, first + 20 * CHARACTERS_A_FRAME, CHARACTERS_A_FRAME):
            transcript.update_message(with_text(chat, text[:length]), "m1")
            started = time.process_time()
            transcript.draw_frame()
            QApplication.processEvents()
            durations.append(time.process_time() - started)
        return median(durations)

    early = frames_s(2000)
    transcript.update_message(with_text(chat, text[:90_000]), "m1")
    draw_all(transcript)
    assert frames_s(90_000) < 6 * early


def test_the_window_has_its_turn_while_a_reply_streams(transcript: Transcript, qtbot):
    """2,000 tokens a second by the clock, from the 60,000th character on; the best of three, as others use the CPU."""
    chat = chat_of("q", long_document("paragraphs", 60_000), state="streaming")
    longest = []
    for _ in range(3):
        transcript.show_conversation(chat_of())
        transcript.show_conversation(chat)
        draw_all(transcript)
        longest.append(max(gaps_s(transcript, chat, qtbot)))
        assert len(transcript.list.rows[-1].body.views) > 202
        if longest[-1] < 0.05:
            return
    raise AssertionError(f"the window waited {longest} s")


def gaps_s(transcript: Transcript, chat: Conversation, qtbot) -> list[float]:
    """How long the event loop was away, again and again, during one second."""
    text, gaps = long_document("paragraphs"), []
    last = started = time.perf_counter()

    def beat() -> None:
        nonlocal last
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
        transcript.update_message(with_text(chat, text[: 60_000 + round(8000 * (now - started))]), "m1")

    timer = QTimer()
    timer.timeout.connect(beat)
    timer.start(2)
    qtbot.wait(1000)
    timer.stop()
    return gaps
