"""Drafts by looking up where the last few committed tokens stood before, and copying what followed them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pilotfish.runtime.drafters.proposal import Proposal, certain, never
from pilotfish.runtime.sampling import Sampler

LONGEST_NGRAM, SHORTEST_NGRAM = 4, 2


class LookupDrafter:
    """N-gram lookup over the prompt and the output so far. Costs no model and holds no state."""

    origin = "lookup"

    def __init__(self, vocab_size: int) -> None:
        """`vocab_size` is the width of the rows of a proposal."""
        self._vocab_size = vocab_size

    def propose(
        self,
        committed: Sequence[int],
        num_draft_tokens: int,
        sampler: Sampler,
        rng: np.random.Generator,
        should_stop: Callable[[Sequence[float]], bool] = never,
    ) -> Proposal:
        """What followed the latest earlier occurrence of the longest matching n-gram; certain, so rows are one-hot."""
        token_ids = tuple(continuation(np.asarray(committed), num_draft_tokens))
        return certain(token_ids, self._vocab_size, self.origin)

    def rollback(self, length: int) -> None:
        """Nothing is cached."""


def continuation(history: np.ndarray[tuple[int], np.dtype[np.int64]], num_tokens: int) -> list[int]:
    """At most `num_tokens` ids that followed the latest earlier occurrence of the last n ids, for the largest n."""
    for n in range(min(LONGEST_NGRAM, len(history) - 1), SHORTEST_NGRAM - 1, -1):
        windows = np.lib.stride_tricks.sliding_window_view(history[:-1], n)
        matches = np.flatnonzero((windows == history[-n:]).all(axis=1))
        if len(matches):
            start = int(matches[-1]) + n
            return [int(token_id) for token_id in history[start : start + num_tokens]]
    return []
