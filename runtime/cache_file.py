"""Saves what the caches hold in one file, and fills them from it, so that a long prompt is read only once.

The file is a line that names its kind, the SHA-256 of all that follows, a header in one line of JSON, and the arrays of
each cache. Axis letters: `L` layers, `H` kv heads, `T` cached tokens, `D` head size.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.errors import CacheFileError, StorageError
from pilotfish.runtime.kv_cache import KvCache

FORMAT_VERSION = 1

_MAGIC = b"pilotfish caches\n"
_MAX_HEADER_BYTES = 1 << 26
_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    """The arrays of one cache, keys and values by turns: together (2 * L, 1, H, T, D)."""

    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if len(self.shape) != 5 or not _are_counts(self.shape) or self.dtype not in ("<f4", "<f2"):
            raise ValueError(f"a cache of {self.dtype!r} {self.shape}")

    @property
    def length(self) -> int:
        return self.shape[3]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class _Header:
    token_ids: tuple[int, ...]
    caches: Mapping[str, _CacheEntry]

    def __post_init__(self) -> None:
        if not _are_counts(self.token_ids):
            raise ValueError("a token id is not a whole number")
        for role, entry in self.caches.items():
            if entry.length > len(self.token_ids):
                raise ValueError(f"the {role} cache holds {entry.length} of {len(self.token_ids)} tokens")

    @property
    def num_bytes(self) -> int:
        return sum(entry.num_bytes for entry in self.caches.values())


def save_caches(path: Path, fingerprint: str, token_ids: Sequence[int], decoders: Mapping[str, Decoder]) -> None:
    """Writes token ids and what the cache of each decoder, by role, holds of them: the first so many.

    `fingerprint` stands for all that the cached bits depend on. The file appears, or replaces an older one, only when
    it is complete. `StorageError` if it cannot be written, `ValueError` if a cache holds more tokens than are given.
    """
    caches = {role: _entry(decoder.cache, decoder.length) for role, decoder in decoders.items()}
    header = _Header(tuple(map(int, token_ids)), caches)
    line = json.dumps({"format": FORMAT_VERSION, "fingerprint": fingerprint, **asdict(header)})
    partial = path.parent / f".{path.name}.{secrets.token_hex(4)}.partial"
    try:
        with partial.open("xb") as file:
            _write(file, line, decoders)
        os.replace(partial, path)
    except OSError as error:
        raise StorageError(
            f"cannot save the caches to {path}: {error.strerror or error} ({header.num_bytes:,} bytes needed); "
            "free some space, or choose a file in a folder that is there and writable"
        ) from error
    finally:
        with suppress(OSError):  # it is gone where all went well
            partial.unlink()


def restore_caches(path: Path, fingerprint: str, decoders: Mapping[str, Decoder]) -> list[int]:
    """Fills the caches of the decoders, in place, and returns the token ids. One of the roles is `target`.

    A draft that the file has no cache of starts empty. `CacheFileError` if the file is missing, damaged, of another
    fingerprint, or longer than the context. The caches are then as they were; only if the file cannot be read on after
    it was found sound are they empty.
    """
    try:
        with path.open("rb") as file:
            header = _read_header(file, path, fingerprint)
            _check_fit(header, path, decoders)
            _fill(file, header, decoders)
    except OSError as error:
        raise CacheFileError(f"cannot read {path}: {error.strerror or error}; save it again") from error
    return list(header.token_ids)


def _write(file: BufferedWriter, line: str, decoders: Mapping[str, Decoder]) -> None:
    digest = hashlib.sha256()

    def write(data: bytes | memoryview) -> None:
        file.write(data)
        digest.update(data)

    file.write(_MAGIC + bytes(_DIGEST_BYTES))
    write(line.encode() + b"\n")
    for decoder in decoders.values():
        for array in decoder.cache.read_tokens():
            write(array.reshape(-1).data)
    file.seek(len(_MAGIC))
    file.write(digest.digest())


def _read_header(file: BufferedReader, path: Path, fingerprint: str) -> _Header:
    """Reads the file to its end to see that it is sound, and leaves it at the first array."""
    if file.read(len(_MAGIC)) != _MAGIC:
        raise CacheFileError(f"{path} is not a file of saved caches; choose another, or save one")
    digest, start = file.read(_DIGEST_BYTES), file.tell()
    if hashlib.file_digest(file, "sha256").digest() != digest:
        raise CacheFileError(f"{path} is damaged: its checksum is wrong; save it again")
    file.seek(start)
    try:
        values = json.loads(file.readline(_MAX_HEADER_BYTES))
        for name, own in (("format", FORMAT_VERSION), ("fingerprint", fingerprint)):
            if values[name] != own:
                raise CacheFileError(f"{path} has the {name} {values[name]!r} and {own!r} is needed; save it again")
        caches = {role: _CacheEntry(tuple(entry["shape"]), entry["dtype"]) for role, entry in values["caches"].items()}
        header = _Header(tuple(values["token_ids"]), caches)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise CacheFileError(f"{path} has a faulty header ({error}); save it again") from error
    num_bytes = os.fstat(file.fileno()).st_size - file.tell()
    if num_bytes != header.num_bytes:
        raise CacheFileError(f"{path} has arrays of {num_bytes} bytes instead of {header.num_bytes}; save it again")
    return header


def _check_fit(header: _Header, path: Path, decoders: Mapping[str, Decoder]) -> None:
    target = decoders["target"]
    if len(header.token_ids) > target.context_length:
        raise CacheFileError(
            f"{path} holds {len(header.token_ids)} tokens and the context {target.context_length}; load with a longer "
            "context, or save a shorter prompt"
        )
    fits = "target" in header.caches and all(token_id < target.vocab_size for token_id in header.token_ids)
    for role in decoders.keys() & header.caches.keys():
        decoder, entry = decoders[role], header.caches[role]
        fits = fits and entry.length <= decoder.context_length and entry == _entry(decoder.cache, entry.length)
    if not fits:
        raise CacheFileError(f"{path} does not fit the models, of which it has {header.caches}; save it again")


def _fill(file: BufferedReader, header: _Header, decoders: Mapping[str, Decoder]) -> None:
    _empty(decoders)
    try:
        for role, entry in header.caches.items():
            if role in decoders:
                decoders[role].cache.write_tokens(entry.length, _arrays(file, entry))
            else:
                file.seek(entry.num_bytes, os.SEEK_CUR)
    except BaseException:
        _empty(decoders)
        raise


def _empty(decoders: Mapping[str, Decoder]) -> None:
    for decoder in decoders.values():
        decoder.rollback(0)


def _arrays(file: BufferedReader, entry: _CacheEntry) -> Iterator[NDArray[Any]]:
    num_arrays, *shape = entry.shape
    num_bytes = entry.num_bytes // num_arrays
    for _ in range(num_arrays):
        data = file.read(num_bytes)
        if len(data) != num_bytes:
            raise OSError("it became shorter while it was read")
        yield np.frombuffer(data, entry.dtype).reshape(shape)


def _entry(cache: KvCache, length: int) -> _CacheEntry:
    return _CacheEntry((len(cache.buffers), *cache.tokens_shape(length)), cache.dtype.str)


def _are_counts(values: Sequence[object]) -> bool:
    return all(type(value) is int and 0 <= value < 1 << 31 for value in values)
