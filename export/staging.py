"""A folder that files are written into: free space, a lock between processes, progress, disk errors."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from pilotfish.runtime.errors import StorageError

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all), from a second thread while a download runs; must not raise."""

_POLL_INTERVAL_S = 0.2


def require_free_space(path: Path, num_bytes: int) -> None:
    """`StorageError` unless the disk on which `path` is, or is to be made, has room for `num_bytes` more."""
    free = free_bytes(path)
    if free < num_bytes:
        raise StorageError(_disk_full(_nearest_folder(path), num_bytes, free))


def free_bytes(path: Path) -> int:
    """Bytes free on the disk on which `path` is, or is to be made."""
    return shutil.disk_usage(_nearest_folder(path)).free


@contextmanager
def disk_errors(path: Path, num_bytes: int = 0) -> Iterator[None]:
    """Turns an OSError into a StorageError that names `path`, the bytes needed for it and those free."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(_disk_full(path, num_bytes, free_bytes(path))) from error
        raise StorageError(
            f"cannot use {error.filename or path}: {error.strerror or error}; "
            "make it writable, or choose another folder (PILOTFISH_CACHE moves downloads and the demo) "
            f"({num_bytes:,} bytes needed for {path}, {free_bytes(path):,} free)"
        ) from error


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Waits until no other process or thread holds the lock file; a holder that is killed lets go of it."""
    with path.open("a", encoding="utf-8") as file:
        _wait_for_lock(file)
        yield


@contextmanager
def report_growth(folder: Path, num_bytes: int, progress: Progress | None) -> Iterator[None]:
    """Reports the size of `folder` as progress towards `num_bytes` until the block ends."""
    if progress is None:
        yield
        return
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(_POLL_INTERVAL_S):
            progress(min(folder_bytes(folder), num_bytes), num_bytes)

    thread = threading.Thread(target=watch, name="pilotfish-download-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def folder_bytes(folder: Path) -> int:
    """Bytes in all files below `folder`; 0 if there is no such folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # the downloader renames its files while they are counted
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _disk_full(path: Path, num_bytes: int, free: int) -> str:
    return (
        f"the disk is too full for {path}: {num_bytes:,} bytes needed, {free:,} free; "
        "free some space, or choose a folder on another disk (PILOTFISH_CACHE moves downloads and the demo)"
    )


def _nearest_folder(path: Path) -> Path:
    """The folder that is there already: `path`, or the one in which it and those above it would be made."""
    path = path.absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


if sys.platform == "win32":
    import msvcrt

    def _wait_for_lock(file: IO[str]) -> None:
        while True:
            try:
                return msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
            except OSError as error:
                if error.errno != errno.EDEADLK:  # msvcrt gives up after ten seconds
                    raise

else:
    import fcntl

    def _wait_for_lock(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)


@contextmanager
def temporary_folder(cache: Path) -> Iterator[Path]:
    """A hidden folder among the bundles, which `pilotfish rm --leftovers` finds should the process be killed."""
    bundles = cache / "bundles"
    bundles.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".tried-", suffix=".partial", dir=bundles) as folder:
        yield Path(folder)
