"""An export that is killed leaves nothing that looks like a bundle, whenever that happens, and a rerun completes."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pilotfish.export.verification import check_files
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.cli import run
from pilotfish.runtime.errors import BundleError
from support.checkpoint_files import write_gguf

NUM_KILLS = 10
# Kills the process at the n-th time that it opens, makes, renames or removes something of the bundle.
CODE = """
import os, signal, sys
moment, output, seen = int(sys.argv[1]), sys.argv[2], 0

def count(event, arguments):
    global seen
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir") and output in str(arguments[0]):
        seen += 1
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
from pilotfish.runtime.cli import run
code = run(sys.argv[3:])
print(seen)
sys.exit(code)
"""


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    return ["export", "--target", source, "--draft", source, "-o", str(tmp_path / "new" / "bundle")]


def exported(moment: int, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CODE, str(moment), str(Path(arguments[-1]).parent), *arguments]
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
