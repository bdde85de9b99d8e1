"""The shown path of a chat as Markdown, and back.

Above each message stands a comment that no renderer shows. A line of a message that looks like one gets a backslash in
front, and one more if it has some already, so that what is read is what was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pilotfish.desktop_app.conversation import Conversation, Message, new_id
from pilotfish.desktop_app.errors import ExchangeError

HEADINGS = {"system": "System prompt", "user": "You", "assistant": "Assistant"}

_MARK = "<!-- pilotfish: {} -->"
_MARKED = re.compile(r"^<!-- pilotfish: (system|user|assistant) -->$")
_LOOKS_MARKED = re.compile(r"^(\\*)(<!-- pilotfish: )", re.MULTILINE)


def chat_to_markdown(conversation: Conversation) -> str:
    """Title, system prompt and the messages that are shown; attachments as fenced blocks of the message."""
    parts = [f"# {' '.join(conversation.title.split())}\n"]
    if conversation.system_prompt:
        parts.append(_section("system", conversation.system_prompt))
    parts.extend(_section(message.role, message.prompt_text) for message in conversation.path)
    return "\n".join(parts)


def chat_from_markdown(text: str, now_s: float) -> Conversation:
    """The chat of `chat_to_markdown`, made now; `ExchangeError` if there is no message in the text."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    title = lines[0].removeprefix("# ").strip() if lines[0].startswith("# ") else ""
    messages: list[Message] = []
    system_prompt = ""
    for role, content in _sections(lines):
        if role == "system":
            system_prompt = content
        else:
            parent_id = messages[-1].id if messages else None
            messages.append(Message(new_id(), parent_id, role, content, now_s))
    if not messages:
        raise ExchangeError(
            f"this Markdown is no chat of pilotfish: it has no line {_MARK.format('user')}; choose a file that "
            "pilotfish has exported"
        )
    return Conversation(new_id(), now_s, title, system_prompt, tuple(messages))


def _section(role: str, text: str) -> str:
    escaped = _LOOKS_MARKED.sub(r"\\\1\2", text.replace("\r\n", "\n"))
    return f"{_MARK.format(role)}\n## {HEADINGS[role]}\n\n{escaped}\n"


def _sections(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Role and text of each section."""
    starts = [number for number, line in enumerate(lines) if _MARKED.match(line)]
    for start, stop in zip(starts, [*starts, len(lines)][1:], strict=True):
        marked = _MARKED.match(lines[start])
        role = marked[1] if marked else ""
        body = lines[start + 1 : stop]
        for expected in (f"## {HEADINGS[role]}", ""):  # either may be gone from a file that was edited
            if body and body[0] == expected:
                del body[0]
        if body and body[-1] == "":
            del body[-1]
        yield role, re.sub(r"^\\(\\*<!-- pilotfish: )", r"\1", "\n".join(body), flags=re.MULTILINE)
