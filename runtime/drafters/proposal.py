"""What a drafter offers: token ids, and the distribution that each was drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pilotfish.runtime.filters import Probs
from pilotfish.runtime.sampling import Sampler


@dataclass(frozen=True, slots=True)
class Proposal:
    """K drafted token ids and `probs` float32 (K, V), the distribution each was drawn from."""

    token_ids: tuple[int, ...]
    probs: Probs


class Drafter(Protocol):
    """Proposes what may follow the committed tokens.

    `origin` names the drafter in `Chunk.origins` and the statistics. After a round the engine calls `rollback` with a
    length at which everything the drafter has cached is committed.
    """

    origin: str

    def propose(
        self,
        committed: Sequence[int],
        num_draft_tokens: int,
        sampler: Sampler,
        rng: np.random.Generator,
    ) -> Proposal:
        """At most `num_draft_tokens` tokens after `committed`; fewer or none if there is nothing to say."""
        ...

    def rollback(self, length: int) -> None:
        """Forgets all but the first `length` tokens, if more are cached."""
        ...
