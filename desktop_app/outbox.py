"""Events on their way to the window: sent in order by a thread of its own, fast pieces of a reply as one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from pilotfish.desktop_app.protocol import Event, Part, Piece, to_line

INTERVAL_S = 0.015


class Outbox:
    """Takes events from any thread and never waits for the reader of the pipe.

    A piece that follows another within `interval_s` waits for company; any other event goes at once, behind the pieces
    before it.
    """

    def __init__(self, write: Callable[[bytes], object], interval_s: float = INTERVAL_S) -> None:
        """`write` sends a line; if it raises OSError, nobody listens any more and the rest is dropped."""
        self._write = write
        self._interval_s = interval_s
        self._events: list[Event] = []
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Sends an event soon."""
        with self._changed:
            last = self._events[-1] if self._events else None
            if isinstance(event, Piece) and isinstance(last, Piece) and last.request_id == event.request_id:
                self._events[-1] = merged(last, event)
            else:
                self._events.append(event)
            self._changed.notify()

    def close(self, timeout_s: float = 1.0) -> None:
        """Sends what is left, unless that takes longer than `timeout_s`."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        sent_s = -self._interval_s
        while events := self._take(sent_s):
            try:
                for event in events:
                    self._write(to_line(event))
            except OSError:
                return
            sent_s = time.monotonic()

    def _take(self, sent_s: float) -> list[Event]:
        """What is to be sent now, when it is time; nothing at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._is_closed)
            self._changed.wait_for(self._is_urgent, max(sent_s + self._interval_s - time.monotonic(), 0))
            events, self._events = self._events, []
            return events

    def _is_urgent(self) -> bool:
        return self._is_closed or not isinstance(self._events[-1], Piece)


def merged(first: Piece, second: Piece) -> Piece:
    """Two pieces of a reply as one; parts of one origin that meet become one part."""
    parts = list(first.parts)
    for part in second.parts:
        if parts and parts[-1].origin == part.origin:
            last = parts[-1]
            parts[-1] = Part(part.origin, last.text + part.text, last.num_tokens + part.num_tokens)
        else:
            parts.append(part)
    return replace(second, parts=tuple(parts))
