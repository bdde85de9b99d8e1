"""From logits to the distribution that tokens are drawn from; the same for draft and target.

Axis letters: `N` rows, `V` vocabulary. What a row's distribution depends on beside its logits is given explicitly: the
tokens before it. So penalties at a drafted position see exactly the tokens before that position, and a rejected token
leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.errors import GrammarError, OptionError
from pilotfish.runtime.filters import Logits, Probs, keep_min_p, keep_top_k, keep_top_p, race, repeating_ids, softmax
from pilotfish.runtime.grammar import Constraint

DRAW_BLOCK = 512  # tokens that are added up together when one is drawn
ACCEPTANCE_CHOICES = ("auto", "token", "block", "seed")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn. The defaults leave everything as the model has it, and greedy.

    Applied in this order: `logit_bias` (added), `repetition_penalty` (divides positive and multiplies negative logits
    of every token before; Keskar et al. 2019), `presence_penalty` and `frequency_penalty` (subtracted once, and for
    each occurrence in the output), `no_repeat_ngram` (no n-gram of that size twice), `min_tokens` (no end before so
    many tokens), `temperature` (0 is greedy), `top_k` (0 is off), `top_p` (Holtzman et al. 2020), `min_p` (Nguyen et
    al. 2024).

    `acceptance` is the rule by which drafted tokens stand; by each of them the output follows the target's
    distribution. `token` decides token by token (Leviathan et al. 2023), `block` over the whole proposal, which accepts
    more (Sun et al. 2024), and `seed` draws by noise that is keyed by (seed, position), so that a seed gives the same
    text with speculation on, off, or with another drafter (Daliri et al. 2024, arXiv 2408.07978). `auto` is `seed` if
    there is a seed, else `block`. Without a seed the random numbers are fresh.
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
    acceptance: str = "auto"

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
        if self.acceptance not in ACCEPTANCE_CHOICES:
            raise OptionError(f"acceptance is {self.acceptance!r}; choose one of {', '.join(ACCEPTANCE_CHOICES)}")

    @property
    def acceptance_rule(self) -> str:
        """What `auto` stands for, otherwise the rule itself."""
        if self.acceptance != "auto":
            return self.acceptance
        return "block" if self.seed is None else "seed"


@dataclass(frozen=True, slots=True)
class Sampler:
    """The sampling of one generation: its parameters, where its output begins, and the ids that end it.

    `noise_seed` is what the rule `seed` keys its noise by (None: tokens are drawn by a generator); `constraint` is the
    grammar that the output must match. `needs_whole_rows` says that someone wants to see all logits of the target.
    """

    params: SamplingParams
    num_prompt_tokens: int = 0
    end_token_ids: Set[int] = frozenset()
    noise_seed: int | None = None
    constraint: Constraint | None = None
    needs_whole_rows: bool = False

    @property
    def num_largest(self) -> int:
        """On how many of a row's largest logits its distribution depends; 0 stands for all."""
        if self.needs_whole_rows or self.constraint is not None or self._changes_logits:
            return 0
        return 2 if self.params.temperature == 0 else self.params.top_k  # the second tells a near-tie

    @property
    def takes_the_likeliest(self) -> bool:
        """Whether each token is simply the model's most likely one."""
        return self.params.temperature == 0 and self.num_largest > 0

    def distributions(self, logits: Logits, prefix: Sequence[int], drafted: Sequence[int] = ()) -> Probs:
        """Logits (N, V) → float32 probabilities (N, V).

        The last row stands after `prefix` and all of `drafted`, each row before it after one drafted token less. Greedy
        rows are one-hot at the first maximum. A row where the constraint allows nothing is all zero; if that is the one
        right after `prefix`, it is a `GrammarError`.
        """
        logits = self._adjusted(logits, prefix, drafted)
        dead = np.isneginf(logits.max(axis=1))
        if dead.any():
            logits = np.where(dead[:, None], np.float32(0), logits)
        if self.params.temperature == 0:
            probs = _one_hot(logits)
        else:
            probs = softmax(logits, self.params.temperature)
            if self.params.top_k or self.params.top_p < 1 or self.params.min_p:
                for row in probs:
                    self._filter(row)
        probs[dead] = 0
        return probs

    def settled(self, probs: Probs, num_before: int) -> Probs:
        """What draft and target bring to the acceptance rule; the first row stands after `num_before` tokens.

        With a `noise_seed` rows become one-hot at the token that the position's own noise picks. The draft's row and
        the target's meet the same noise, so they agree often, and over seeds each token is picked as often as its
        probability says.
        """
        if self.noise_seed is None or self.params.temperature == 0:
            return probs
        settled: Probs = np.zeros_like(probs)
        for row, (ids, arrivals) in zip(settled, self._races(probs, num_before), strict=True):
            if len(ids):
                row[ids[arrivals.argmax()]] = 1
        return settled

    def probabilities(self, logits: Logits, prefix: Sequence[int], drafted: Sequence[int] = ()) -> Probs:
        """`settled` rows of the `distributions`."""
        num_before = len(prefix) + len(drafted) + 1 - len(logits)
        return self.settled(self.distributions(logits, prefix, drafted), num_before)

    def margins(self, logits: Logits, prefix: Sequence[int], drafted: Sequence[int] = ()) -> NDArray[np.float32]:
        """By how much the token picked leads the runner-up, in logits (N,); infinite where tokens are drawn freely."""
        if self.params.temperature == 0:
            scores = self._adjusted(logits, prefix, drafted)
        elif self.noise_seed is None:
            return np.full(len(logits), np.inf, np.float32)
        else:
            num_before = len(prefix) + len(drafted) + 1 - len(logits)
            races = self._races(self.distributions(logits, prefix, drafted), num_before)
            leads = np.array([_lead(arrivals) for _, arrivals in races], np.float32)
            return leads * np.float32(self.params.temperature)
        first_two = np.partition(scores, -2, axis=1)[:, -2:]
        margins: NDArray[np.float32] = first_two[:, 1] - first_two[:, 0]
        return margins

    def _races(self, probs: Probs, num_before: int) -> Iterator[tuple[NDArray[np.int64], Probs]]:
        assert self.noise_seed is not None  # noqa: S101 - for the type checker; both callers have looked
        return (race(row, self.noise_seed, num_before + i) for i, row in enumerate(probs))

    def _filter(self, row: Probs) -> None:
        """Top-k, then top-p, then min-p, each on what the one before left; (V,) is normalized again, in place."""
        if self.params.top_k:
            keep_top_k(row, self.params.top_k)
        if self.params.top_p < 1:
            keep_top_p(row, self.params.top_p)
        if self.params.min_p:
            keep_min_p(row, self.params.min_p)
        row /= row.sum(dtype=np.float64)

    def _adjusted(self, logits: Logits, prefix: Sequence[int], drafted: Sequence[int]) -> Logits:
        """Rows (N, V) with bias, penalties, bans and the grammar; `logits` itself where there is none of them."""
        adjusted = logits
        if self._changes_logits:
            before = [*prefix, *drafted]
            first = len(before) + 1 - len(logits)
            adjusted = np.stack([self._changed(row, before[: first + i]) for i, row in enumerate(logits)])
        if self.constraint is None:
            return adjusted
        allowed = self.constraint.allowed(prefix[self.num_prompt_tokens :], drafted, len(logits))[:, : logits.shape[1]]
        masked = np.where(allowed, adjusted, -np.inf).astype(np.float32)
        blocked = np.isneginf(masked.max(axis=1, keepdims=True))  # the bans left nothing: the grammar goes first
        return np.where(blocked & allowed, logits, masked).astype(np.float32)

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
            row[[i for i in repeating_ids(known, params.no_repeat_ngram) if i < len(row)]] = -np.inf
        if len(output) < params.min_tokens:
            row[[i for i in self.end_token_ids if i < len(row)]] = -np.inf
        return row if np.isfinite(row).any() else logits  # all is banned: the model's own choice stands


