"""How many rows a forward needs so that its rows do not depend on how many there are.

A matrix kernel may add in another order for one row than for several, so the logits of a token differ in their last
bits between a plain forward of one row and a verification of k + 1 rows, and greedy output can differ at a near-tie.
Where all widths from some `w` on give identical bits, padding every forward to `w` rows makes output with speculation
equal to output without it.

One row never counts as equal to more, whatever was measured: it has kernels of its own, and a recipe that rounds its
activations can swallow the difference in the tokens that were measured and show it in others.
"""

from __future__ import annotations

import numpy as np

from pilotfish.runtime.decoder import Decoder

PROBE_PREFIX = 40  # tokens before the compared rows, so that attention has something to add up


def exact_width(decoder: Decoder, max_width: int) -> int:
    """The least width w, 2 ≤ w ≤ max_width, such that forwards of w, w + 1, …, max_width rows give bit-identical rows.

    Measured on `decoder`, whose cache is empty before and after. If no two widths agree the result is `max_width`:
    all forwards then run at one width.
    """
    min_width, decoder.min_width = decoder.min_width, 1
    exact = max_width
    max_width = min(max_width, decoder.context_length)
    num_before = min(PROBE_PREFIX, decoder.context_length - max_width)
    ids = np.random.default_rng(0).integers(0, decoder.vocab_size, num_before + max_width).tolist()
    try:
        decoder.forward(ids[:num_before], 0)
        wide = decoder.forward(ids[num_before:], max_width).copy()
        for width in range(max_width - 1, 1, -1):
            decoder.rollback(num_before)
            rows = decoder.forward(ids[num_before : num_before + width], width)
            if not np.array_equal(rows, wide[:width]):
                break
            exact = width
    finally:
        decoder.rollback(0)
        decoder.min_width = min_width
    return exact
