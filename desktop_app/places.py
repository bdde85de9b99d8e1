"""Where the application keeps what it keeps: one folder, which `--data` moves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import platformdirs


@dataclass(frozen=True, slots=True)
class Places:
    """The files below `folder`; none of them need be there."""

    folder: Path

    @property
    def chats(self) -> Path:
        """The database of chats."""
        return self.folder / "chats.db"

    @property
    def settings(self) -> Path:
        """What the settings dialog changes."""
        return self.folder / "settings.json"

    @property
    def loads(self) -> Path:
        """The record of loads."""
        return self.folder / "loads.json"

    @property
    def drafts(self) -> Path:
        """Messages that were begun and not sent."""
        return self.folder / "drafts.json"

    @property
    def window(self) -> Path:
        """Size and place of the window."""
        return self.folder / "window.ini"

    @property
    def lock(self) -> Path:
        """Held by the program that uses the database."""
        return self.folder / "in-use.lock"


def default_places() -> Places:
    """The platform's folder for data of this user."""
    return Places(platformdirs.user_data_path("pilotfish", appauthor=False))
