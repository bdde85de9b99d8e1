"""The file of the chat database: opened, brought up to date with a copy made first, moved aside if it is damaged."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pilotfish.desktop_app.errors import NewerDatabaseError, StoreError
from pilotfish.desktop_app.migrations import MIGRATIONS

BUSY_TIMEOUT_S = 2.0

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_VERSION_OFFSET = 60  # of the file header, https://www.sqlite.org/fileformat2.html#user_version_number


def open_database(path: Path, migrations: Sequence[str] = MIGRATIONS) -> tuple[sqlite3.Connection, str]:
    """A connection to the database of version `len(migrations)`, and a notice for the user, mostly empty.

    A damaged file is moved aside and a new one begun; the notice says so. `NewerDatabaseError` for one of a later
    release, which is left as it is; `StoreError` if the file cannot be used.
    """
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _refuse_newer(path, _version_in_header(path), len(migrations))
        try:
            return _opened(path, migrations), ""
        except sqlite3.DatabaseError as error:
            if not _says_damaged(error):
                raise
            aside = _move_aside(path)
            notice = (
                f"The file of your chats was damaged ({error}) and a new one was begun. "
                f"The damaged one is kept as {aside}; copies from before updates lie beside it."
            )
            return _opened(path, migrations), notice


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turns what SQLite and the file system raise into a StoreError that says what to do; a damage passes through."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreError(
            f"the chats in {path} cannot be read or written ({error}); free some space on the disk, make the file "
            "writable, and close other windows of this program"
        ) from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"the chats in {path} cannot be read or written ({error}); start the program again") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be used ({error.strerror or error}); make its folder writable") from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of the block or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def backup_path(path: Path, version: int) -> Path:
    """Where the copy of a database goes before it is brought beyond `version`."""
    return path.with_name(f"{path.stem}.version-{version}{path.suffix}")


def _opened(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        _refuse_newer(path, _version(connection), len(migrations))
        _require_sound(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        _migrate(connection, path, migrations)
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _require_sound(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        error = sqlite3.DatabaseError(found.splitlines()[-1])
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    version = _version(connection)
    if 0 < version < len(migrations):
        _back_up(connection, backup_path(path, version))
    for number in range(version + 1, len(migrations) + 1):
        # `executescript` commits what is open, so the transaction is part of the script.
        script = f"BEGIN IMMEDIATE; {migrations[number - 1]}; PRAGMA user_version = {number}; COMMIT;"
        try:
            connection.executescript(script)
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            raise


def _back_up(connection: sqlite3.Connection, path: Path) -> None:
    unfinished = path.with_suffix(".partial")
    unfinished.unlink(missing_ok=True)
    copy = sqlite3.connect(unfinished)
    try:
        connection.backup(copy)
    finally:
        copy.close()
    os.replace(unfinished, path)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _version_in_header(path: Path) -> int:
    """The version as the file says, read without SQLite, which might touch it; 0 if there is no such file."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        header = file.read(100)
        if header.startswith(b"SQLite format 3\0"):
            return int.from_bytes(header[_VERSION_OFFSET : _VERSION_OFFSET + 4])
    return 0


def _refuse_newer(path: Path, version: int, known: int) -> None:
    if version > known:
        raise NewerDatabaseError(
            f"the chats in {path} were written by a later release (version {version}; this release knows {known}); "
            "install the latest release. Nothing was changed"
        )


def _says_damaged(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF in _DAMAGED


def _move_aside(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    names = (f"{path.stem}.damaged-{stamp}{'' if n == 0 else f'-{n}'}{path.suffix}" for n in range(1000))
    aside = next(candidate for candidate in map(path.with_name, names) if not candidate.exists())
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    return aside
