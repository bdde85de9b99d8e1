"""One round of speculative decoding: propose → verify → accept → commit → rollback.

The invariant: after every round each cache holds a prefix of `committed`, at most `len(committed) - 1` tokens long, and
a decoder is always fed `committed[length:]`. After full acceptance the draft therefore has two tokens pending, and no
case of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pilotfish.runtime.acceptance import RULES
from pilotfish.runtime.drafters.proposal import Drafter, certain, never
from pilotfish.runtime.filters import Logits, Probs
from pilotfish.runtime.sampling import Sampler


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a generation ends: when `committed` is `max_length` tokens long, or with a token that is the last.

    `is_last` is told each token that is about to be committed, once and in order.
    """

    max_length: int
    is_last: Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Round:
    """What one round added to `committed`: first `num_accepted` drafted tokens, then at most one of the target.

    `logits` and `probs` (num_drafted + 1, V) are the target's rows for these tokens and any rejected ones, before and
    after the sampling filters, and `settled_probs` what the acceptance rule was given. `logits` is a view that the next
    forward overwrites; those that the sampler did not need may be −inf. `origins` says who drafted each of the accepted
    tokens, and `drafted_by` who drafted at all; `confidences` are the proposal's.
    """

    token_ids: tuple[int, ...]
    num_drafted: int
    num_accepted: int
    logits: Logits
    probs: Probs
    settled_probs: Probs
    origins: tuple[str, ...]
    confidences: tuple[float, ...]
    drafted_by: str


class Verifier(Protocol):
    """What verifies in a round: the target's decoder, or that of a draft which has a drafter of its own."""

    @property
    def length(self) -> int:
        """Tokens in its cache."""

    def forward(self, token_ids: Sequence[int], num_logits: int, num_largest: int = 0) -> Logits:
        """As `Decoder.forward`."""

    def rollback(self, length: int) -> None:
        """As `Decoder.rollback`."""


def play_round(
    committed: list[int],
    target: Verifier,
    drafter: Drafter | None,
    num_draft_tokens: int,
    vocab_size: int,
    limits: Limits,
    sampler: Sampler,
    rng: np.random.Generator,
    should_stop: Callable[[Sequence[float]], bool] = never,
) -> Round:
    """Plays one round and appends its tokens to `committed`, in place.

    Draws no more draft tokens than can still be emitted. Ids from `vocab_size` on, which pad the rows of logits,
    are never produced. The invariant holds afterwards, also if a forward raises; `committed` is then unchanged.
    """
    num_wanted = min(num_draft_tokens, limits.max_length - len(committed) - 1)
    try:
        proposal = certain((), vocab_size, "")
        if drafter is not None and num_wanted > 0:
            proposal = drafter.propose(committed, num_wanted, sampler, rng, should_stop)
        pending = [*committed[target.length :], *proposal.token_ids]
        logits = target.forward(pending, len(proposal.token_ids) + 1, sampler.num_largest)[:, :vocab_size]
        probs = sampler.distributions(logits, committed, proposal.token_ids)
        accept = RULES[sampler.params.acceptance_rule]
        settled_probs = sampler.settled(probs, len(committed))
        verdict = accept(proposal.token_ids, proposal.probs, settled_probs, rng)
        token_ids = (*proposal.token_ids[: verdict.num_accepted], verdict.next_token)
        token_ids = _up_to_last(token_ids, limits.is_last)
        committed.extend(token_ids)
    finally:
        target.rollback(min(target.length, len(committed) - 1))
        if drafter is not None:
            drafter.rollback(len(committed) - 1)
    num_accepted = min(verdict.num_accepted, len(token_ids))
    return Round(
        token_ids, len(proposal.token_ids), num_accepted, logits, probs, settled_probs,
        proposal.origins[:num_accepted], proposal.confidences, proposal.origins[0] if proposal.origins else "",
    )  # fmt: skip


def _up_to_last(token_ids: tuple[int, ...], is_last: Callable[[int], bool]) -> tuple[int, ...]:
    for position, token_id in enumerate(token_ids):
        if is_last(token_id):
            return token_ids[: position + 1]
    return token_ids
