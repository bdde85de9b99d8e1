"""What the window and the engine's process say to each other: one JSON object a line, through the process's pipes.

The window sends requests, the process events. A load, a generation or a count has a `request_id`, larger than all
before it; the events that answer it carry the same. Loads and generations are done one after the other, in order; each
ends with exactly one of `Loaded`, `Done`, `Stopped` and `Failed`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pilotfish.desktop_app.codec import decoded, encoded, parse_json
from pilotfish.desktop_app.errors import FormatError
from pilotfish.desktop_app.reply_options import ReplyOptions

T = TypeVar("T")

PROTOCOL_VERSION = 1


@dataclass(frozen=True, slots=True)
class Load:
    """Load a bundle folder in place of the one that is loaded; the options of `pilotfish.runtime.load`."""

    request_id: int
    bundle: str
    device: str = "cpu"
    draft_device: str | None = None
    context_length: int | None = None
    num_threads: int | None = None
    exact: bool = True
    cuda_graphs: bool = False


@dataclass(frozen=True, slots=True)
class Generate:
    """Write the reply to `messages`, each with `role` and `content`; what is there of the `reply` is continued."""

    request_id: int
    messages: tuple[Mapping[str, str], ...]
    reply: str = ""
    options: ReplyOptions = field(default_factory=ReplyOptions)


@dataclass(frozen=True, slots=True)
class Count:
    """Tell how much of the context these messages would take; answered beside a generation that runs."""

    request_id: int
    messages: tuple[Mapping[str, str], ...]
    options: ReplyOptions = field(default_factory=ReplyOptions)


@dataclass(frozen=True, slots=True)
class Stop:
    """Give up the load or generation of that id, whether it runs or waits, and all before it."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Unload:
    """Free the bundle that is loaded."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Stop everything and end the process."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The process has started and takes requests."""

    version: int = PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class Loading:
    """The load of that id has begun."""

    request_id: int
    bundle: str


@dataclass(frozen=True, slots=True)
class BundleFacts:
    """What the window shows of a loaded bundle. Lengths are in tokens; `draft` is None if tokens are only copied."""

    path: str
    name: str
    target: str
    target_recipe: str
    draft: str | None
    draft_recipe: str | None
    context_length: int
    max_context_length: int
    num_bytes: int
    load_s: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """The bundle is loaded."""

    request_id: int
    facts: BundleFacts


@dataclass(frozen=True, slots=True)
class Part:
    """Text in a row by one origin: a drafter, such as `model` or `suffix`, or `target`. The text may lag behind."""

    origin: str
    text: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Figures of a generation as far as it has come; as in `pilotfish.runtime.Stats`."""

    num_tokens: int
    num_rounds: int
    num_drafted: int
    num_accepted: int
    tokens_per_s: float
    speed_up: float | None
    speculation: str


@dataclass(frozen=True, slots=True)
class Piece:
    """The next piece of a reply; those that come fast are sent as one."""

    request_id: int
    parts: tuple[Part, ...]
    progress: Progress


@dataclass(frozen=True, slots=True)
class Done:
    """The reply has ended. `finish_reason` as in `pilotfish.runtime.Chunk`, `stats` as `Stats.to_dict` gives it."""

    request_id: int
    finish_reason: str
    stats: Mapping[str, Any]
    num_dropped: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """A load, or a generation that had not begun, was given up."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Counted:
    """How many tokens the messages take, of which `num_dropped` old ones would be left out.

    If `fault` is not empty they could not be sent; it says why.
    """

    request_id: int
    num_tokens: int
    limit: int
    context_length: int
    num_dropped: int
    fault: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A request failed. `fault` is a word for programs; `message` says what was wrong and `remedy` what to do."""

    request_id: int
    fault: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Unloaded:
    """No bundle is loaded any more."""


Request = Load | Generate | Count | Stop | Unload | Quit
Event = Ready | Loading | Loaded | Piece | Done | Stopped | Counted | Failed | Unloaded

REQUESTS: Mapping[str, type[Request]] = {
    each.__name__.lower(): each for each in (Load, Generate, Count, Stop, Unload, Quit)
}
EVENTS: Mapping[str, type[Event]] = {
    each.__name__.lower(): each for each in (Ready, Loading, Loaded, Piece, Done, Stopped, Counted, Failed, Unloaded)
}


def to_line(message: Request | Event) -> bytes:
    """One line of ASCII, with its end."""
    head = {"v": PROTOCOL_VERSION, "kind": type(message).__name__.lower()}
    return json.dumps(head | encoded(message)).encode("ascii") + b"\n"


def request_from(line: bytes) -> Request:
    """The request of a line; `FormatError` if it is none."""
    return _from_line(line, REQUESTS)


def event_from(line: bytes) -> Event:
    """The event of a line; `FormatError` if it is none."""
    return _from_line(line, EVENTS)


def _from_line(line: bytes, kinds: Mapping[str, type[T]]) -> T:
    values = parse_json(line)
    if not isinstance(values, dict):
        raise FormatError("the message is not an object")
    version, kind = values.pop("v", None), values.pop("kind", None)
    if version != PROTOCOL_VERSION:
        raise FormatError(f"the message has version {version!r} of the protocol; this side speaks {PROTOCOL_VERSION}")
    if not isinstance(kind, str) or kind not in kinds:
        raise FormatError(f"the message is of the unknown kind {str(kind)[:40]!r} (known: {', '.join(kinds)})")
    return decoded(kinds[kind], values, kind)
