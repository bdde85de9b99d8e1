"""How many rows a forward needs so that its rows do not depend on how many there are, and how much they do otherwise.

A matrix kernel may add in another order for one row than for several, so the logits of a token differ in their last
bits between a plain forward of one row and a verification of k + 1 rows, and greedy output can differ at a near-tie.
Where all widths from some `w` on give identical bits, padding every forward to `w` rows makes output with speculation
equal to output without it. Without that padding, what rounding can do to a margin between two logits is measured, and
decisions by less than that are counted.

One row never counts as equal to more, whatever was measured: it has kernels of its own, and a recipe that rounds its
activations can swallow the difference in the tokens that were measured and show it in others.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.filters import Logits

PROBE_PREFIX = 40  # tokens before the compared rows, so that attention has something to add up
MOST_WIDTHS = (17, 9)  # rows that a round may need: its drafted tokens and one more
NOISE_ALLOWANCE = 4  # the probe sees a few rows; a generation sees thousands


def exact_widths(decoder: Decoder) -> tuple[int, int]:
    """(w, most): forwards of w, w + 1, …, most rows give bit-identical rows; w ≥ 2.

    Measured on `decoder`, whose cache is empty before and after. `most` is the first of `MOST_WIDTHS` that has a `w` of
    no more than half of it. If none has, both are the least of them: all forwards then run at one width.
    """
    for most in MOST_WIDTHS:
        exact = most
        for rows, wide in _rows_by_width(decoder, most):
            if len(rows) < 2 or not np.array_equal(rows, wide):
                break
            exact = len(rows)
        if exact <= most // 2:
            return exact, most
    return MOST_WIDTHS[-1], MOST_WIDTHS[-1]


def near_tie_margin(decoder: Decoder) -> float:
    """A lead in logits below which rounding may have decided, when forwards of 1 row and more are mixed.

    `NOISE_ALLOWANCE` times the most by which the difference of two logits of a row moved between widths, measured on
    `decoder`, whose cache is empty before and after.
    """
    moved = 0.0
    for rows, wide in _rows_by_width(decoder, MOST_WIDTHS[-1]):
        change = rows - wide
        moved = max(moved, float((change.max(axis=1) - change.min(axis=1)).max()))
    return NOISE_ALLOWANCE * moved


def _rows_by_width(decoder: Decoder, max_width: int) -> Iterator[tuple[Logits, Logits]]:
    """(rows of a forward, the same rows out of the widest one), from the second widest down to one row."""
    min_width, decoder.min_width = decoder.min_width, 1
    max_width = min(max_width, decoder.context_length)
    num_before = min(PROBE_PREFIX, decoder.context_length - max_width)
    ids = np.random.default_rng(0).integers(0, decoder.vocab_size, num_before + max_width).tolist()
    try:
        decoder.forward(ids[:num_before], 0)
        wide = decoder.forward(ids[num_before:], max_width).copy()
        for width in range(max_width - 1, 0, -1):
            decoder.rollback(num_before)
            yield decoder.forward(ids[num_before : num_before + width], width), wide[:width]
    finally:
        decoder.rollback(0)
        decoder.min_width = min_width
