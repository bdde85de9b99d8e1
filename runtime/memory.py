"""How much memory this process can still get, by what each system tells."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
TIMEOUT_S = 5

# What macOS gives to a program that asks, without writing anything to the disk first.
_RECLAIMABLE = ("free", "inactive", "speculative", "purgeable")


def free_memory() -> int | None:
    """Bytes; None where the system does not tell."""
    if sys.platform == "win32":
        return windows_free_bytes(ctypes.windll.kernel32)
    if sys.platform == "darwin":
        return macos_free_bytes(_output("/usr/bin/vm_stat"))
    return linux_free_bytes(MEMINFO, CGROUP)


def linux_free_bytes(meminfo: Path, cgroup: Path) -> int | None:
    """By `/proc/meminfo` and the limit of the container; None where there is no such file."""
    rows = (row.split() for row in system_text(meminfo).splitlines())
    free = next((int(row[1]) * 1024 for row in rows if row[0] == "MemAvailable:"), None)
    limit, used = system_text(cgroup / "memory.max"), system_text(cgroup / "memory.current")
    if free is not None and limit.isdecimal() and used.isdecimal():
        return max(min(free, int(limit) - int(used)), 0)
    return free


def macos_free_bytes(vm_stat: str) -> int | None:
    """By the output of `vm_stat`; None if it is something else."""
    page = re.search(r"page size of (\d+) bytes", vm_stat)
    pages = {name: int(number) for name, number in re.findall(r"^Pages ([\w -]+):\s+(\d+)\.$", vm_stat, re.MULTILINE)}
    if page is None or "free" not in pages:
        return None
    return int(page[1]) * sum(pages.get(name, 0) for name in _RECLAIMABLE)


def windows_free_bytes(kernel32: Any) -> int | None:
    """https://learn.microsoft.com/windows/win32/api/sysinfoapi/ns-sysinfoapi-memorystatusex"""
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    is_told = kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return int(status.avail_phys) if is_told else None


class _MemoryStatus(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_uint32), ("memory_load", ctypes.c_uint32),
        ("total_phys", ctypes.c_uint64), ("avail_phys", ctypes.c_uint64),
        ("total_page_file", ctypes.c_uint64), ("avail_page_file", ctypes.c_uint64),
        ("total_virtual", ctypes.c_uint64), ("avail_virtual", ctypes.c_uint64),
        ("avail_extended_virtual", ctypes.c_uint64),
    )  # fmt: skip


def _output(program: str) -> str:
    try:
        return subprocess.run([program], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout  # noqa: S603
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""


def system_text(path: Path) -> str:
    """What a file of the system says; empty where there is none."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
