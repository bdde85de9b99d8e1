"""Times a model's passes of a few widths by turns, the same way for every engine; needs nothing but Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

WIDTHS = (1, 4, 8)
NUM_PAST = 256  # tokens in the cache before each timed pass
REPEATS = 3


def pass_times(
    forward: Callable[[Sequence[int]], object], rollback: Callable[[int], object], token_ids: Sequence[int]
) -> dict[str, list[float]]:
    """Seconds of each pass, by its width, after `NUM_PAST` of `token_ids`.

    `forward` appends tokens and computes the logits after each of them; `rollback` shortens the cache to a length.
    """
    forward(token_ids[:NUM_PAST])
    found: dict[str, list[float]] = {str(width): [] for width in WIDTHS}
    for repeat in range(REPEATS + 1):
        for width in WIDTHS:
            started = time.perf_counter()
            forward(token_ids[NUM_PAST : NUM_PAST + width])
            if repeat:  # the first turn warms up
                found[str(width)].append(time.perf_counter() - started)
            rollback(NUM_PAST)
    return found
