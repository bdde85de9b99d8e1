"""Chats as files: exported as Markdown or JSON by the file's ending, imported from either."""

from __future__ import annotations

from pathlib import Path

from pilotfish.desktop_app.conversation import Conversation
from pilotfish.desktop_app.errors import ExchangeError
from pilotfish.desktop_app.json_exchange import chat_from_json, chat_to_json
from pilotfish.desktop_app.markdown_exchange import chat_from_markdown, chat_to_markdown
from pilotfish.runtime.whole_file import write_whole

MAX_IMPORT_BYTES = 64 << 20
JSON_SUFFIX = ".json"


def export_chat(conversation: Conversation, path: Path) -> None:
    """Writes `path`: the whole tree if it ends in `.json`, else the shown path as Markdown. Replaces a file.

    `ExchangeError` if it cannot be written; a file that was there is then as before.
    """
    is_json = path.suffix.lower() == JSON_SUFFIX
    text = chat_to_json(conversation) if is_json else chat_to_markdown(conversation)
    try:
        write_whole(path, text, newline="\n")
    except OSError as error:
        raise ExchangeError(f"{path} cannot be written ({error.strerror}); choose another folder") from error


def import_chat(path: Path, now_s: float) -> Conversation:
    """The chat in a file, under ids of its own; `ExchangeError` says what is wrong with the file."""
    text = _text(path)
    is_json = path.suffix.lower() == JSON_SUFFIX or text.lstrip().startswith("{")
    return chat_from_json(text) if is_json else chat_from_markdown(text, now_s)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_IMPORT_BYTES + 1)
    except OSError as error:
        raise ExchangeError(f"{path} cannot be read ({error.strerror}); choose another file") from error
    if len(content) > MAX_IMPORT_BYTES:
        raise ExchangeError(f"{path} is over {MAX_IMPORT_BYTES >> 20} MB; no exported chat is that large")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ExchangeError(f"{path} is not text in UTF-8 ({error}); choose a file that was exported") from error