def draw(probs: Probs, rng: np.random.Generator) -> int:
    """One token id from a row of non-negative weights (V,), which need not sum to one; `GrammarError` if all are 0."""
    most_likely = int(probs.argmax())
    if probs[most_likely] >= 1:  # certain, as every greedy row is: nothing to add up
        return most_likely
    if not probs[most_likely]:
        raise GrammarError(
            "no token can follow the output and its grammar is not complete; change the grammar so that every "
            "beginning it allows can be completed"
        )
    # First the block that the mass falls into, then the token in it: adding up all of a large vocabulary takes longer.
    starts = np.arange(0, len(probs), DRAW_BLOCK)
    sums = np.cumsum(np.add.reduceat(probs, starts, dtype=np.float64))
    mass = rng.random() * sums[-1]
    block = min(int(np.searchsorted(sums, mass, side="right")), len(starts) - 1)
    before = sums[block - 1] if block else 0.0
    cumulative = np.cumsum(probs[starts[block] :][:DRAW_BLOCK], dtype=np.float64)
    token_id = int(starts[block] + np.searchsorted(cumulative, mass - before, side="right"))
    # Where rounding takes the mass past a block's or the row's end, there may be no token, or one that cannot be.
    return token_id if token_id < len(probs) and probs[token_id] else most_likely


def _lead(arrivals: Probs) -> float:
    """log(first ÷ second) of a race; infinite where there is no second."""
    if len(arrivals) < 2:
        return float("inf")
    second, first = np.partition(arrivals, -2)[-2:]
    return float(np.log(first / second))


def _one_hot(scores: NDArray[np.float32]) -> Probs:
    probs: Probs = np.zeros_like(scores)
    probs[np.arange(len(scores)), scores.argmax(axis=1)] = 1
    return probs
