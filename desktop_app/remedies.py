"""What went wrong in the engine's process, in words for the user: a cause and a remedy.

Of what was raised, and of how a process ended that can say nothing any more.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pilotfish.desktop_app.protocol import Failed
from pilotfish.runtime import PilotfishError

LESS_MEMORY = "close other programs, or choose a smaller model or a shorter context; then start the engine again"
START_AGAIN = "start the engine again; if it happens again, choose another model or update pilotfish"

_OUT_OF_MEMORY_TEXTS = ("bad_alloc", "failed to allocate", "out of memory", "cannot allocate memory")
_FAULTS: Mapping[str, str] = MappingProxyType(
    {
        "ContextOverflowError": "context", "BundleError": "bundle", "DeviceError": "device", "OptionError": "option",
        "TemplateError": "template", "FormatError": "protocol",
    }
)  # fmt: skip

_MEMORY = ("was ended by the system, most often because memory had run out", LESS_MEMORY)
_CRASH = ("crashed", START_AGAIN)
_INSTRUCTION = (
    "crashed, since the processor lacks an instruction that ONNX Runtime needs",
    "run this model on another computer, or install another version of ONNX Runtime",
)
_ENDED = ("was ended from outside", "start the engine again")
_EXITS: Mapping[str | int, tuple[str, str]] = MappingProxyType(
    {
        "SIGKILL": _MEMORY, "SIGSEGV": _CRASH, "SIGBUS": _CRASH, "SIGABRT": _CRASH, "SIGFPE": _CRASH, "SIGTRAP": _CRASH,
        "SIGILL": _INSTRUCTION, "SIGTERM": _ENDED, "SIGHUP": _ENDED, "SIGINT": _ENDED, "SIGXCPU": _ENDED,
        # Windows: https://learn.microsoft.com/openspecs/windows_protocols/ms-erref/596a1078-e883-4972-9bbc-49e60bebca55
        0xC0000005: _CRASH, 0xC0000374: _CRASH, 0xC0000409: _CRASH, 0xC00000FD: _CRASH, 0xC000001D: _INSTRUCTION,
        0xC0000017: _MEMORY, 0xC000012D: _MEMORY, 0xC000013A: _ENDED, 0x40010004: _ENDED,
        0xC0000135: ("could not start, since a library is missing", "install pilotfish again"),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Died:
    """The engine's process has ended unasked. `details` are its last words, for a report."""

    cause: str
    remedy: str
    details: str = ""


UNRESPONSIVE = Died(
    "The engine no longer answered and was ended.",
    "Ask again; if it happens again, choose another model or update pilotfish.",
)


def failure(request_id: int, error: Exception) -> Failed:
    """What the window is told of an exception. The runtime's own messages end with what to do."""
    text = str(error) or type(error).__name__
    if isinstance(error, MemoryError) or any(each in text.lower() for each in _OUT_OF_MEMORY_TEXTS):
        return Failed(request_id, "memory", "there is not enough memory for this", LESS_MEMORY)
    fault = _FAULTS.get(type(error).__name__, "internal")
    if isinstance(error, PilotfishError):
        message, _, remedy = text.rpartition("; ")
        return Failed(request_id, fault, message or text, remedy if message else START_AGAIN)
    return Failed(request_id, fault, f"{type(error).__name__}: {text}", START_AGAIN)


def death(exit_code: int, activity: str, last_words: str) -> Died:
    """Why a process ended with `exit_code`, as `subprocess` gives it: negative is a signal.

    `activity` completes "while", such as "loading tiny"; empty if it did nothing.
    """
    what, remedy = _ending(exit_code)
    if what is None:
        lines = [line for line in last_words.splitlines() if line.strip()]
        said = f": {lines[-1].strip()}" if lines else ""
        what, remedy = f"ended with exit code {exit_code}{said}", START_AGAIN
    while_ = f" while {activity}" if activity else ""
    return Died(f"The engine {what}{while_}.", f"{remedy[0].upper()}{remedy[1:]}.", last_words)


def _ending(exit_code: int) -> tuple[str | None, str]:
    if exit_code >= 0:
        return _EXITS.get(exit_code, (None, ""))
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = str(-exit_code)
    what, remedy = _EXITS.get(name, ("was ended", START_AGAIN))
    return f"{what} ({name})", remedy
