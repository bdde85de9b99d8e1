"""Decides before each round who drafts, and how many tokens, or nobody: by measured costs and by what was accepted.

speed(k) = E[tokens of a round](k) ÷ (k · t_draft + t_target(k + 1) + t_host), in tokens per second. k = 0 is always
among the arms. Source: Leviathan et al. 2023, section 3.3, with measured durations in place of a constant cost ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pilotfish.runtime.costs import FOLLOWED, WidthCosts
from pilotfish.runtime.drafters.proposal import Drafter, ReadingDrafter, never
from pilotfish.runtime.drafters.suffix import SHORTEST_MATCH, SuffixDrafter
from pilotfish.runtime.odds import MEMORY, ConfidenceOdds, PositionOdds
from pilotfish.runtime.rounds import Round

# A match at least so long; what follows a longer one is surer, so each has odds of its own. The guess comes after it.
MATCHES = ((12, 0.85), (6, 0.7), (3, 0.5), (SHORTEST_MATCH, 0.35))
MODEL_GUESS = 0.7  # where nothing was measured
SPENT_ON_TRIALS = 0.01  # the part of the time that tries of an arm that is expected to lose may cost
TRIAL_TOKENS = 2
LIKELY_TOKENS = 128  # a text goes on for as many tokens as it has so far and these, unless its end is known


@dataclass(frozen=True, slots=True)
class Plan:
    """Who drafts in a round, at most how many tokens, and when to stop before. `arm` names what was chosen.

    `num_pending` committed tokens are not yet read by a drafter that reads.
    """

    arm: str
    drafter: Drafter | None
    num_draft_tokens: int
    should_stop: Callable[[Sequence[float]], bool] = never
    num_pending: int = 0


NOBODY = Plan("off", None, 0)


class Policy(Protocol):
    """What a stream asks before each round and tells after it. `speculation` says in words what was done, and why."""

    def begin(self, num_prompt_tokens: int, max_length: int) -> None:
        """A generation begins; it ends when prompt and output together are `max_length` tokens long, or before."""
        ...

    def plan(self, committed: Sequence[int], most: int) -> Plan:
        """The plan of the next round, with no more than `most` drafted tokens."""
        ...

    def observe(self, plan: Plan, round_: Round, target_s: float, draft_s: float, host_s: float) -> None:
        """What came of it, and the seconds spent in the forwards of target and draft and outside them."""
        ...

    @property
    def speculation(self) -> str:
        """`on: …` or `off: …`, with the reason."""
        ...

    @property
    def target_only_s(self) -> float | None:
        """Seconds a token of the target alone takes, from measured costs; None if that is not known."""
        ...


class Fixed:
    """Always the same drafter with the same number of tokens, or none at all."""

    def __init__(self, drafter: Drafter | None, num_draft_tokens: int, speculation: str) -> None:
        """`speculation` says in words what was asked for."""
        self._drafter = drafter
        self._num_draft_tokens = num_draft_tokens
        self.speculation = speculation
        self.target_only_s: float | None = None

    def begin(self, num_prompt_tokens: int, max_length: int) -> None:
        """Nothing to prepare."""

    def plan(self, committed: Sequence[int], most: int) -> Plan:
        """The same every time."""
        return Plan("fixed", self._drafter, min(self._num_draft_tokens, most))

    def observe(self, plan: Plan, round_: Round, target_s: float, draft_s: float, host_s: float) -> None:
        """Nothing to learn."""


class _Arm:
    """What is known of one way to draft; `idle_s` are the seconds since it last lost."""

    def __init__(self, guess: float) -> None:
        self.odds = PositionOdds(guess)
        self.idle_s = 0.0
        self.num_plays = 0


class Controller:
    """Picks the arm with the best expected speed; one that is expected to lose is tried now and then.

    Arms: nobody (`off`), the draft model (`model`), and copying (`suffix`), apart by the length of the match. The draft
    model goes on while another token is expected to bring more than it costs, by its own confidence. A try may cost no
    more than a small part of the time since the arm last lost, so that all tries together cost no more than that.
    """

    def __init__(
        self,
        target_costs: WidthCosts,
        draft_costs: WidthCosts | None,
        suffix: SuffixDrafter,
        model: ReadingDrafter | None,
        agreement: float | None = None,
    ) -> None:
        """`draft_costs` and `model` are both there or both None.

        `agreement` is the chance that a token of the model stands, as far as it is known beforehand.
        """
        self._target_costs = target_costs
        self._draft_costs = draft_costs
        self._suffix = suffix
        self._model = model
        self._arms = {f"suffix {length}": _Arm(guess) for length, guess in MATCHES}
        if model is not None:
            self._arms["model"] = _Arm(MODEL_GUESS if agreement is None else agreement)
        self._confidence_odds = ConfidenceOdds()
        self._host_s = 0.0
        self._num_rounds: dict[str, int] = {}
        self._num_prompt_tokens = self._max_length = 0

    def begin(self, num_prompt_tokens: int, max_length: int) -> None:
        """A new text: what earlier ones taught counts for less."""
        self._num_prompt_tokens, self._max_length = num_prompt_tokens, max_length
        for arm in self._arms.values():
            arm.odds.fade(MEMORY)
        self._num_rounds = {}

    def plan(self, committed: Sequence[int], most: int) -> Plan:
        """The plan of the next round."""
        best, best_speed = NOBODY, 1 / self.target_only_s
        candidates = self._candidates(committed)
        num_left = min(self._max_length - len(committed), LIKELY_TOKENS + len(committed) - self._num_prompt_tokens)
        for name, drafter, num_pending in candidates:
            speed, num_tokens = self._best_length(name, num_pending, most, max(num_left, 1))
            if speed > best_speed:
                best, best_speed = Plan(name, drafter, num_tokens, num_pending=num_pending), speed
        if best is NOBODY and most:
            number = min(TRIAL_TOKENS, most)
            for name, drafter, num_pending in candidates:
                if self._most_lost_s(name, num_pending, number) <= SPENT_ON_TRIALS * self._arms[name].idle_s:
                    return Plan(name, drafter, number, num_pending=num_pending)
        if best.arm == "model":
            best = replace(best, num_draft_tokens=self._most_drafted(most), should_stop=self._stop_rule(best_speed))
        return best

    def observe(self, plan: Plan, round_: Round, target_s: float, draft_s: float, host_s: float) -> None:
        """Learns from a round."""
        round_s = target_s + draft_s + host_s
        for arm in self._arms.values():
            arm.idle_s += round_s
        name = plan.arm if round_.num_drafted or draft_s else "off"
        self._num_rounds[name] = self._num_rounds.get(name, 0) + 1
        self._target_costs.observe([round_.num_drafted + 1], target_s)
        self._host_s += FOLLOWED * (host_s - self._host_s)
        if name == "off":
            return
        arm = self._arms[plan.arm]
        arm.num_plays += 1
        if round_s > (round_.num_accepted + 1) * self.target_only_s:
            arm.idle_s = 0.0
        if not round_.num_drafted:  # what the draft wrote was of no use, which counts as a token that was rejected
            arm.odds.observe(1, 0)
            return
        ended = len(round_.token_ids) == round_.num_accepted  # inside the block, so the next token was not rejected
        num_drafted = round_.num_accepted if ended else round_.num_drafted
        arm.odds.observe(num_drafted, round_.num_accepted)
        if plan.arm == "model" and self._draft_costs is not None:
            self._draft_costs.observe([max(plan.num_pending, 1)] + [1] * (round_.num_drafted - 1), draft_s)
            for position, confidence in enumerate(round_.confidences[: min(round_.num_accepted + 1, num_drafted)]):
                self._confidence_odds.observe(confidence, position < round_.num_accepted)

    @property
    def target_only_s(self) -> float:
        """Seconds a token of the target alone takes: a forward of one row, as followed while running, and the host."""
        return self._target_costs.seconds(1) + self._host_s

    @property
    def speculation(self) -> str:
        """Who drafted in how many rounds, and why nobody did in the others."""
        by_drafter: dict[str, int] = {}
        for name, number in self._num_rounds.items():
            drafter = name.split()[0]
            by_drafter[drafter] = by_drafter.get(drafter, 0) + number
        num_off = by_drafter.pop("off", 0)
        if not by_drafter or num_off > 4 * sum(by_drafter.values()):
            return f"off: {self._reason()}"
        drafted = ", ".join(f"{name} in {number} rounds" for name, number in sorted(by_drafter.items()))
        return f"on: {drafted}" + (f", off in {num_off}: {self._reason()}" if num_off else "")

    def _reason(self) -> str:
        if "model" in self._arms and self._draft_costs is not None:
            share = self._draft_costs.seconds(1) / self._target_costs.seconds(1)
            rate = self._arms["model"].odds.rate
            return f"the draft costs {share:.2f} of a target pass and {rate:.0%} of its tokens are accepted"
        tried = [arm for arm in self._arms.values() if arm.num_plays]
        if not tried:
            return "nothing in the text repeats, and there is no draft model"
        rate = sum(arm.odds.rate for arm in tried) / len(tried)
        return f"{rate:.0%} of the tokens copied from earlier text are accepted, and there is no draft model"

    def _candidates(self, committed: Sequence[int]) -> list[tuple[str, Drafter, int]]:
        """(arm, drafter, tokens that it has yet to read) of those that have something to say here."""
        found: list[tuple[str, Drafter, int]] = []
        length = self._suffix.match_length(committed)
        if length >= SHORTEST_MATCH:
            bound = next(bound for bound, _ in MATCHES if length >= bound)
            found.append((f"suffix {bound}", self._suffix, 0))
        if self._model is not None:
            found.append(("model", self._model, len(committed) - self._model.length))
        return found

    def _best_length(self, name: str, num_pending: int, most: int, num_left: int) -> tuple[float, int]:
        """(expected tokens per second, number of drafted tokens) at its best; (0, 0) if none may be drafted."""
        best = (0.0, 0)
        most = self._most_drafted(most) if name == "model" else most
        # What the draft has missed is read once, and everything that is still to come shares it.
        catching_up_s = max(self._draft_s(name, num_pending, 1) - self._draft_s(name, 1, 1), 0.0)
        for number, tokens in enumerate(self._arms[name].odds.expected_tokens(most), 1):
            seconds = self._target_costs.seconds(number + 1) + self._host_s + self._draft_s(name, 1, number)
            best = max(best, (tokens / (seconds + catching_up_s * min(tokens / num_left, 1)), number))
        return best

    def _draft_s(self, name: str, num_pending: int, number: int) -> float:
        """Seconds in which an arm drafts a number of tokens."""
        if name != "model" or self._draft_costs is None:
            return 0.0
        return self._draft_costs.seconds(max(num_pending, 1)) + (number - 1) * self._draft_costs.seconds(1)

    def _most_lost_s(self, name: str, num_pending: int, number: int) -> float:
        """What a round costs more than one of the target alone, which writes one token too if none is accepted."""
        wider_s = self._target_costs.seconds(number + 1) - self._target_costs.seconds(1)
        return max(wider_s, 0.0) + self._draft_s(name, num_pending, number)

    def _most_drafted(self, most: int) -> int:
        """A draft model that is new here begins with few tokens, so that a hopeless one costs little."""
        return min(most, 2 << min(self._arms["model"].num_plays, 8))

    def _stop_rule(self, speed: float) -> Callable[[Sequence[float]], bool]:
        """Whether one more token brings less than the time it takes would at `speed` tokens per second."""
        if self._draft_costs is None:
            return never
        row_s = (self._target_costs.seconds(9) - self._target_costs.seconds(2)) / 7
        least = (self._draft_costs.seconds(1) + max(row_s, 0)) * speed

        def should_stop(confidences: Sequence[float]) -> bool:
            reached = 1.0
            for confidence in confidences:
                reached *= self._confidence_odds.chance(confidence)
            return reached * self._confidence_odds.mean < least

        return should_stop
