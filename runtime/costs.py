"""What a forward costs on this device, by its width; measured once and followed while running."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

from pilotfish.runtime.decoder import Decoder

WIDTHS = (1, 2, 3, 5, 9, 17)
REPEATS = 3
FOLLOWED = 0.1  # the weight of a new measurement


class WidthCosts:
    """Seconds of a model's forward, by the number of its tokens."""

    def __init__(self, seconds: Mapping[int, float]) -> None:
        """`seconds` by width; widths between are interpolated, wider ones extrapolated. At least one entry."""
        self._seconds = dict(seconds)

    def seconds(self, width: int) -> float:
        """The expected duration of a forward of `width` tokens, in seconds."""
        low, high = self._around(width)
        if low == high:
            return self._seconds[low]
        slope = (self._seconds[high] - self._seconds[low]) / (high - low)
        return max(self._seconds[low] + slope * (width - low), 1e-9)

    def observe(self, widths: Sequence[int], seconds: float) -> None:
        """Takes how long forwards of `widths` tokens took together; an outlier counts as twice or half of that.

        Wider forwards than were ever measured teach nothing, since what is expected of them is only extrapolated.
        """
        if max(widths) > max(self._seconds):
            return
        expected = sum(self.seconds(width) for width in widths)
        change = FOLLOWED * (min(max(seconds / expected, 0.5), 2) - 1)
        near = {known for width in widths for known in self._around(width)}
        # What slows one width down, a longer context or a busy machine, slows the others down too; but each has its
        # own share of it, so they are followed at half the pace.
        for known in self._seconds:
            self._seconds[known] *= 1 + (change if known in near else change / 2)

    def _around(self, width: int) -> tuple[int, int]:
        """The measured widths between which `width` lies, or the last two beyond them; twice itself if measured."""
        known = sorted(self._seconds)
        if width in self._seconds or len(known) == 1:
            return (width, width) if width in self._seconds else (known[0], known[0])
        above = min(range(1, len(known)), key=lambda i: (known[i] < width, abs(known[i] - width)))
        return known[above - 1], known[above]

    @classmethod
    def from_dict(cls, values: Mapping[str, float]) -> WidthCosts:
        """The costs that `to_dict` gave; `ValueError` if they are none."""
        seconds = {int(width): float(value) for width, value in values.items()}
        if not seconds or min(seconds) < 1 or not all(0 < value < float("inf") for value in seconds.values()):
            raise ValueError(f"{dict(values)} are not durations by width")
        return cls(seconds)

    def to_dict(self) -> dict[str, float]:
        """Seconds by width, ready for JSON."""
        return {str(width): seconds for width, seconds in sorted(self._seconds.items())}


def measure(decoder: Decoder, widths: Sequence[int] = WIDTHS, repeats: int = REPEATS) -> WidthCosts:
    """Times forwards of each width that there is room for, by turns; medians. The cache is as before.

    A forward that is padded costs the same for all widths from the narrowest to the widest that are padded to it.
    """
    before, room = decoder.length, decoder.context_length - decoder.length
    by_padded = {decoder.padded(width): width for width in widths if width <= room}
    found: dict[int, list[float]] = {padded: [] for padded in by_padded}
    for repeat in range(repeats + 1):
        for padded, width in by_padded.items():
            started = time.perf_counter()
            decoder.forward([0] * width, 1, num_largest=1)
            if repeat:  # the first turn binds and warms up
                found[padded].append(time.perf_counter() - started)
            decoder.rollback(before)
    costs: dict[int, float] = {}
    for padded, seconds in found.items():
        narrowest = next(width for width in range(1, padded + 1) if decoder.padded(width) == padded)
        costs |= dict.fromkeys((narrowest, padded), statistics.median(seconds))
    return WidthCosts(costs)
