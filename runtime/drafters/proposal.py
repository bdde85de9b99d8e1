"""What a drafter offers: token ids, and the distribution that each was drawn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pilotfish.runtime.filters import Probs
from pilotfish.runtime.sampling import Sampler


@dataclass(frozen=True, slots=True)
class Proposal:
    """K drafted token ids, `probs` float32 (K, V), the distribution each was drawn from, and who drafted each.

    `confidences` are the drafter's own probabilities of its tokens, before sampling filters, if anybody asked for them.
    """

    token_ids: tuple[int, ...]
    probs: Probs
    origins: tuple[str, ...]
    confidences: tuple[float, ...]


class Drafter(Protocol):
    """Proposes what may follow the committed tokens.

    `origin` names the drafter in chunks and statistics. After a round, and before another conversation, `rollback` is
    called with a length up to which everything that the drafter has seen is still committed.
    """

    origin: str

    def propose(
        self,
        committed: Sequence[int],
        num_draft_tokens: int,
        sampler: Sampler,
        rng: np.random.Generator,
        should_stop: Callable[[Sequence[float]], bool],
    ) -> Proposal:
        """At most `num_draft_tokens` tokens after `committed`; fewer or none if there is nothing to say.

        A drafter that pays for each token asks `should_stop` after it, with the confidences so far. The answer may
        depend on nothing but tokens that were drawn already, so that every acceptance rule stays right.
        """
        ...

    def rollback(self, length: int) -> None:
        """Forgets all but the first `length` tokens, if more are cached."""
        ...


class ReadingDrafter(Drafter, Protocol):
    """A drafter with a model, whose cache follows the committed tokens."""

    @property
    def length(self) -> int:
        """Committed tokens that the draft has read."""
        ...


def certain(token_ids: tuple[int, ...], vocab_size: int, origin: str) -> Proposal:
    """A proposal without doubt, as copying gives: one-hot rows (K, V)."""
    probs: Probs = np.zeros((len(token_ids), vocab_size), np.float32)
    probs[np.arange(len(token_ids)), list(token_ids)] = 1
    return Proposal(token_ids, probs, (origin,) * len(token_ids), ())


def never(confidences: Sequence[float]) -> bool:
    """The `should_stop` of a fixed number of draft tokens."""
    return False
