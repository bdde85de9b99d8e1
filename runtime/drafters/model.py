"""Drafts with a small model of the same vocabulary, or of a part of it.

Axis letters: `V` vocabulary of a proposal, `C` columns of the draft's rows, fewer than V where its head was trimmed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.proposal import Proposal, never
from pilotfish.runtime.filters import Logits, Probs, probability
from pilotfish.runtime.sampling import Sampler, draw

LEAST_LOGIT = -1e30  # finite, so that a row stays one where a grammar leaves nothing else


class ModelDrafter:
    """Runs the draft model one token at a time; its cache follows `committed` like the target's."""

    origin = "model"

    def __init__(self, decoder: Decoder, vocab_size: int, masked_ids: Sequence[int] = ()) -> None:
        """`vocab_size` is the width of a proposal's rows; `masked_ids` mean another text to the target than here.

        Ids that only the target has are never proposed, and are read as token 0. Those that a trimmed head lacks are
        never proposed either.
        """
        self._decoder = decoder
        self._vocab_size = vocab_size
        self._num_shared = min(vocab_size, decoder.vocab_size)
        head_ids = decoder.head_ids
        self._head_ids = None if head_ids is None else head_ids[head_ids < self._num_shared]
        self._num_columns = self._num_shared if self._head_ids is None else len(self._head_ids)
        masked = np.asarray([i for i in masked_ids if i < self._num_shared], np.int64)
        self._masked_columns = masked if self._head_ids is None else np.flatnonzero(np.isin(self._head_ids, masked))

    @property
    def length(self) -> int:
        """Committed tokens that the draft has read."""
        return self._decoder.length

    def propose(
        self,
        committed: Sequence[int],
        num_draft_tokens: int,
        sampler: Sampler,
        rng: np.random.Generator,
        should_stop: Callable[[Sequence[float]], bool] = never,
    ) -> Proposal:
        """Draws the tokens in turn, each after the ones before it; none where the draft's own context ends."""
        num_tokens = max(min(num_draft_tokens, self._decoder.context_length - len(committed)), 0)
        probs: Probs = np.zeros((num_tokens, self._vocab_size), np.float32)
        drafted, confidences = list[int](), list[float]()
        num_largest = sampler.num_largest and sampler.num_largest + len(self._masked_columns)
        for row in probs:
            pending = [*committed[self._decoder.length :], *drafted[max(self._decoder.length - len(committed), 0) :]]
            logits, ids = self._logits(pending, num_largest, sampler.tells_ids_apart)
            found = sampler.probabilities(logits, committed, drafted)[0]
            if not found.any():  # no token that the grammar allows is one of the draft's
                break
            row[slice(self._num_shared) if ids is None else ids] = found
            column = draw(found, rng)
            drafted.append(column if ids is None else int(ids[column]))
            if should_stop is not never:
                log_sum_exp = self._decoder.log_sum_exp
                confidences.append(
                    probability(logits[0], column, None if log_sum_exp is None else float(log_sum_exp[0]))
                )
                if should_stop(confidences):
                    break
        num_drafted = len(drafted)
        return Proposal(tuple(drafted), probs[:num_drafted], (self.origin,) * num_drafted, tuple(confidences))

    def _logits(self, pending: Sequence[int], num_largest: int, by_id: bool) -> tuple[Logits, NDArray[np.int64] | None]:
        """The row after the `pending` tokens, (1, C), and the ids of its columns; None if the columns are the ids.

        They are `by_id`, or if the head is whole. Otherwise a row stays short, since sampling a long one takes longer.
        """
        readable = [token_id if token_id < self._num_shared else 0 for token_id in pending]
        logits = self._decoder.forward(readable, 1, num_largest)[:, : self._num_columns]
        logits[:, self._masked_columns] = LEAST_LOGIT
        if self._head_ids is None or not by_id:
            return logits, self._head_ids
        wide = np.full((1, self._num_shared), -np.inf, np.float32)
        wide[:, self._head_ids] = logits
        return wide, None

    def rollback(self, length: int) -> None:
        """Forgets all but the first `length` tokens, if more are cached."""
        self._decoder.rollback(min(self._decoder.length, length))
