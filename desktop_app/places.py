<<<<<<< HEAD
"""Where the application keeps what it keeps: one folder, which `--data` moves."""

from __future__ import annotations

from dataclasses import dataclass
=======
"""Where the desktop application keeps what belongs to the user."""

from __future__ import annotations

import os
>>>>>>> w-rooms
from pathlib import Path

import platformdirs


<<<<<<< HEAD
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
=======
def data_dir() -> Path:
    """`PILOTFISH_DATA`, else the platform's folder for data of the user. Not created."""
    chosen = os.environ.get("PILOTFISH_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_data_path("pilotfish", appauthor=False)


def settings_path() -> Path:
    """The file of `settings.Settings`."""
    return data_dir() / "settings.json"


def chats_path() -> Path:
    """The database of `store.Store`."""
    return data_dir() / "chats.sqlite"


def load_record_path() -> Path:
    """The file of `load_record.LoadRecord`."""
    return data_dir() / "loads.json"
>>>>>>> w-rooms
