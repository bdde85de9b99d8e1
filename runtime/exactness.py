"""How many rows a forward may have so that a row does not depend on how many there are, and how much it does otherwise.

A matrix kernel may add in another order for one row than for several, or for an odd one that its tiles leave over, so
the logits of a token differ in their last bits between a plain forward of one row and a verification of k + 1 rows, and
greedy output can differ at a near-tie. Where some widths give identical bits, padding every forward to one of them
makes output with speculation equal to output without it. Without that padding, what rounding can do to a margin between
two logits is measured, and decisions by less than that are counted.

One row never counts as equal to more, whatever was measured: it has kernels of its own, and a recipe that rounds its
activations can swallow the difference in the tokens that were measured and show it in others.
"""

from __future__ import annotations

import numpy as np

from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.filters import Logits

PROBE_PREFIX = 40  # tokens before the compared rows, so that attention has something to add up
# Forwards that others are compared with: 18 rows are whole tiles of 2, 3, 6 or 9, and 16 rows of 4 or 8.
WIDEST = (18, 16)
ONLY = 9  # the width of all forwards where too few agree
NOISE_ALLOWANCE = 4  # the probe sees a few rows; a generation sees thousands


def exact_widths(decoder: Decoder) -> tuple[int, ...]:
    """The widths, ascending, in which a row gets the same bits wherever it stands; 1 is never among them.

    Measured on `decoder`, whose cache is empty before and after. `(ONLY,)` if none up to that one agrees with a wider
    one: all forwards then run at one width.
    """
    for widest in WIDEST:
        with _Probe(decoder, widest) as probe:
            widths = probe.agreeing_widths()
        if widths and widths[0] <= ONLY:
            return widths
    return (ONLY,)


def near_tie_margin(decoder: Decoder) -> float:
    """A lead in logits below which rounding may have decided, when forwards of 1 row and more are mixed.

    `NOISE_ALLOWANCE` times the most by which the difference of two logits of a row moved between widths, measured on
    `decoder`, whose cache is empty before and after.
    """
    moved = 0.0
    with _Probe(decoder, ONLY) as probe:
        for width in range(1, len(probe.wide)):
            change = probe.rows(0, width) - probe.wide[:width]
            moved = max(moved, float((change.max(axis=1) - change.min(axis=1)).max()))
    return NOISE_ALLOWANCE * moved


class _Probe:
    """Rows of one wide forward, `wide`, and the same rows out of others, none of them padded."""

    def __init__(self, decoder: Decoder, widest: int) -> None:
        """Runs the wide forward, as wide as the context allows. The decoder must be empty, and is again on leaving."""
        self._decoder, self._exact_widths = decoder, decoder.exact_widths
        decoder.exact_widths = ()
        widest = min(widest, decoder.context_length)
        self._num_before = min(PROBE_PREFIX, decoder.context_length - widest)
        ids = np.random.default_rng(0).integers(0, decoder.vocab_size, self._num_before + widest).tolist()
        self._ids = ids[self._num_before :]
        decoder.forward(ids[: self._num_before], 0)
        self.wide = decoder.forward(self._ids, widest).copy()

    def rows(self, start: int, width: int) -> Logits:
        """Those from `start` on in a forward of `width`; valid until the next."""
        self._decoder.rollback(self._num_before + start)
        return self._decoder.forward(self._ids[start : start + width], width)

    def agreeing_widths(self) -> tuple[int, ...]:
        """Those from 2 on that agree with the wide forward, with its own; none if its rows differ by their place."""
        total = len(self.wide)
        # From its second row on, as tiles of the wide forward and of the others then begin at different rows.
        widths = [width for width in range(2, total) if self._agrees(1, width)]
        # Rows that the wide forward's tiles left over have the narrow one's bits only if their place does not matter.
        if widths and all(
            self._agrees(min(start, total - widths[0]), widths[0]) for start in range(0, total, widths[0])
        ):
            return (*widths, total)
        return ()

    def _agrees(self, start: int, width: int) -> bool:
        return np.array_equal(self.rows(start, width), self.wide[start : start + width])

    def __enter__(self) -> _Probe:
        return self

    def __exit__(self, *_: object) -> None:
        self._decoder.rollback(0)
        self._decoder.exact_widths = self._exact_widths
