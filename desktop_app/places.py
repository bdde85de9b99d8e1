"""Where the desktop application keeps what belongs to the user."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


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


def drafts_path() -> Path:
    """The file of `drafts.Drafts`."""
    return data_dir() / "drafts.json"


def window_path() -> Path:
    """Size and place of the window, as Qt writes them."""
    return data_dir() / "window.ini"


def lock_path() -> Path:
    """Held by the program that uses these files."""
    return data_dir() / "in-use.lock"
