"""Messages that were begun and not sent, one for each chat, kept in a small file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pilotfish.desktop_app.conversation import Attachment, as_unicode
from pilotfish.desktop_app.small_file import read_small, write_small

NEW_CHAT = ""  # the key of the chat that is not stored yet


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
        self._drafts = dict(read_small(path, _File()).drafts)
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
        write_small(self._path, _File(self._drafts))
