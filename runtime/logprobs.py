"""Log-probabilities of emitted tokens and of their most likely rivals.

Axis letters: `N` tokens, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pilotfish.runtime.filters import Probs


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The natural logarithm of a token's probability, and the most likely tokens of its position, best first."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def token_logprobs(probs: Probs, token_ids: Sequence[int], num_top: int) -> tuple[TokenLogprob, ...]:
    """For each of N tokens, from its row of `probs` (N, V). Tokens without probability are in no `top`."""
    return tuple(
        TokenLogprob(token_id, float(np.log(row[token_id])), _top(row, num_top))
        for row, token_id in zip(probs, token_ids, strict=True)
    )


def _top(row: Probs, num_top: int) -> tuple[tuple[int, float], ...]:
    largest = np.argpartition(row, -num_top)[-num_top:] if 0 < num_top < len(row) else np.arange(len(row))
    best_first = sorted((i for i in largest.tolist() if row[i] > 0), key=lambda i: (-row[i], i))
    return tuple((i, float(np.log(row[i]))) for i in best_first[:num_top])
