"""What sampling does to one row: softmax, the filters that shorten it, and the race that picks a token by noise.

Axis letters: `N` rows, `V` vocabulary. All functions are pure, or say that they work in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
Probs = NDArray[np.float32]

LEAST_ALONE = np.float32(1e-6)  # the least probability with which a token runs a race of its own


def softmax(logits: Logits, temperature: float = 1.0) -> Probs:
    """Logits (N, V) → probabilities (N, V). A logit of −inf becomes 0; each row needs one that is finite."""
    probs: Probs = logits - logits.max(axis=-1, keepdims=True)
    probs /= np.float32(temperature)
    np.exp(probs, out=probs)
    probs /= probs.sum(axis=-1, keepdims=True, dtype=np.float64)
    return probs


def probability(logits: Logits, token_id: int, log_sum_exp: float | None = None) -> float:
    """The probability of one token, from its row of logits (V,); 0 if the row has a logit that is not a number.

    `log_sum_exp` is log Σ exp over the row, if that is known.
    """
    if log_sum_exp is not None:
        return float(np.nan_to_num(np.exp(logits[token_id] - log_sum_exp)))
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = logits - logits[token_id]
        found = float(1 / np.exp(scaled, out=scaled).sum(dtype=np.float64))
    return 0.0 if np.isnan(found) else found


def keep_top_k(row: Probs, top_k: int) -> None:
    """Zeroes all but the `top_k` largest of (V,), in place; of equal ones at the border the lowest ids stay."""
    possible = row[row > 0]  # a partition of many equal numbers, as zeros are, takes ten times as long
    if top_k >= len(possible):
        return
    border = np.partition(possible, len(possible) - top_k)[len(possible) - top_k]
    equal = np.flatnonzero(row == border)
    num_larger = np.count_nonzero(row > border)
    row[row < border] = 0
    row[equal[top_k - num_larger :]] = 0


def keep_top_p(row: Probs, top_p: float) -> None:
    """Zeroes all but the smallest set of most likely tokens whose mass reaches `top_p` of (V,)'s, in place.

    Source: nucleus sampling, Holtzman et al. 2020. The most likely token always stays.
    """
    total = row.sum(dtype=np.float64)
    # All tokens below this bound together have less than the mass that is cut, so only the others need sorting.
    candidates = np.flatnonzero(row > (1 - top_p) * total / len(row))
    order = candidates[np.argsort(-row[candidates], kind="stable")]
    if not len(order):  # top_p 0 on a flat row
        order = np.array([row.argmax()])
    mass_before = np.cumsum(row[order], dtype=np.float64) - row[order]
    kept = order[(mass_before < top_p * total) | (np.arange(len(order)) == 0)]
    mass = row[kept]
    row[:] = 0
    row[kept] = mass


def keep_min_p(row: Probs, min_p: float) -> None:
    """Zeroes what is less likely than `min_p` times the most likely token of (V,), in place (Nguyen et al. 2024)."""
    row[row < min_p * row.max()] = 0


def race(row: Probs, seed: int, position: int) -> tuple[NDArray[np.int64], Probs]:
    """Who of (V,) runs, and how early each arrives: ids (M,) and arrivals (M,), of which the largest wins.

    An exponential race, which is the Gumbel-max trick: over all seeds each token wins with just its probability. The
    noise of a token depends on seed, position and token id alone, so rows of draft and target that are alike mostly
    have the same winner. Tokens below `LEAST_ALONE` run as one, since most of a large vocabulary is such; if they win,
    a race among themselves says which of them. A row of zeros has no runner.
    """
    keys = np.random.SeedSequence((seed, position)).generate_state(2, np.uint32)
    ids = np.flatnonzero(row >= LEAST_ALONE)
    alone = row[ids]
    arrivals: Probs = np.divide(alone, exponential(ids, keys))
    together = row.sum() - alone.sum()
    if together <= 0 or np.count_nonzero(row) == len(ids):
        return ids, arrivals
    others = np.array([len(row)])
    arrival: Probs = np.divide(together, exponential(others, keys))
    if not len(ids) or arrival[0] > arrivals.max():
        others = np.flatnonzero((row > 0) & (row < LEAST_ALONE))
        others = others[[np.divide(row[others], exponential(others, keys)).argmax()]]
    return np.append(ids, others), np.concatenate([arrivals, arrival])


def exponential(ids: NDArray[np.int64], keys: NDArray[Any]) -> Probs:
    """Exponential noise (M,) of so many ids, which differs with the two `keys`; never 0."""
    mixed = _mixed(_mixed(ids.astype(np.uint32) ^ keys[0]) + keys[1])
    uniform = (mixed.astype(np.float32) + np.float32(0.5)) * np.float32(2**-32)
    # Near 0, where races are won, 1 − uniform has no digits left; there the series has.
    series = uniform + uniform * uniform / 2
    exact = -np.log(np.maximum(1 - uniform, np.float32(2**-25)))
    noise: Probs = np.where(uniform < 2**-10, series, exact)
    return noise


def _mixed(numbers: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A permutation of 32-bit numbers in which each bit depends on all: the hash [16 21f0aaad 15 d35a2d97 15].

    Source: the project hash-prospector (Wellons 2018), which searches for those with the least bias.
    """
    high, low = np.uint32(16), np.uint32(15)
    numbers = (numbers ^ (numbers >> high)) * np.uint32(0x21F0AAAD)
    numbers = (numbers ^ (numbers >> low)) * np.uint32(0xD35A2D97)
    return numbers ^ (numbers >> low)


def repeating_ids(before: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The ids that would complete an n-gram of `size` tokens which stands in `before` already."""
    if len(before) < size:
        return before[:0]
    windows = np.lib.stride_tricks.sliding_window_view(before, size)
    tail = before[len(before) - size + 1 :]
    repeated: NDArray[np.int64] = windows[(windows[:, :-1] == tail).all(axis=1), -1]
    return repeated
