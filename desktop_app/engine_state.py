"""What the engine is at, as the window shows it: a value, and what each event makes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pilotfish.desktop_app.protocol import BundleFacts, Event, Failed, Loaded, Stopped, Unloaded
from pilotfish.desktop_app.remedies import Died


@dataclass(frozen=True, slots=True)
class EngineState:
    """The phases: `empty`, no model is loaded; `loading`; `ready`; `failed`, a load went wrong; `dead`, no process.

    `bundle` is the folder that is, was or will be loaded. `cause` and `remedy` are sentences for the user, and
    `details` are last words for a report.
    """

    phase: str = "empty"
    bundle: str = ""
    load_id: int | None = None
    facts: BundleFacts | None = None
    cause: str = ""
    remedy: str = ""
    details: str = ""

    @property
    def name(self) -> str:
        """What the window calls the bundle; empty if there is none."""
        return Path(self.bundle).name


def loading(bundle: str, load_id: int) -> EngineState:
    """A load was asked for."""
    return EngineState("loading", bundle, load_id)


def crashed_before(bundle: str) -> EngineState:
    """At launch: the bundle that was loaded last took the engine or the computer down, so it is not loaded again."""
    cause = f"{Path(bundle).name} was not loaded, since the engine crashed when it was loaded last time."
    remedy = "Choose another model, close other programs, or try again."
    return EngineState("failed", bundle, cause=cause, remedy=remedy)


def no_process(state: EngineState, error: Exception) -> EngineState:
    """The process cannot be started, or has gone."""
    cause, _, remedy = str(error).rpartition("; ")
    return replace(state, phase="dead", facts=None, cause=_sentence(cause), remedy=_sentence(remedy))


def after(state: EngineState, event: Event | Died) -> EngineState:
    """The state once `event` has come; the same for events that do not concern it."""
    if isinstance(event, Died):
        return EngineState("dead", state.bundle, None, None, event.cause, event.remedy, event.details)
    if isinstance(event, Unloaded):
        return EngineState() if state.phase == "ready" else state
    if not isinstance(event, (Loaded, Failed, Stopped)) or event.request_id != state.load_id:
        return state
    if isinstance(event, Loaded):
        return EngineState("ready", state.bundle, facts=event.facts)
    if isinstance(event, Stopped):
        return EngineState()
    return EngineState("failed", state.bundle, cause=_sentence(event.message), remedy=_sentence(event.remedy))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""
