"""What caches hold survives a file bit by bit; a file that is not whole, or not of these models, changes nothing."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.runtime import cache_file
from pilotfish.runtime.bundle import ModelEntry, load_bundle
from pilotfish.runtime.bus import Bus
from pilotfish.runtime.cache_file import restore_caches, save_caches
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.errors import CacheFileError, StorageError
from pilotfish.runtime.kv_cache import KvCache
from support.tiny_models import CONFIG, tiny_bundle

IDS = np.random.default_rng(3).integers(0, 300, 40).tolist()
OTHER_IDS = np.random.default_rng(4).integers(0, 300, 50).tolist()
NEXT = [5, 6, 7]
MAGIC = b"pilotfish caches\n"
HEADER_START = len(MAGIC) + 32

Decoders = dict[str, Decoder]


def models(path: Path) -> dict[str, ModelEntry]:
    manifest = load_bundle(path).manifest
    return {"target": manifest.target} | ({"draft": manifest.draft} if manifest.draft else {})


@pytest.fixture
def opened(bundle_path: Path) -> Iterator[Callable[..., Decoders]]:
    with ExitStack() as stack:

        def open_decoders(*roles: str, context_length: int = 64, path: Path = bundle_path) -> Decoders:
            return {
                role: stack.enter_context(
                    Decoder(model, path / model.graph, device="cpu", context_length=context_length, num_threads=1)
                )
                for role, model in models(path).items()
                if role in (roles or ("target", "draft"))
            }

        yield open_decoders


def fill(decoders: Decoders, ids: list[int], draft_length: int) -> Decoders:
    for role, decoder in decoders.items():
        decoder.rollback(0)
        decoder.forward(ids if role == "target" else ids[:draft_length], 0)
    return decoders


@pytest.fixture
def saved(opened: Callable[..., Decoders], tmp_path: Path) -> tuple[Path, Decoders]:
    """A file of the caches of `IDS`, of which the draft has read 37, and the decoders that it was made of."""
    decoders = fill(opened(), IDS, 37)
    path = tmp_path / "prompt.cache"
    save_caches(path, "this engine", IDS, decoders)
    return path, decoders


@pytest.fixture
def others(opened: Callable[..., Decoders]) -> Decoders:
    """Decoders whose caches hold another text."""
    return fill(opened(), OTHER_IDS, 45)


def next_logits(decoder: Decoder, ids: list[int] | None = None) -> np.ndarray:
    """The logits after `ids`; the cache holds as many tokens afterwards as before."""
    length = decoder.length
    logits = decoder.forward(ids or NEXT, len(ids or NEXT)).copy()
    decoder.rollback(length)
    return logits


def snapshot(decoders: Decoders) -> dict[str, tuple[int, list[bytes]]]:
    return {
        role: (decoder.length, [buffer.numpy().tobytes() for buffer in decoder.cache.buffers.values()])
        for role, decoder in decoders.items()
    }


def assert_refused(path: Path, decoders: Decoders, reason: str, fingerprint: str = "this engine") -> None:
    before = snapshot(decoders)
    with pytest.raises(CacheFileError, match=reason) as caught:
        restore_caches(path, fingerprint, decoders)
    assert str(path) in str(caught.value)
    assert snapshot(decoders) == before


def with_header(content: bytes, edit: Callable[[dict], object]) -> bytes:
    """The same file with another header and the checksum that goes with it. `edit` changes it or gives another."""
    line, arrays = content[HEADER_START:].split(b"\n", 1)
    header = json.loads(line)
    edited = edit(header)
    body = json.dumps(header if edited is None else edited).encode() + b"\n" + arrays
    return MAGIC + hashlib.sha256(body).digest() + body


def test_the_next_logits_are_the_same_bits(saved: tuple[Path, Decoders], others: Decoders):
    path, decoders = saved
    addresses = [buffer.data_ptr() for decoder in others.values() for buffer in decoder.cache.buffers.values()]
    before = {role: next_logits(decoder) for role, decoder in others.items()}
    assert restore_caches(path, "this engine", others) == IDS
    assert {role: decoder.length for role, decoder in others.items()} == {"target": 40, "draft": 37}
    for role, decoder in others.items():
        np.testing.assert_array_equal(next_logits(decoder), next_logits(decoders[role]))
        assert not np.array_equal(before[role], next_logits(decoder))
    assert addresses == [buffer.data_ptr() for decoder in others.values() for buffer in decoder.cache.buffers.values()]


def test_a_restored_cache_rolls_back_and_goes_on(saved: tuple[Path, Decoders], others: Decoders):
    path, decoders = saved
    restore_caches(path, "this engine", others)
    for role, decoder in others.items():
        for side in (decoder, decoders[role]):
            side.rollback(20)
        np.testing.assert_array_equal(next_logits(decoder, IDS[20:]), next_logits(decoders[role], IDS[20:]))
        for side in (decoder, decoders[role]):
            side.forward(OTHER_IDS[:30], 0)
        np.testing.assert_array_equal(next_logits(decoder), next_logits(decoders[role]))


def test_a_context_of_another_length_takes_the_same_file(saved: tuple[Path, Decoders], opened: Callable[..., Decoders]):
    path, decoders = saved
    exact, longer = opened(context_length=len(IDS)), opened(context_length=200)
    for restored in (exact, longer):
        assert restore_caches(path, "this engine", restored) == IDS
    assert exact["target"].length == exact["target"].context_length
    for role in decoders:
        np.testing.assert_array_equal(next_logits(longer[role]), next_logits(decoders[role]))


def test_empty_caches_make_a_file_too(opened: Callable[..., Decoders], others: Decoders, tmp_path: Path):
    path = tmp_path / "empty.cache"
    save_caches(path, "this engine", [], opened())
    assert restore_caches(path, "this engine", others) == []
    assert [decoder.length for decoder in others.values()] == [0, 0]


def test_a_draft_that_the_file_lacks_starts_empty(opened: Callable[..., Decoders], others: Decoders, tmp_path: Path):
    path, target = tmp_path / "target.cache", fill(opened("target"), IDS, 0)
    save_caches(path, "this engine", np.asarray(IDS), target)
    assert restore_caches(path, "this engine", others) == IDS
    assert (others["target"].length, others["draft"].length) == (40, 0)
    np.testing.assert_array_equal(next_logits(others["target"]), next_logits(target["target"]))


@pytest.mark.parametrize("order", [("target", "draft"), ("draft", "target")])
def test_a_draft_that_only_the_file_has_is_passed_over(
    saved: tuple[Path, Decoders], opened: Callable[..., Decoders], order: tuple[str, str]
):
    path, decoders = saved
    save_caches(path, "this engine", IDS, {role: decoders[role] for role in order})
    alone = fill(opened("target"), OTHER_IDS, 0)
    assert restore_caches(path, "this engine", alone) == IDS
    np.testing.assert_array_equal(next_logits(alone["target"]), next_logits(decoders["target"]))


def test_another_fingerprint_is_refused(saved: tuple[Path, Decoders], others: Decoders):
    reason = "fingerprint 'this engine' and 'that engine' is needed; save it again"
    assert_refused(saved[0], others, reason, fingerprint="that engine")


def test_a_file_longer_than_the_context_is_refused(saved: tuple[Path, Decoders], opened: Callable[..., Decoders]):
    short = fill(opened(context_length=39), OTHER_IDS[:30], 20)
    assert_refused(saved[0], short, r"holds 40 tokens and the context 39; load with a longer context")


def test_a_draft_longer_than_its_own_context_is_refused(saved: tuple[Path, Decoders], opened: Callable[..., Decoders]):
    decoders = fill(opened("target") | opened("draft", context_length=36), OTHER_IDS[:36], 20)
    assert_refused(saved[0], decoders, "does not fit the models")


def test_models_of_another_shape_are_refused(
    saved: tuple[Path, Decoders], opened: Callable[..., Decoders], tmp_path: Path
):
    for name, change in {"layers": {"num_layers": 3}, "heads": {"num_kv_heads": 1}}.items():
        (tmp_path / name).mkdir()
        path = tiny_bundle(tmp_path / name, config=replace(CONFIG, **change))
        assert_refused(saved[0], fill(opened(path=path), OTHER_IDS, 45), "does not fit the models")


def test_every_truncation_is_refused(saved: tuple[Path, Decoders], others: Decoders, tmp_path: Path):
    content, part = saved[0].read_bytes(), tmp_path / "part.cache"
    arrays = content.index(b"\n", HEADER_START) + 1
    before = snapshot(others)
    for length in {*range(arrays + 2), *range(arrays, len(content), 499), *range(len(content) - 40, len(content))}:
        part.write_bytes(content[:length])
        with pytest.raises(CacheFileError, match="not a file of saved caches" if length < len(MAGIC) else "is damaged"):
            restore_caches(part, "this engine", others)
    assert snapshot(others) == before


def test_every_changed_byte_is_noticed(saved: tuple[Path, Decoders], others: Decoders, tmp_path: Path):
    content, changed = saved[0].read_bytes(), tmp_path / "changed.cache"
    before = snapshot(others)

    @given(st.one_of(st.integers(0, HEADER_START + 400), st.integers(0, len(content) - 1)), st.integers(1, 255))
    def refused(position: int, flipped: int) -> None:
        changed.write_bytes(content[:position] + bytes([content[position] ^ flipped]) + content[position + 1 :])
        with pytest.raises(CacheFileError):
            restore_caches(changed, "this engine", others)

    refused()
    assert snapshot(others) == before


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a file of saved caches"),
        (b"PK\x03\x04" + bytes(1000), "not a file of saved caches"),
        (np.random.default_rng(0).bytes(5000), "not a file of saved caches"),
        (MAGIC, "is damaged"),
        (MAGIC + np.random.default_rng(0).bytes(5000), "is damaged"),
    ],
)
def test_garbage_is_refused(others: Decoders, tmp_path: Path, content: bytes, reason: str):
    path = tmp_path / "garbage.cache"
    path.write_bytes(content)
    assert_refused(path, others, reason)


@pytest.mark.parametrize("line", [b"", b"\n", b"{\n", b"[" * 200_000, b"9" * 5000, b"\xff\xfe\n", b"null\n", b"[]\n"])
def test_a_header_that_is_no_object_is_refused(others: Decoders, tmp_path: Path, line: bytes):
    path = tmp_path / "garbage.cache"
    path.write_bytes(MAGIC + hashlib.sha256(line).digest() + line)
    assert_refused(path, others, "faulty header")


def test_bytes_behind_the_arrays_are_refused(saved: tuple[Path, Decoders], others: Decoders):
    path, _ = saved
    body = path.read_bytes()[HEADER_START:] + bytes(100)
    path.write_bytes(MAGIC + hashlib.sha256(body).digest() + body)
    assert_refused(path, others, r"arrays of \d+ bytes instead of \d+")


def test_a_file_that_is_not_there_or_a_folder_is_refused(others: Decoders, tmp_path: Path):
    assert_refused(tmp_path / "missing.cache", others, "cannot read .* No such file")
    assert_refused(tmp_path, others, "cannot read ")


def set_entry(role: str, **changes: object) -> Callable[[dict], None]:
    return lambda header: header["caches"][role].update(changes)


def test_an_equal_header_is_accepted(saved: tuple[Path, Decoders], others: Decoders):
    """What the refusals of the tests below rest on: `with_header` alone spoils nothing."""
    path, _ = saved
    path.write_bytes(with_header(path.read_bytes(), lambda header: None))
    assert restore_caches(path, "this engine", others) == IDS


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda header: header.update(format=2), "format 2 and 1 is needed; save it again"),
        (lambda header: header.update(format=None), "format None and 1 is needed"),
        (lambda header: header.pop("format"), "faulty header"),
        (lambda header: header.pop("fingerprint"), "faulty header"),
        (lambda header: header.update(fingerprint=["this engine"]), "fingerprint"),
        (lambda header: header.update(token_ids=7), "faulty header"),
        (lambda header: header.update(token_ids=["5"] * 40), "not a whole number"),
        (lambda header: header.update(token_ids=[*IDS[:-1], -1]), "not a whole number"),
        (lambda header: header.update(token_ids=[*IDS[:-1], True]), "not a whole number"),
        (lambda header: header.update(token_ids=[*IDS[:-1], 320]), "does not fit the models"),
        (lambda header: header.update(token_ids=IDS[:39]), "target cache holds 40 of 39 tokens"),
        (lambda header: header.update(token_ids=IDS * 2), "holds 80 tokens and the context 64"),
        (lambda header: header.update(caches=[]), "faulty header"),
        (lambda header: header.update(caches={"target": []}), "faulty header"),
        (lambda header: header.update(caches={}), "arrays of"),
        (lambda header: header["caches"].pop("draft"), "arrays of"),
        (lambda header: header["caches"].update(aside=header["caches"].pop("target")), "does not fit the models"),
        (set_entry("target", shape=[4, 1, 2, 39, 16]), "arrays of"),
        (set_entry("target", shape=[4, 1, 2, 41, 16]), "target cache holds 41 of 40 tokens"),
        (set_entry("target", shape=[4, 1, 2, 40]), "faulty header"),
        (set_entry("target", shape=[4, 1, 2, 40, 16.0]), "faulty header"),
        (set_entry("target", shape=[4, 1, 2, -40, -16]), "faulty header"),
        (set_entry("target", shape=[4, 1, 2, 40, 1 << 30]), "arrays of"),
        (set_entry("target", shape=[10**4000, 1, 10**4000, 40, 16]), "faulty header"),
        (set_entry("target", shape=[2, 1, 4, 40, 16]), "does not fit the models"),
        (set_entry("target", shape=[4, 1, 4, 20, 16]), "does not fit the models"),
        (set_entry("draft", shape=[8, 1, 1, 37, 16]), "does not fit the models"),
        (set_entry("target", dtype="<f2"), "arrays of"),
        (set_entry("target", dtype="<f2", shape=[4, 1, 4, 40, 16]), "does not fit the models"),
        (set_entry("target", dtype="|O"), "faulty header"),
        (set_entry("target", dtype=["<f4"]), "faulty header"),
    ],
)
def test_an_edited_header_is_refused(
    saved: tuple[Path, Decoders], others: Decoders, edit: Callable[[dict], object], reason: str
):
    path, _ = saved
    path.write_bytes(with_header(path.read_bytes(), lambda header: [edit(header), header][1]))
    assert_refused(path, others, reason)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    (), ("format",), ("fingerprint",), ("token_ids",), ("caches",), ("caches", "target"), ("caches", "draft"),
    ("caches", "target", "shape"), ("caches", "draft", "dtype"), *(("caches", "draft", "shape", i) for i in range(5)),
]  # fmt: skip


def test_any_other_value_in_any_field_is_refused(saved: tuple[Path, Decoders], others: Decoders, tmp_path: Path):
    content, edited = saved[0].read_bytes(), tmp_path / "edited.cache"
    before = snapshot(others)

    @given(st.sampled_from(FIELDS), JSON)
    def refused(field: tuple, value: object) -> None:
        def edit(header: dict) -> object:
            if not field:
                return value or {}
            for name in field[:-1]:
                header = header[name]
            if header[field[-1]] != value:
                header[field[-1]] = value
            else:
                del header[field[-1]]
            return None

        edited.write_bytes(with_header(content, edit))
        with pytest.raises(CacheFileError):
            restore_caches(edited, "this engine", others)

    refused()
    assert snapshot(others) == before


def test_a_file_that_shrinks_after_it_was_found_sound_leaves_empty_caches(
    saved: tuple[Path, Decoders], others: Decoders, monkeypatch: pytest.MonkeyPatch
):
    path, _ = saved
    check_fit = cache_file._check_fit

    def shrink(*args: object) -> None:
        check_fit(*args)
        os.truncate(path, path.stat().st_size - 10_000)

    monkeypatch.setattr(cache_file, "_check_fit", shrink)
    with pytest.raises(CacheFileError, match=r"cannot read .* it became shorter"):
        restore_caches(path, "this engine", others)
    assert [decoder.length for decoder in others.values()] == [0, 0]


class FullDisk(io.BufferedWriter):
    """A file on a disk with room for `num_free` bytes more."""

    num_free = 0

    def write(self, data: object) -> int:
        self.num_free -= memoryview(data).nbytes
        if self.num_free < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.6, 1.0])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    saved: tuple[Path, Decoders], others: Decoders, monkeypatch: pytest.MonkeyPatch, share: float
):
    path, decoders = saved
    content = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(FullDisk, "num_free", int(share * len(content)))
        patch.setattr(Path, "open", lambda self, mode: FullDisk(io.FileIO(self, mode)))
        with pytest.raises(StorageError, match=r"prompt\.cache: No space left .*39,424 bytes needed.*free some space"):
            save_caches(path, "this engine", IDS, decoders)
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == content
    assert restore_caches(path, "this engine", others) == IDS


def test_an_interruption_leaves_the_old_file_and_nothing_else(
    saved: tuple[Path, Decoders], monkeypatch: pytest.MonkeyPatch
):
    path, decoders = saved
    content = path.read_bytes()

    def interrupted(cache: KvCache) -> Iterator[np.ndarray]:
        assert len(list(path.parent.iterdir())) == 2
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(KvCache, "read_tokens", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_caches(path, "this engine", OTHER_IDS, decoders)
    assert list(path.parent.iterdir()) == [path]
    assert path.read_bytes() == content


def test_a_second_file_replaces_the_first(saved: tuple[Path, Decoders], others: Decoders):
    path, decoders = saved
    save_caches(path, "this engine", OTHER_IDS, others)
    assert list(path.parent.iterdir()) == [path]
    assert restore_caches(path, "this engine", decoders) == OTHER_IDS
    np.testing.assert_array_equal(next_logits(decoders["target"]), next_logits(others["target"]))


@pytest.mark.parametrize("name", ["missing/prompt.cache", "folder", "file/prompt.cache", "x" * 300, "."])
def test_a_place_that_cannot_be_written_is_named(opened: Callable[..., Decoders], tmp_path: Path, name: str):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    with pytest.raises(StorageError, match=r"cannot save the caches to .*choose a file in a folder that is there") as e:
        save_caches(tmp_path / name, "this engine", [], opened())
    assert str(tmp_path / name) in str(e.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_named(opened: Callable[..., Decoders], tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="Permission denied"):
        save_caches(tmp_path / "prompt.cache", "this engine", [], opened())


def test_more_cached_tokens_than_ids_are_not_saved(saved: tuple[Path, Decoders]):
    path, decoders = saved
    content = path.read_bytes()
    with pytest.raises(ValueError, match="the target cache holds 40 of 38 tokens"):
        save_caches(path, "this engine", IDS[:38], decoders)
    assert path.read_bytes() == content


def test_neither_way_holds_all_arrays_at_once(opened: Callable[..., Decoders], tmp_path: Path):
    (tmp_path / "deep").mkdir()
    bundle = tiny_bundle(tmp_path / "deep", draft_noise=None, config=replace(CONFIG, num_layers=12, num_kv_heads=4))
    decoders = fill(opened(context_length=500, path=bundle), (IDS * 13)[:500], 0)
    peaks = []
    for work in (save_caches, restore_caches):
        ids = ((IDS * 13)[:500],) if work is save_caches else ()
        tracemalloc.start()
        work(tmp_path / "prompt.cache", "this engine", *ids, decoders)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    num_bytes = (tmp_path / "prompt.cache").stat().st_size
    assert num_bytes > 24 * 500 * 4 * 16 * 4
    assert max(peaks) < num_bytes / 4


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_cache_gives_and_takes_its_first_tokens(bundle_path: Path, dtype: str):
    model = replace(models(bundle_path)["target"], cache_dtype=dtype)
    source, other = KvCache(model, 12, Bus("cpu")), KvCache(model, 20, Bus("cpu"))
    rng = np.random.default_rng(0)
    for buffer in source.buffers.values():
        buffer.update_inplace(rng.normal(size=(1, 2, 12, 16)).astype(dtype))
    source.length = 7
    arrays = list(source.read_tokens())
    assert [(array.shape, array.dtype) for array in arrays] == [((1, 2, 7, 16), np.dtype(dtype))] * 4
    other.write_tokens(7, arrays)
    assert other.length == 7
    for array, buffer, copy in zip(arrays, source.buffers.values(), other.buffers.values(), strict=True):
        np.testing.assert_array_equal(copy.numpy()[:, :, :7], buffer.numpy()[:, :, :7])
        assert not copy.numpy()[:, :, 7:].any()
        array[:] = 0
        assert buffer.numpy()[:, :, :7].any(), "an array that was read is no view of the cache"


class Remote:
    """A buffer as on a GPU: what `numpy` gives is a copy."""

    def __init__(self, value) -> None:
        self._value = value
        self.data_ptr, self.update_inplace = value.data_ptr, value.update_inplace

    def numpy(self) -> np.ndarray:
        return self._value.numpy().copy()


def test_a_buffer_that_is_not_in_host_memory_is_written_too(saved: tuple[Path, Decoders], others: Decoders):
    path, decoders = saved
    own = {role: dict(decoder.cache.buffers) for role, decoder in others.items()}
    for decoder in others.values():
        for names, buffer in decoder.cache.buffers.items():
            decoder.cache.buffers[names] = Remote(buffer)
    restore_caches(path, "this engine", others)
    for role, decoder in others.items():
        decoder.cache.buffers.update(own[role])  # ONNX Runtime binds no others
        np.testing.assert_array_equal(next_logits(decoder), next_logits(decoders[role]))


@pytest.mark.parametrize(
    ("length", "sizes", "dtype"),
    [
        (13, [13] * 4, "float32"),
        (-1, [7] * 4, "float32"),
        (7, [7] * 3, "float32"),
        (7, [7] * 5, "float32"),
        (6, [7] * 4, "float32"),
        (7, [7, 7, 7, 1], "float32"),
        (7, [7] * 4, "float16"),
    ],
)
def test_a_cache_refuses_what_is_not_its_own(bundle_path: Path, length: int, sizes: list[int], dtype: str):
    cache = KvCache(models(bundle_path)["target"], 12, Bus("cpu"))
    cache.length = 3
    with pytest.raises(ValueError, match=r"cannot write|argument 2 is|could not broadcast"):
        cache.write_tokens(length, [np.ones((1, 2, size, 16), dtype) for size in sizes])
    assert cache.length == 0
