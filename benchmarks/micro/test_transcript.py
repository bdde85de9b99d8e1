"""What the transcript takes of the window's thread: a frame of a long reply, opening a chat, finding who wrote what."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support.nasty_markdown import LONG, long_document

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
pytest.importorskip("PySide6", reason="needs the extra app")

from PySide6.QtWidgets import QApplication

from pilotfish.desktop_app.conversation import Conversation
from pilotfish.desktop_app.markdown_blocks import split
from pilotfish.desktop_app.origins import aligned
from pilotfish.desktop_app.widgets.transcript import Transcript
from support.shown import chat_of, draw_all, open_transcript, with_text

CHARACTERS_A_FRAME = 2000 * 4 // 30  # of 2,000 tokens in a second


@pytest.fixture
def transcript() -> Iterator[Transcript]:
    app = QApplication.instance() or QApplication([])
    yield from open_transcript(900, 800)
    app.processEvents()


@pytest.mark.parametrize("name", LONG)
def test_frame_of_a_long_reply(benchmark, transcript: Transcript, name: str):
    """The next of a reply of 80,000 characters and more."""
    text, chat = long_document(name, 400_000), chat_of("question", "", state="streaming")
    length = 80_000
    transcript.show_conversation(with_text(chat, text[:length]))
    draw_all(transcript)

    def frame() -> None:
        nonlocal length
        length += CHARACTERS_A_FRAME
        transcript.update_message(with_text(chat, text[:length]), "m1")
        transcript.draw_frame()
        QApplication.processEvents()

    benchmark.pedantic(frame, rounds=100)
    assert transcript.list.rows[-1].message.text == text[:length]


@pytest.mark.parametrize("num_messages", [1, 500])
def test_opening_a_chat(benchmark, transcript: Transcript, num_messages: int):
    chat = chat_of(*[long_document("paragraphs", 800)] * num_messages)

    def open_chat() -> None:
        transcript.show_conversation(Conversation("empty", 1.0))
        transcript.show_conversation(chat)
        QApplication.processEvents()

    benchmark(open_chat)
    assert transcript.list.ids[-1] == f"m{num_messages - 1}"


@pytest.mark.parametrize("name", LONG)
def test_splitting_100_000_characters(benchmark, name: str):
    text = long_document(name)
    assert benchmark(split, text).blocks[-1].stop == len(text)


def test_finding_the_characters_of_a_paragraph(benchmark):
    source = long_document("paragraphs", 2000)
    rendered = source.replace("*", "").replace("`", "").replace("[link](https://example.org)", "link").split("\n\n")
    positions = benchmark(aligned, source, rendered)
    assert [source[i] for i in positions[-2]] == list(rendered[-2])
