"""The command lines of pilotfish's other processes: the engine, and commands such as `pilotfish export`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

ENGINE_FLAG, COMMAND_FLAG = "--engine-process", "--command"


def engine_command() -> list[str]:
    """Starts `engine_child.main`. A stand-alone program has no Python to ask, so it starts itself with a flag."""
    if getattr(sys, "frozen", False):
        return [sys.executable, ENGINE_FLAG]
    return [sys.executable, "-m", "pilotfish.desktop_app.engine_child"]


def pilotfish_command(arguments: Sequence[str]) -> list[str]:
    """Runs `pilotfish` with these arguments."""
    if getattr(sys, "frozen", False):
        return [sys.executable, COMMAND_FLAG, *arguments]
    return [sys.executable, "-c", "from pilotfish.runtime.cli import main; main()", *arguments]
