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

    def __init__(self, vocab_size: int, num_looked_at: int | None = None) -> None:
        """`vocab_size` is the width of the rows of a proposal, which ends before an id that has no place in them.

        Looks through the last `num_looked_at` tokens, or through all.
        """
        self._vocab_size, self._num_looked_at = vocab_size, num_looked_at

    def propose(
        self,
        committed: Sequence[int],
        num_draft_tokens: int,
        sampler: Sampler,
        rng: np.random.Generator,
        should_stop: Callable[[Sequence[float]], bool] = never,
    ) -> Proposal:
        """What followed the latest earlier occurrence of the longest matching n-gram; certain, so rows are one-hot."""
        history = committed if self._num_looked_at is None else committed[-self._num_looked_at :]
        token_ids = continuation(np.asarray(history), num_draft_tokens)
        unknown = next((i for i, token_id in enumerate(token_ids) if token_id >= self._vocab_size), len(token_ids))
        return certain(tuple(token_ids[:unknown]), self._vocab_size, self.origin)

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
