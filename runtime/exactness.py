"""How many rows a forward needs so that its rows do not depend on how many there are.

A matrix kernel may add in another order for one row than for several, so the logits of a token differ in their last
bits between a plain forward of one row and a verification of k + 1 rows, and greedy output can differ at a near-tie.
Where all widths from some `w` on give identical bits, padding every forward to `w` rows makes output with speculation
equal to output without it.
"""

from __future__ import annotations

import numpy as np
from pilotfish.runtime.decoder import Decoder

PROBE_PREFIX = 40  # tokens before the compared rows, so that attention has something to add up


def exact_width(decoder: Decoder, max_width: int) -> int:
    """The least width w ≤ max_width such that forwards of w, w + 1, …, max_width rows give bit-identical rows.

    Measured on `decoder`, whose cache is empty before and after. If no two widths agree the result is `max_width`:
    all forwards then run at one width.
    """
    min_width, decoder.min_width = decoder.min_width, 1
    rng = np.random.default_rng(0)
    ids = rng.integers(0, decoder.vocab_size, PROBE_PREFIX + max_width).tolist()
    try:
        decoder.forward(ids[:PROBE_PREFIX], 0)
        wide = decoder.forward(ids[PROBE_PREFIX:], max_width).copy()
        exact = max_width
        for width in range(max_width - 1, 0, -1):
            decoder.rollback(PROBE_PREFIX)
            rows = decoder.forward(ids[PROBE_PREFIX : PROBE_PREFIX + width], width)
            if not np.array_equal(rows, wide[:width]):
                break
            exact = width
    finally:
        decoder.rollback(0)
        decoder.min_width = min_width
    return exact
