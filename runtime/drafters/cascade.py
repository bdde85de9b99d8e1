"""Asks one drafter after the other until one has something to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pilotfish.runtime.drafters.proposal import Drafter, Proposal, certain, never
from pilotfish.runtime.sampling import Sampler


class CascadeDrafter:
    """The cheapest drafter first, the next where it has nothing; the proposal says who spoke."""

    origin = "cascade"

    def __init__(self, drafters: Sequence[Drafter], vocab_size: int) -> None:
        """`drafters` in the order in which they are asked; each is rolled back with the others."""
        self._drafters = tuple(drafters)
        self._vocab_size = vocab_size

    def propose(
        self,
        committed: Sequence[int],
        num_draft_tokens: int,
        sampler: Sampler,
        rng: np.random.Generator,
        should_stop: Callable[[Sequence[float]], bool] = never,
    ) -> Proposal:
        """The first proposal that is not empty."""
        for drafter in self._drafters:
            proposal = drafter.propose(committed, num_draft_tokens, sampler, rng, should_stop)
            if proposal.token_ids:
                return proposal
        return certain((), self._vocab_size, self.origin)

    def rollback(self, length: int) -> None:
        """Rolls all of them back."""
        for drafter in self._drafters:
            drafter.rollback(length)
