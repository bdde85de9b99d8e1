"""Everything that touches the model hub: what a repository holds, one file of it, or a whole model folder.

Failures become `CheckpointError` (the repository does not have what was asked for) or `DownloadError` (it could
not be reached), each with a one-line cause. An `OSError` of the local disk passes through as it is.
"""

from __future__ import annotations

import errno
import fnmatch
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pilotfish.runtime.catalog import CatalogModel, HubSource
from pilotfish.runtime.errors import CheckpointError, DownloadError

_DISK_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})
_TIMEOUT_S = 5.0
_WANTED = (
    "README.md",  # its front matter has the licence
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.*",
    "*.safetensors",
    "*.safetensors.index.json",
)
_UNWANTED = ("*/*", "consolidated*")
_FILES = "files"  # the client also makes files beside the folder that it is given, so that is not the work folder


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file that a repository holds; `sha256` is known for large files only."""

    name: str
    num_bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class HubRepository:
    """A model repository at one commit."""

    repo_id: str
    revision: str
    files: tuple[HubFile, ...]

    @property
    def model_files(self) -> tuple[HubFile, ...]:
        """The files that `fetch_model_folder` fetches."""
        return tuple(file for file in self.files if _is_wanted(file.name))


def find_repository(repo_id: str, revision: str | None = None, *, endpoint: str | None = None) -> HubRepository:
    """What the repository holds at `revision` (None: the newest commit). One request, never retried."""
    with _hub_errors(repo_id):
        from huggingface_hub import HfApi

        info = HfApi(endpoint=endpoint).model_info(repo_id, revision=revision, files_metadata=True, timeout=_TIMEOUT_S)
        files = tuple(
            HubFile(file.rfilename, file.size or 0, file.lfs.sha256 if file.lfs else None)
            for file in info.siblings or ()
        )
        return HubRepository(repo_id, info.sha or revision or "main", files)


def fetch_file(source: HubSource, model: CatalogModel, work: Path, *, endpoint: str | None = None) -> Path:
    """Fetches one file to somewhere in `work`, going on with what is there. Other bytes are refused unfetched."""
    repository = find_repository(source.repo_id, source.revision, endpoint=endpoint)
    found = next((file for file in repository.files if file.name == source.file_name), None)
    if found is None:
        raise CheckpointError(f"{source.repo_id} has no file {source.file_name!r}")
    if (found.num_bytes, found.sha256 or model.sha256) != (model.num_bytes, model.sha256):
        raise DownloadError(
            f"the hub's file has {found.num_bytes} bytes and sha256 {found.sha256}, "
            f"expected {model.num_bytes} and {model.sha256}"
        )
    _remove_torn_notes(work / _FILES)
    with _hub_errors(source.repo_id), _no_progress_bars():
        from huggingface_hub import hf_hub_download

        return Path(
            hf_hub_download(
                source.repo_id,
                source.file_name,
                revision=source.revision,
                local_dir=work / _FILES,
                etag_timeout=_TIMEOUT_S,
                endpoint=endpoint,
            )
        )


def fetch_model_folder(
    repository: HubRepository, work: Path, *, with_weights: bool = True, endpoint: str | None = None
) -> Path:
    """Fetches configuration, tokenizer, card and, if wanted, weights, going on with what is there.

    Returns the folder in `work` that has them.
    """
    folder = work / _FILES
    _remove_torn_notes(folder)
    with _hub_errors(repository.repo_id), _no_progress_bars():
        from huggingface_hub import snapshot_download

        snapshot_download(
            repository.repo_id,
            revision=repository.revision,
            local_dir=folder,
            allow_patterns=list(_WANTED),
            ignore_patterns=[*_UNWANTED, *(() if with_weights else ("*.safetensors",))],
            etag_timeout=_TIMEOUT_S,
            endpoint=endpoint,
        )
    return folder


def _remove_torn_notes(folder: Path) -> None:
    """Removes the client's notes on files that it was writing when it was killed: it fails on them."""
    for path in (folder / ".cache/huggingface/download").glob("*.metadata"):
        if path.read_bytes().count(b"\n") < 3:  # commit, checksum and time, a line each
            path.unlink()


def _is_wanted(name: str) -> bool:
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in _UNWANTED):
        return False
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _WANTED)


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    from huggingface_hub import utils

    if utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()


@contextmanager
def _hub_errors(repo_id: str) -> Iterator[None]:
    try:
        from huggingface_hub import errors
    except ImportError as error:
        raise DownloadError("huggingface_hub is not installed: pip install 'pilotfish[export]'") from error
    try:
        yield
    except errors.GatedRepoError as error:
        raise CheckpointError(f"{repo_id} is gated: accept its terms on the hub and set HF_TOKEN") from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(f"the hub shows no model {repo_id!r} (a private one needs HF_TOKEN)") from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(f"{repo_id} does not have the revision that was asked for") from error
    except errors.HFValidationError as error:
        raise CheckpointError(f"{repo_id!r} is not a hub id (owner/name)") from error
    except errors.OfflineModeIsEnabled as error:
        raise DownloadError("HF_HUB_OFFLINE is set: unset it to download") from error
    except Exception as error:
        # The hub client has changed its HTTP library twice, and lets that library's own errors through.
        _reraise_disk_error(error)
        raise DownloadError(f"cannot get it from the hub: {_innermost(error)}") from error


def _reraise_disk_error(error: Exception) -> None:
    if isinstance(error, OSError) and error.errno in _DISK_ERRNOS:
        raise error
    # The hub's transfer library, written in Rust, reports a full disk in its text only.
    if "os error 28" in str(error) or "No space left" in str(error):
        raise OSError(errno.ENOSPC, "No space left on device") from error


def _innermost(error: BaseException) -> str:
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    text = " ".join(str(error).split())[:160]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
