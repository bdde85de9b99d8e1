"""Drafts with a small model of the same vocabulary, or of a part of it, which may have a drafter of its own.

Axis letters: `N` rows, `C` columns of the draft's logits, `V` ids that it shares with the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.proposal import Drafter, Proposal, certain, never
from pilotfish.runtime.errors import GrammarError
from pilotfish.runtime.filters import Logits, Probs, probability
from pilotfish.runtime.rounds import Limits, Round, play_round
from pilotfish.runtime.sampling import Sampler

LEAST_LOGIT = -1e30  # finite, so that a row stays one where a grammar leaves nothing else


class ModelDrafter:
    """Runs the draft model; its cache follows `committed` like the target's.

    It drafts in rounds of its own, in which it is the target and `inner`, if there is one, drafts for it. What it
    proposes is therefore distributed as its own rows say, with any number of levels and with none.
    """

    origin = "model"

    def __init__(
        self, decoder: Decoder, vocab_size: int, masked_ids: Sequence[int] | NDArray[np.int64] = (),
        inner: Drafter | None = None, num_inner_tokens: int = 2, *, hands_ids_on: bool = False,
    ) -> None:  # fmt: skip
        """`vocab_size` is the width of a proposal's rows; `masked_ids` mean another text to the target than here.

        Ids that only the target has are never proposed, and are read as token 0. Those that a trimmed head lacks are
        never proposed either. `inner` drafts `num_inner_tokens` in a round, in rows of the view's width. With
        `hands_ids_on` a fixed number of greedy tokens is written without `inner`, from pass to pass on the device.
        """
        self.view = DraftView(decoder, min(vocab_size, decoder.vocab_size), masked_ids)
        self._vocab_size = vocab_size
        self._inner, self._num_inner_tokens = inner, num_inner_tokens
        self._hands_ids_on = hands_ids_on

    def drafted_by(self, inner: Drafter, num_inner_tokens: int, *, hands_ids_on: bool = False) -> ModelDrafter:
        """The same draft with another drafter of its own."""
        view = self.view
        return ModelDrafter(
            view.decoder, self._vocab_size, view.masked_ids, inner, num_inner_tokens, hands_ids_on=hands_ids_on
        )  # fmt: skip

    @property
    def length(self) -> int:
        """Committed tokens that the draft has read."""
        return self.view.length

    def propose(
        self,
        committed: Sequence[int],
        num_draft_tokens: int,
        sampler: Sampler,
        rng: np.random.Generator,
        should_stop: Callable[[Sequence[float]], bool] = never,
    ) -> Proposal:
        """Draws the tokens in turn, each after the ones before it; none where the draft's own context ends."""
        end = min(len(committed) + num_draft_tokens, self.view.context_length)
        if self._hands_ids_on and should_stop is never and sampler.takes_the_likeliest:
            written = self.view.continue_greedily(committed[self.length :], end - len(committed))
            return certain(tuple(written), self._vocab_size, self.origin)
        limits, vocab_size = Limits(end, lambda _: False), self.view.vocab_size
        drafted, rows, confidences, is_stopped = list(committed), list[Probs](), list[float](), False
        while len(drafted) < end and not is_stopped:
            try:
                round_ = play_round(
                    drafted, self.view, self._inner, self._num_inner_tokens, vocab_size, limits, sampler, rng
                )  # fmt: skip
            except GrammarError:  # no token that the grammar allows is one of the draft's
                break
            rows.append(round_.settled_probs[: len(round_.token_ids)])
            if should_stop is not never:
                for confidence in self.view.confidences(round_):
                    confidences.append(confidence)
                    if is_stopped := should_stop(confidences):
                        break
        num_drafted = len(confidences) if is_stopped else len(drafted) - len(committed)
        probs: Probs = np.zeros((num_drafted, self._vocab_size), np.float32)
        if num_drafted:
            probs[:, :vocab_size] = np.concatenate(rows)[:num_drafted]
        token_ids = tuple(drafted[len(committed) : len(committed) + num_drafted])
        return Proposal(token_ids, probs, (self.origin,) * num_drafted, tuple(confidences))

    def rollback(self, length: int) -> None:
        """Forgets all but the first `length` tokens, if more are cached."""
        self.view.rollback(min(self.view.length, length))
        if self._inner is not None:
            self._inner.rollback(length)


class DraftView:
    """The draft's decoder as a round sees it: rows of `vocab_size` ids, in which what it must not choose is unlikely.

    That is what means something else to the target, and what a trimmed head lacks.
    """

    def __init__(self, decoder: Decoder, vocab_size: int, masked_ids: Sequence[int] | NDArray[np.int64]) -> None:
        self.vocab_size = vocab_size
        self.decoder = decoder
        self.rollback = decoder.rollback
        self.masked_ids = np.asarray([i for i in masked_ids if i < vocab_size], np.int64)
        head_ids = decoder.head_ids
        self._head_ids = None if head_ids is None else head_ids[head_ids < vocab_size]

    @property
    def length(self) -> int:
        """As `Decoder.length`."""
        return self.decoder.length

    @property
    def context_length(self) -> int:
        """As `Decoder.context_length`."""
        return self.decoder.context_length

    def forward(self, token_ids: Sequence[int], num_logits: int, num_largest: int = 0) -> Logits:
        """As `Decoder.forward`, in rows (N, V)."""
        num_largest = num_largest and num_largest + len(self.masked_ids)
        logits = self.decoder.forward(self._readable(token_ids), num_logits, num_largest)
        if self._head_ids is None:
            logits = logits[:, : self.vocab_size]
        else:
            logits = _spread(logits[:, : len(self._head_ids)], self._head_ids, self.vocab_size)
        logits[:, self.masked_ids] = LEAST_LOGIT
        return logits

    def continue_greedily(self, token_ids: Sequence[int], num_tokens: int) -> list[int]:
        """As `Decoder.continue_greedily`, up to the first token that must not be chosen; none where none are wanted."""
        if num_tokens < 1:
            return []
        found = self.decoder.continue_greedily(self._readable(token_ids), num_tokens)
        is_choice = [token_id < self.vocab_size and token_id not in self.masked_ids for token_id in found]
        return found[: [*is_choice, False].index(False)]

    def _readable(self, token_ids: Sequence[int]) -> list[int]:
        return [token_id if token_id < self.vocab_size else 0 for token_id in token_ids]

    def confidences(self, round_: Round) -> list[float]:
        """The draft's own probability of each token of the latest round, before sampling filters."""
        sums = self.decoder.log_sum_exp
        return [
            probability(round_.logits[row], token_id, None if sums is None else float(sums[row]))
            for row, token_id in enumerate(round_.token_ids)
        ]


def _spread(logits: Logits, ids: NDArray[np.int64], vocab_size: int) -> Logits:
    """Rows (N, C) of the logits of `ids` (C,) → rows (N, V) in which all others are −inf."""
    spread = np.full((len(logits), vocab_size), -np.inf, np.float32)
    spread[:, ids] = logits
    return spread
