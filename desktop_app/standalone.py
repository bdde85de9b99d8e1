"""What the stand-alone program runs: the window, or what the window starts it for again (see `programs.py`)."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

from pilotfish.desktop_app.programs import COMMAND_FLAG, ENGINE_FLAG

SELF_TEST_FLAG = "--self-test"


def main() -> int:
    """Runs the program and returns its exit code. `--self-test [BUNDLE]` starts it, lets it answer, and ends it."""
    flag, rest = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("", [])
    if flag == ENGINE_FLAG:
        from pilotfish.desktop_app.engine_child import main as serve

        serve()
        return 0
    if flag == COMMAND_FLAG:
        from pilotfish.runtime.cli import run as run_command

        return run_command(rest)
    if flag == "--version":
        print(f"pilotfish {version('pilotfish')}")  # noqa: T201
        return 0
    if flag == SELF_TEST_FLAG:
        from pilotfish.desktop_app.widgets.self_test import self_test

        return self_test(Path(rest[0]) if rest else None)
    from pilotfish.desktop_app.widgets.application import run

    return run(Path(flag).absolute() if flag else None)


if __name__ == "__main__":
    sys.exit(main())
