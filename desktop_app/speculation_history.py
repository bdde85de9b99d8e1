"""How a reply has gone so far, in points of about a quarter of a second, for the plot of the speculation panel."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pilotfish.desktop_app.protocol import Piece, Progress

INTERVAL_S = 0.25
MAX_POINTS = 240


@dataclass(frozen=True, slots=True)
class Point:
    """What happened since the point before. `drafter` wrote most of the drafted tokens; empty if none was accepted."""

    tokens_per_s: float
    accepted_per_round: float
    drafted_per_round: float
    drafter: str


class SpeculationHistory:
    """Collects the pieces of a reply; `points` has the last `MAX_POINTS`, `progress` the latest figures."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.progress: Progress | None = None
        self._mark: tuple[float, Progress] | None = None
        self._origins: Counter[str] = Counter()

    def add(self, piece: Piece, now_s: float) -> bool:
        """Takes a piece that came at `now_s`, by a clock that does not go back; whether there is a new point."""
        self.progress = piece.progress
        for part in piece.parts:
            self._origins[part.origin] += part.num_tokens
        if self._mark is None:
            self._mark = (now_s, piece.progress)
            return False
        began_s, before = self._mark
        if now_s - began_s < INTERVAL_S:
            return False
        self.points.append(self._point(before, piece.progress, now_s - began_s))
        del self.points[:-MAX_POINTS]
        self._mark, self._origins = (now_s, piece.progress), Counter()
        return True

    def _point(self, before: Progress, now: Progress, duration_s: float) -> Point:
        num_rounds = max(now.num_rounds - before.num_rounds, 1)
        drafted = [(number, origin) for origin, number in self._origins.items() if origin != "target"]
        return Point(
            (now.num_tokens - before.num_tokens) / duration_s,
            (now.num_accepted - before.num_accepted) / num_rounds,
            (now.num_drafted - before.num_drafted) / num_rounds,
            max(drafted)[1] if drafted else "",
        )
