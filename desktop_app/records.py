"""Rows of the chat database to messages and back. A row that cannot be read becomes a message that says so."""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import Any

from pilotfish.desktop_app.codec import decoded, encoded, parse_json
from pilotfish.desktop_app.conversation import Attachment, Message, ReplyStats, Span
from pilotfish.desktop_app.errors import DesktopError, FormatError

COLUMNS = "id, parent_id, role, text, created_s, state, details"


@dataclass(frozen=True, slots=True)
class _Details:
    """What is kept of a message as JSON, since nothing is ever looked up by it.

    `spans` has a line "origin:characters" for each: a long reply has thousands, and is written while it streams.
    """

    error: str = ""
    spans: str = ""
    attachments: tuple[Attachment, ...] = ()
    stats: ReplyStats | None = None


def row_of(message: Message) -> tuple[object, ...]:
    """The values of `COLUMNS`."""
    details = _Details(message.error, _lines_of(message.spans), message.attachments, message.stats)
    text = json.dumps(encoded(details), ensure_ascii=False)
    return message.id, message.parent_id, message.role, message.text, message.created_s, message.state, text


def searchable_text(message: Message) -> str:
    """What the search finds a message by."""
    return "\n".join([message.text, *(f"{each.name}\n{each.text}" for each in message.attachments)])


def messages_of(rows: Iterable[tuple[Any, ...]]) -> tuple[Message, ...]:
    """The messages of rows of `COLUMNS`, in their order."""
    messages: list[Message] = []
    known: set[str] = set()
    for number, row in enumerate(rows):
        message = _message(row, known, f"damaged-{number}")
        messages.append(message)
        known.add(message.id)
    return tuple(messages)


def _message(row: tuple[Any, ...], known: Set[str], spare_id: str) -> Message:
    message_id, parent_id, role, text, created_s, state, details = row
    try:
        values = {"id": message_id, "parent_id": parent_id, "role": role, "text": text, "created_s": created_s}
        kept = decoded(_Details, parse_json(details))
        message = decoded(Message, {**values, "state": state})
        message = replace(
            message, error=kept.error, spans=_spans_of(kept.spans), attachments=kept.attachments, stats=kept.stats
        )
        if parent_id is not None and parent_id not in known:
            return _unreadable(message.id, None, "the message that it answers is missing", message)
    except (DesktopError, TypeError, UnicodeDecodeError) as error:
        return _unreadable(
            message_id if isinstance(message_id, str) else spare_id,
            parent_id if parent_id in known else None,
            str(error),
        )
    return message


def _lines_of(spans: Iterable[Span]) -> str:
    return "\n".join([f"{span.origin}:{span.num_characters}" for span in spans])


def _spans_of(lines: str) -> tuple[Span, ...]:
    """`FormatError` if a line is no span."""
    parts = [line.rpartition(":") for line in lines.split("\n")] if lines else []
    try:
        return tuple([Span(origin, int(number)) for origin, _, number in parts])
    except ValueError as error:
        raise FormatError(f"the spans cannot be read ({error})") from error


def _unreadable(message_id: str, parent_id: str | None, fault: str, found: Message | None = None) -> Message:
    return Message(
        message_id, parent_id, found.role if found else "assistant", found.text if found else "",
        found.created_s if found else 0.0, "unreadable", f"This message is damaged on disk: {fault}.",
    )  # fmt: skip
