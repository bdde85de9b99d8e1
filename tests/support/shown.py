"""What a transcript shows, for tests."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QApplication

from pilotfish.desktop_app.conversation import Conversation, Message, ReplyStats
from pilotfish.desktop_app.widgets.code_card import CodeCard
from pilotfish.desktop_app.widgets.look import Look
from pilotfish.desktop_app.widgets.message_body import MessageBody
from pilotfish.desktop_app.widgets.message_row import MessageRow
from pilotfish.desktop_app.widgets.selection import Selection
from pilotfish.desktop_app.widgets.text_view import TextView
from pilotfish.desktop_app.widgets.tinting import blocks_of
from pilotfish.desktop_app.widgets.transcript import Transcript

REPLY = "First *paragraph* here.\n\n1. one\n2. two\n\n```python\nx = 1\n\ny = 2\n```\n\nLast [link](https://example.org/a%20b?q=1)."
STATS = ReplyStats("Tiny 1B", 212, 34.25, 0.412, 0.714, 1.82, "on: model in 40 rounds", "end", 2)


def chat_of(*texts: str, chat_id: str = "chat", **last) -> Conversation:
    """Questions and replies in turn, with the ids m0, m1, …; `last` are fields of the last message."""
    chat = Conversation(chat_id, 1.0)
    for number, text in enumerate(texts):
        parent_id = f"m{number - 1}" if number else None
        more = last if number == len(texts) - 1 else {}
        role = "assistant" if number % 2 else "user"
        chat = chat.with_message(Message(f"m{number}", parent_id, role, text, 1.0, **more))
    return chat


def with_text(chat: Conversation, text: str, state: str = "streaming", **more) -> Conversation:
    """The chat, whose last message has that text and state."""
    last = chat.messages[-1]
    fields = {"spans": last.spans, "stats": last.stats} | more
    return chat.with_replaced(Message(last.id, last.parent_id, last.role, text, 1.0, state=state, **fields))


def open_transcript(width: int = 800, height: int = 600) -> Iterator[Transcript]:
    """A transcript on the screen, which is gone behind the test, so that it does not slow down others."""
    made = Transcript()
    made.resize(width, height)
    made.show()
    try:
        yield made
    finally:
        made.close()
        made.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def draw_all(transcript: Transcript, most: int = 500) -> int:
    """Draws frames until there is nothing more to draw; returns how many."""
    for number in range(most):
        if transcript.is_idle:
            return number
        transcript.draw_frame()
        QApplication.processEvents()
    raise AssertionError(f"still busy after {most} frames")


def rows_of(transcript: Transcript, *texts: str, **last) -> list[MessageRow]:
    """The rows of a chat as `chat_of` makes it, drawn."""
    transcript.show_conversation(chat_of(*texts, **last))
    draw_all(transcript)
    return transcript.list.rows


def visible_buttons(row: MessageRow) -> set[str]:
    return {each.text() for each in row.action_bar.findChildren(QAbstractButton) if each.isVisible()}


def clipboard() -> str:
    return QGuiApplication.clipboard().text()


def body_of(look: Look | None = None, **options) -> MessageBody:
    """A body of its own."""
    body: MessageBody
    body = MessageBody(look or Look(), Selection(lambda view: body.views), **options)
    return body


def render_all(body: MessageBody, width: int = 600) -> None:
    """Renders what is left."""
    for _ in range(500):
        if not body.is_behind:
            body.lay_out(width)
            return
        body.advance(width)
    raise AssertionError("never done")


def shown(body: MessageBody) -> list[tuple]:
    """All that can be seen of a body: place, text with its formats, and what is laid over it."""
    return [_shown(view) for view in body.views]


def _shown(view: TextView) -> tuple:
    laid = [
        [(each.start, each.length, each.format.foreground().color().name(), each.format.background().color().name())
         for each in block.layout().formats()]
        for block in blocks_of(view.document())
    ]  # fmt: skip
    states = [block.userState() for block in blocks_of(view.document())]
    card = view.parentWidget()
    place = card.geometry() if isinstance(card, CodeCard) else view.geometry()
    return type(view).__name__, place.getRect(), view.document().toHtml(), laid, states
