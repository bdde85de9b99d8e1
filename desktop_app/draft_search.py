"""Drafts for a target, and why the others do not fit: `pilotfish pair --json`, in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pilotfish.desktop_app.codec import decoded, parse_json
from pilotfish.desktop_app.engine_process import NO_WINDOW
from pilotfish.desktop_app.errors import DesktopError, FormatError
from pilotfish.desktop_app.programs import pilotfish_command

TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class DraftFinding:
    """A model beside a target. `verdict` is a clause; `fault` says at length why it does not fit, or is empty.

    `ratio` is its number of parameters ÷ the target's, `data_bytes` what it would take in a bundle.
    """

    source: str
    fits: bool
    is_worth_trying: bool
    ratio: float
    data_bytes: int
    verdict: str
    fault: str


@dataclass(frozen=True, slots=True)
class _Answer:
    drafts: tuple[DraftFinding, ...]


def find_drafts(
    target: str, candidates: Sequence[str] = (), folder: str | None = None,
    command: Callable[[Sequence[str]], list[str]] = pilotfish_command,
) -> tuple[DraftFinding, ...]:  # fmt: skip
    """Looks at `candidates`, the catalog, what was downloaded, and the models in `folder`; those that fit first.

    Waits for the command, some seconds: for a thread of its own. `DesktopError`, in the command's words, if it fails.
    """
    arguments = ["pair", "--json", *(["--in", folder] if folder else []), "--", target, *candidates]
    try:
        ended = subprocess.run(  # noqa: S603 - our own command
            command(arguments), stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False,
            creationflags=NO_WINDOW,
        )  # fmt: skip
    except OSError as error:
        raise DesktopError(f"the search cannot be started ({error.strerror}); install pilotfish again") from error
    except subprocess.TimeoutExpired as error:
        raise DesktopError(
            f"the search has not ended in {TIMEOUT_S:.0f} seconds; give a folder with less in it"
        ) from error
    if ended.returncode:
        raise DesktopError(_last_words(ended.stderr, ended.returncode))
    try:
        return decoded(_Answer, parse_json(ended.stdout)).drafts
    except FormatError as error:
        raise DesktopError(f"the search gave no answer that can be read ({error}); update pilotfish") from error


def _last_words(stderr: bytes, exit_code: int) -> str:
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("pilotfish: ")), "")
    last = lines[-1] if lines else ""
    return said.removeprefix("pilotfish: ") or f"the search ended with exit code {exit_code}: {last}"
