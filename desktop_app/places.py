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
