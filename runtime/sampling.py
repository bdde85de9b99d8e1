"""From logits to the distribution that tokens are drawn from; the same for draft and target.

Axis letters: `N` rows, `V` vocabulary. What a row's distribution depends on beside its logits is given explicitly: the
tokens before it. So penalties at a drafted position see exactly the tokens before that position, and a rejected token
leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.errors import OptionError

Logits = NDArray[np.float32]
Probs = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn. The defaults leave everything as the model has it, and greedy.

    Applied in this order: `logit_bias` (added), `repetition_penalty` (divides positive and multiplies negative logits
    of every token before; Keskar et al. 2019), `presence_penalty` and `frequency_penalty` (subtracted once, and for
    each occurrence in the output), `no_repeat_ngram` (no n-gram of that size twice), `min_tokens` (no end before so
    many tokens), `temperature` (0 is greedy), `top_k` (0 is off), `top_p` (Holtzman et al. 2020), `min_p` (Nguyen et
    al. 2024).

    With a `seed` a temperature above 0 draws by noise that is keyed by (seed, position), so a seed gives the same text
    with speculation on, off, or with another drafter (Daliri et al. 2024, arXiv 2408.07978). Without one the draws come
    from a fresh generator.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram: int = 0
    min_tokens: int = 0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        ranges = {
            "temperature": (0, 100), "top_k": (0, np.inf), "top_p": (0, 1), "min_p": (0, 1),
            "repetition_penalty": (0.01, 100), "presence_penalty": (-100, 100), "frequency_penalty": (-100, 100),
            "no_repeat_ngram": (0, np.inf), "min_tokens": (0, np.inf),
        }  # fmt: skip
        for name, (least, most) in ranges.items():
            if not least <= getattr(self, name) <= most:
                raise OptionError(f"{name} is {getattr(self, name)}; it must lie between {least} and {most}")
        if self.seed is not None and self.seed < 0:
            raise OptionError(f"seed is {self.seed}; it must not be negative")
        if any(token_id < 0 or not np.isfinite(bias) for token_id, bias in self.logit_bias.items()):
            raise OptionError(f"logit_bias is {dict(self.logit_bias)}; it maps token ids to finite numbers")


@dataclass(frozen=True, slots=True)
class Sampler:
    """The sampling of one generation: its parameters, where its output begins, and the ids that end it."""

    params: SamplingParams
    num_prompt_tokens: int = 0
    end_token_ids: Set[int] = frozenset()

    def probabilities(self, logits: Logits, prefix: Sequence[int], drafted: Sequence[int] = ()) -> Probs:
        """Logits (N, V) → float32 probabilities (N, V). Row i stands after `prefix` and the first i of `drafted`.

        Greedy rows are one-hot at the first maximum. With a seed rows are one-hot too, at the token that the position's
        own noise picks: the draft's row and the target's meet the same noise, so they agree as often as they can, and
        over seeds each token is picked as often as its probability says.
        """
        if self._changes_logits:
            before = [*prefix, *drafted]
            rows = [self._changed(row, before[: len(prefix) + i]) for i, row in enumerate(logits)]
            logits = np.stack(rows)
        if self.params.temperature == 0:
            probs: Probs = np.zeros_like(logits)
            probs[np.arange(len(logits)), logits.argmax(axis=1)] = 1
            return probs
        probs = _filtered(_softmax(logits, self.params.temperature), self.params)
        return probs if self.params.seed is None else _settled(probs, self.params.seed, len(prefix))

    @property
    def _changes_logits(self) -> bool:
        p = self.params
        penalties = p.presence_penalty or p.frequency_penalty or p.repetition_penalty != 1
        return bool(p.logit_bias or penalties or p.no_repeat_ngram or p.min_tokens)

    def _changed(self, logits: Logits, before: Sequence[int]) -> Logits:
        """One row (V,) with bias, penalties and bans, given the tokens before it."""
        params, row = self.params, logits.astype(np.float32)
        known = np.asarray(before, np.int64)
        for token_id, bias in params.logit_bias.items():
            if token_id < len(row):
                row[token_id] += bias
        if params.repetition_penalty != 1:
            seen = np.unique(known[known < len(row)])
            scaled = row[seen]
            row[seen] = np.where(scaled > 0, scaled / params.repetition_penalty, scaled * params.repetition_penalty)
        output = known[self.num_prompt_tokens :]
        seen, counts = np.unique(output[output < len(row)], return_counts=True)
        row[seen] -= (params.presence_penalty + params.frequency_penalty * counts).astype(np.float32)
        if params.no_repeat_ngram:
            row[[i for i in _repeating(known, params.no_repeat_ngram) if i < len(row)]] = -np.inf
        if len(output) < params.min_tokens:
            row[[i for i in self.end_token_ids if i < len(row)]] = -np.inf
        return row if np.isfinite(row).any() else logits  # all is banned: the model's own choice stands


def draw(probs: Probs, rng: np.random.Generator) -> int:
    """One token id from a row of non-negative weights (V,), which need not sum to one."""
    most_likely = int(probs.argmax())
    if probs[most_likely] >= 1:  # certain, as every greedy row is: nothing to add up
        return most_likely
    cumulative = np.cumsum(probs, dtype=np.float64)
    token_id = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    return token_id if token_id < len(probs) else most_likely  # the product above can round up to the sum


def _softmax(logits: Logits, temperature: float) -> Probs:
    probs: Probs = logits - logits.max(axis=1, keepdims=True)
    probs /= np.float32(temperature)
    np.exp(probs, out=probs)
    probs /= probs.sum(axis=1, keepdims=True, dtype=np.float64)
    return probs


def _filtered(probs: Probs, params: SamplingParams) -> Probs:
    """Top-k, then top-p, then min-p, each on what the one before left; rows are normalized again, in place."""
    if not params.top_k and params.top_p == 1 and not params.min_p:
        return probs
    for row in probs:
        if 0 < params.top_k < len(row):
            # Equal probabilities at the border are kept in the order of their ids, so exactly k tokens remain.
            row[np.argsort(-row, kind="stable")[params.top_k :]] = 0
        if params.top_p < 1:
            order = np.argsort(-row, kind="stable")
            mass_before = np.cumsum(row[order], dtype=np.float64) - row[order]
            row[order[1:][mass_before[1:] >= params.top_p * row.sum(dtype=np.float64)]] = 0
        if params.min_p:
            row[row < params.min_p * row.max()] = 0
        row /= row.sum(dtype=np.float64)
    return probs


def _settled(probs: Probs, seed: int, first_position: int) -> Probs:
    """One-hot rows at the winner of an exponential race (the Gumbel-max trick); noise is keyed by (seed, position)."""
    settled = np.zeros_like(probs)
    for i, row in enumerate(probs):
        noise = np.random.default_rng((seed, first_position + i)).standard_exponential(len(row), dtype=np.float32)
        settled[i, (row / np.maximum(noise, np.float32(1e-30))).argmax()] = 1
    return settled


def _repeating(before: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """The ids that would complete an n-gram of `size` tokens which stands in `before` already."""
    if len(before) < size:
        return before[:0]
    windows = np.lib.stride_tricks.sliding_window_view(before, size)
    tail = before[len(before) - size + 1 :]
    repeated: NDArray[np.int64] = windows[(windows[:, :-1] == tail).all(axis=1), -1]
    return repeated
