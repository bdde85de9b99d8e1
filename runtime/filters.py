"""What sampling does to one row: softmax, the filters that shorten it, and the race that picks a token by noise.

Axis letters: `N` rows, `V` vocabulary. All functions are pure, or say that they work in place.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
Probs = NDArray[np.float32]

LEAST_NOISE = np.float32(1e-30)  # an exponential draw of 0 would let a token win whatever its probability


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


def race(row: Probs, seed: int, position: int) -> Probs:
    """How early each token of (V,) arrives: the largest wins with just its probability, over all seeds.

    An exponential race, which is the Gumbel-max trick. The noise of a token depends on seed, position and token id
    alone, not on V; so rows of draft and target that are alike mostly have the same winner.
    """
    noise = np.random.default_rng((seed, position)).standard_exponential(len(row), dtype=np.float32)
    arrival: Probs = np.divide(row, np.maximum(noise, LEAST_NOISE), dtype=np.float32)
    return arrival


def repeating_ids(before: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The ids that would complete an n-gram of `size` tokens which stands in `before` already."""
    if len(before) < size:
        return before[:0]
    windows = np.lib.stride_tricks.sliding_window_view(before, size)
    tail = before[len(before) - size + 1 :]
    repeated: NDArray[np.int64] = windows[(windows[:, :-1] == tail).all(axis=1), -1]
    return repeated
