"""A chat as a JSON text, with all its branches, and back."""

from __future__ import annotations

import json

from pilotfish.desktop_app.codec import decoded, encoded, parse_json
from pilotfish.desktop_app.conversation import Conversation, with_new_ids
from pilotfish.desktop_app.errors import ConversationError, ExchangeError, FormatError

FORMAT = "pilotfish-chat"
FORMAT_VERSION = 1


def chat_to_json(conversation: Conversation) -> str:
    """The whole tree; a reply that is being written is there as far as it is."""
    head = {"format": FORMAT, "version": FORMAT_VERSION}
    return json.dumps(head | {"chat": encoded(conversation)}, indent=1, ensure_ascii=False) + "\n"


def chat_from_json(text: str) -> Conversation:
    """The chat of `chat_to_json`, under ids of its own; `ExchangeError` for anything else, with the place."""
    try:
        values = parse_json(text)
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ExchangeError(f'this JSON is no chat of pilotfish: its "format" is not "{FORMAT}"')
        if values.get("version") != FORMAT_VERSION:
            raise ExchangeError(
                f"this chat has version {str(values.get('version'))[:20]} of the format, and this release reads "
                f"{FORMAT_VERSION}; install the latest release"
            )
        conversation = decoded(Conversation, values.get("chat"), "chat")
    except (FormatError, ConversationError) as error:
        raise ExchangeError(f"this file cannot be imported: {error}; export the chat again") from error
    return with_new_ids(conversation)
