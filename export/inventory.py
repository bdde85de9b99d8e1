"""What is kept on disk: bundles, downloaded models, and what interrupted commands have left behind.

The cache folder has `bundles/`, one folder each, and `downloads/`, one file or folder each with helper files beside it;
`download.py` and `bundle_writer.py` say what unfinished work is called.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pilotfish.export.staging import disk_errors, folder_bytes
from pilotfish.runtime.bundle import MANIFEST, Manifest, load_bundle
from pilotfish.runtime.errors import BundleError, OptionError

IN_USE_S = 600.0  # unfinished work that was written to more recently may belong to a command that still runs

_UNFINISHED = re.compile(r"\..+\.partial|.+\.(part|hub|pip|whl)")
_HELPERS = (".verified", ".lock")


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """A bundle folder. `manifest` is None if the bundle is damaged, and `fault` then says how."""

    path: Path
    num_bytes: int
    manifest: Manifest | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A downloaded model, which is a file or a folder, or a leftover; `num_bytes` is all that is in it."""

    path: Path
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a cache folder holds, each kind sorted by name."""

    bundles: tuple[BundleEntry, ...]
    downloads: tuple[FileEntry, ...]
    leftovers: tuple[FileEntry, ...]


def take_inventory(cache: Path) -> Inventory:
    """Looks through a cache folder, which need not exist. A damaged bundle is listed, never an error."""
    bundles, downloads = (list(_entries(cache / name)) for name in ("bundles", "downloads"))
    return Inventory(
        bundles=tuple(_bundle(path) for path in bundles if path.is_dir() and not _is_unfinished(path)),
        downloads=tuple(_file(path) for path in downloads if not _is_unfinished(path) and not _is_helper(path)),
        leftovers=tuple(_file(path) for path in (*bundles, *downloads) if _is_unfinished(path) or _is_orphan(path)),
    )


def bundles_in(folder: Path) -> tuple[BundleEntry, ...]:
    """The bundle that `folder` is, or those directly in it; `OptionError` if there is no such folder."""
    if not folder.is_dir():
        raise OptionError(f"{folder} is not a folder; give a bundle, or a folder with bundles in it")
    if (folder / MANIFEST).is_file():
        return (_bundle(folder),)
    return tuple(_bundle(path) for path in _entries(folder) if (path / MANIFEST).is_file())


def find_entries(cache: Path, names: Iterable[str]) -> tuple[Path, ...]:
    """The bundles and downloads of these names; `OptionError` for a path, or for a name that is not there."""
    inventory = take_inventory(cache)
    known = [bundle.path for bundle in inventory.bundles] + [download.path for download in inventory.downloads]
    found = []
    for name in names:
        if name != Path(name).name or "\\" in name:
            raise OptionError(
                f"{name!r} is a path; give the name of a bundle or a download, as `pilotfish ls` lists it"
            )
        paths = [path for path in known if path.name == name]
        if len(paths) != 1:
            listed = ", ".join(path.name for path in known) or "nothing"
            what = "both a bundle and a download are" if paths else "no bundle or download is"
            raise OptionError(f"{what} named {name!r} in {cache} (there: {listed})")
        found.extend(paths)
    return tuple(found)


def idle_leftovers(inventory: Inventory, now_s: float) -> tuple[FileEntry, ...]:
    """The leftovers that no command has written to for a while; `now_s` is in seconds since the epoch."""
    return tuple(entry for entry in inventory.leftovers if now_s - _last_written_s(entry.path) > IN_USE_S)


def remove(path: Path) -> None:
    """Deletes a bundle, a download with its helper files, or a leftover; of a symbolic link only the link.

    A folder is renamed first, so that what an interrupt leaves of it is a leftover. `StorageError` if it cannot go.
    """
    doomed = path if _is_unfinished(path) else path.with_name(f".{path.name}.deleted.partial")
    with disk_errors(path):
        if path.is_symlink() or path.is_file():
            path.unlink()
        else:
            if doomed.exists() and doomed != path:  # of an earlier deletion that broke off
                shutil.rmtree(doomed)
            shutil.rmtree(path.rename(doomed))
        for suffix in _HELPERS:
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def _entries(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.iterdir()) if folder.is_dir() else ()


def _bundle(path: Path) -> BundleEntry:
    num_bytes = folder_bytes(path)
    try:
        return BundleEntry(path, num_bytes, load_bundle(path).manifest)
    except (BundleError, OSError, ValueError, RecursionError) as error:
        return BundleEntry(path, num_bytes, None, str(error))


def _file(path: Path) -> FileEntry:
    return FileEntry(path, folder_bytes(path) if path.is_dir() else path.lstat().st_size)


def _is_unfinished(path: Path) -> bool:
    return _UNFINISHED.fullmatch(path.name) is not None


def _is_helper(path: Path) -> bool:
    return path.suffix in _HELPERS


def _is_orphan(path: Path) -> bool:
    """Whether a helper file's download is gone, and no unfinished one of that name is there either."""
    owner = path.with_suffix("")
    unfinished = (owner.with_name(f"{owner.name}.{suffix}") for suffix in ("part", "hub", "pip"))
    return _is_helper(path) and not any(candidate.exists() for candidate in (owner, *unfinished))


def _last_written_s(path: Path) -> float:
    paths = [path, *(Path(parent, name) for parent, _, names in os.walk(path) for name in names)]
    return max((each.lstat().st_mtime for each in paths if each.is_symlink() or each.exists()), default=time.time())
