"""Drafts with a small model of the same vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.proposal import Proposal
from pilotfish.runtime.sampling import Probs, SamplingParams, draw, probabilities


class ModelDrafter:
    """Runs the draft model one token at a time; its cache follows `committed` like the target's."""

    origin = "model"

    def __init__(self, decoder: Decoder, vocab_size: int, masked_ids: Sequence[int] = ()) -> None:
        """`vocab_size` is the width of a proposal's rows; `masked_ids` mean another text to the target than here."""
        self._decoder = decoder
        self._vocab_size = vocab_size
        self._masked_ids = np.asarray([i for i in masked_ids if i < vocab_size], np.int64)

    def propose(
        self,
        committed: Sequence[int],
        num_draft_tokens: int,
        params: SamplingParams,
        rng: np.random.Generator,
    ) -> Proposal:
        """Draws the tokens in turn, each after the ones before it; none where the draft's own context ends."""
        drafted: list[int] = []
        rows: list[Probs] = []
        for _ in range(min(num_draft_tokens, self._decoder.context_length - len(committed))):
            pending = [
                *committed[self._decoder.length :],
                *drafted[max(self._decoder.length - len(committed), 0) :],
            ]
            logits = self._decoder.forward(pending, 1)[:, : self._vocab_size]
            logits[:, self._masked_ids] = -np.inf
            probs = probabilities(logits, params)[0]
            drafted.append(draw(probs, rng))
            rows.append(probs)
        return Proposal(tuple(drafted), np.stack(rows) if rows else np.zeros((0, self._vocab_size), np.float32))

    def rollback(self, length: int) -> None:
        """Forgets all but the first `length` tokens, if more are cached."""
        self._decoder.rollback(min(self._decoder.length, length))
