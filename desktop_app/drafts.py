"""Messages that were begun and not sent, one for each chat, kept in a small file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pilotfish.desktop_app.codec import decoded, encoded, parse_json
from pilotfish.desktop_app.conversation import Attachment, as_unicode
from pilotfish.desktop_app.errors import FormatError

NEW_CHAT = ""  # the key of the chat that is not stored yet

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that was not sent yet."""

    text: str = ""
    attachments: tuple[Attachment, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be lost with it."""
        return not (self.text.strip() or self.attachments)


@dataclass(frozen=True, slots=True)
class _File:
    drafts: Mapping[str, Draft] = field(default_factory=dict)


class Drafts:
    """The drafts by the id of their chat. A file that cannot be read or written costs the drafts only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._drafts = _read(path)
        self._temporary: dict[str, Draft] = {}

    def get(self, chat_id: str) -> Draft:
        """What was begun in a chat; an empty draft if nothing was."""
        return self._temporary.get(chat_id) or self._drafts.get(chat_id) or Draft()

    def put(self, chat_id: str, draft: Draft, *, is_temporary: bool = False) -> None:
        """Keeps it in memory; `save` writes all but the temporary ones."""
        drafts = self._temporary if is_temporary else self._drafts
        if draft.is_empty:
            drafts.pop(chat_id, None)
        else:
            drafts[chat_id] = Draft(as_unicode(draft.text), draft.attachments)

    def save(self) -> None:
        """Writes the file."""
        unfinished = self._path.with_name(f".{self._path.name}.partial")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_text(json.dumps(encoded(_File(self._drafts))), encoding="utf-8")
            os.replace(unfinished, self._path)
        except OSError as error:
            _logger.warning("%s cannot be written: %s", self._path, error)


def _read(path: Path) -> dict[str, Draft]:
    try:
        return dict(decoded(_File, parse_json(path.read_bytes())).drafts)
    except FileNotFoundError:
        return {}
    except (OSError, FormatError) as error:
        _logger.warning("%s cannot be read and is begun anew: %s", path, error)
        return {}
