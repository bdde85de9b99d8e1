"""Collects what an engine's process delivers, and waits for it."""

from __future__ import annotations

import queue
import time
from typing import TypeVar

from pilotfish.desktop_app.engine_process import EngineProcess
from pilotfish.desktop_app.protocol import Failed, Piece

T = TypeVar("T")
PATIENCE_S = 120  # the machines that run the tests are slow


class EngineEvents:
    """`deliver` is for an `EngineProcess`; `seen` has what was waited for and what came before."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self.seen: list = []

    def deliver(self, event: object) -> None:
        self._queue.put(event)

    def next(self) -> object:
        self.seen.append(self._queue.get(timeout=PATIENCE_S))
        return self.seen[-1]

    def wait_for(self, kind: type[T], request_id: int | None = None) -> T:
        """The next event of that kind, and of that request if one is named; an unexpected `Failed` is an error."""
        while True:
            event = self.next()
            if isinstance(event, kind) and request_id in (None, getattr(event, "request_id", None)):
                return event
            assert not isinstance(event, Failed), event

    def is_silent(self, seconds: float) -> bool:
        time.sleep(seconds)
        return self._queue.empty()

    def text(self, request_id: int) -> str:
        return "".join(part.text for event in self.pieces(request_id) for part in event.parts)

    def pieces(self, request_id: int) -> list[Piece]:
        return [event for event in self.seen if isinstance(event, Piece) and event.request_id == request_id]


def started(events: EngineEvents, *arguments, **options) -> EngineProcess:
    engine = EngineProcess(events.deliver, *arguments, **options)
    engine.start()
    return engine
