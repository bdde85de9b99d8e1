"""Decides before each round who drafts, and how many tokens, or nobody: by measured costs and by what was accepted.

speed(k) = E[tokens of a round](k) ÷ (k · t_draft + t_target(k + 1) + t_host), in tokens per second. k = 0 is always
among the arms. Source: Leviathan et al. 2023, section 3.3, with measured durations in place of a constant cost ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pilotfish.runtime.costs import FOLLOWED, WidthCosts
from pilotfish.runtime.drafters.model import ModelDrafter
from pilotfish.runtime.drafters.proposal import Drafter, never
from pilotfish.runtime.drafters.suffix import SHORTEST_MATCH, SuffixDrafter
from pilotfish.runtime.odds import MEMORY, ConfidenceOdds, PositionOdds
from pilotfish.runtime.rounds import Round

# A match at least so long; what follows a longer one is surer, so each has odds of its own. The guess comes after it.
MATCHES = ((12, 0.85), (6, 0.7), (3, 0.5), (SHORTEST_MATCH, 0.35))
MODEL_GUESS = 0.7
SHORTEST_WAIT, LONGEST_WAIT = 12, 400  # rounds until an arm that loses is tried again; doubled each time in vain


@dataclass(frozen=True, slots=True)
class Plan:
    """Who drafts in a round, at most how many tokens, and when to stop before. `arm` names what was chosen."""

    arm: str
    drafter: Drafter | None
    num_draft_tokens: int
    should_stop: Callable[[Sequence[float]], bool] = never


NOBODY = Plan("off", None, 0)


class Policy(Protocol):
    """What a stream asks before each round and tells after it. `speculation` says in words what was done, and why."""

    def begin(self) -> None:
        """A generation begins."""
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

    def begin(self) -> None:
        """Nothing to prepare."""

    def plan(self, committed: Sequence[int], most: int) -> Plan:
        """The same every time."""
        return Plan("fixed", self._drafter, min(self._num_draft_tokens, most))

    def observe(self, plan: Plan, round_: Round, target_s: float, draft_s: float, host_s: float) -> None:
        """Nothing to learn."""


class _Arm:
    """What is known of one way to draft."""

    def __init__(self, guess: float) -> None:
        self.odds = PositionOdds(guess)
        self.idle_rounds = 0
        self.wait = SHORTEST_WAIT
        self.num_plays = 0

    def is_due(self) -> bool:
        return self.idle_rounds >= self.wait


class Controller:
    """Picks the arm with the best expected speed; one that lost is tried again, after longer and longer waits.

    Arms: nobody (`off`), the draft model (`model`), and copying (`suffix`), apart by the length of the match. The draft
    model goes on while another token is expected to bring more than it costs, by its own confidence.
    """

    def __init__(
        self,
        target_costs: WidthCosts,
        draft_costs: WidthCosts | None,
        suffix: SuffixDrafter,
        model: ModelDrafter | None,
    ) -> None:
        """`draft_costs` and `model` are both there or both None."""
        self._target_costs = target_costs
        self._draft_costs = draft_costs
        self._suffix = suffix
        self._model = model
        self._arms = {f"suffix {length}": _Arm(guess) for length, guess in MATCHES}
        if model is not None:
            self._arms["model"] = _Arm(MODEL_GUESS)
        self._confidence_odds = ConfidenceOdds()
        self._host_s = 0.0
        self._num_rounds: dict[str, int] = {}

    def begin(self) -> None:
        """A new text: what earlier ones taught counts for less."""
        for arm in self._arms.values():
            arm.odds.fade(MEMORY)
        self._num_rounds = {}

    def plan(self, committed: Sequence[int], most: int) -> Plan:
        """The plan of the next round."""
        off_speed = 1 / (self._target_costs.seconds(1) + self._host_s)
        best, tried = (off_speed, NOBODY), None
        for name, drafter, num_behind in self._candidates(committed):
            speed, num_tokens = self._best_length(name, num_behind, most)
            if not num_tokens:
                continue
            arm = self._arms[name]
            if speed <= off_speed and arm.is_due():
                tried = Plan(name, drafter, min(2, most))
                arm.wait = min(2 * arm.wait, LONGEST_WAIT)
            if speed > best[0]:
                best = (speed, Plan(name, drafter, num_tokens))
        plan = tried if tried is not None and best[1].arm == "off" else best[1]
        if plan.arm == "model":
            plan = Plan("model", plan.drafter, self._most_drafted(most), self._stop_rule(best[0]))
        return plan

    def observe(self, plan: Plan, round_: Round, target_s: float, draft_s: float, host_s: float) -> None:
        """Learns from a round."""
        for arm in self._arms.values():
            arm.idle_rounds += 1
        name = plan.arm if round_.num_drafted else "off"
        self._num_rounds[name] = self._num_rounds.get(name, 0) + 1
        self._target_costs.observe(round_.num_drafted + 1, target_s)
        self._host_s += FOLLOWED * (host_s - self._host_s)
        if not round_.num_drafted:
            return
        arm = self._arms[plan.arm]
        arm.idle_rounds, arm.num_plays = 0, arm.num_plays + 1
        if round_.num_accepted:
            arm.wait = SHORTEST_WAIT
        ended = len(round_.token_ids) == round_.num_accepted  # inside the block, so the next token was not rejected
        num_drafted = round_.num_accepted if ended else round_.num_drafted
        arm.odds.observe(num_drafted, round_.num_accepted)
        if plan.arm == "model" and self._draft_costs is not None:
            self._draft_costs.observe(1, draft_s / round_.num_drafted)
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

    def _best_length(self, name: str, num_behind: int, most: int) -> tuple[float, int]:
        """(expected tokens per second, number of drafted tokens) at its best; (0, 0) if none may be drafted."""
        best = (0.0, 0)
        most = self._most_drafted(most) if name == "model" else most
        for number, tokens in enumerate(self._arms[name].odds.expected_tokens(most), 1):
            seconds = self._target_costs.seconds(number + 1) + self._host_s
            if name == "model" and self._draft_costs is not None:
                # What the draft has missed is read once, so a while of drafting shares it.
                catching_up = self._draft_costs.seconds(max(num_behind, 1)) - self._draft_costs.seconds(1)
                seconds += number * self._draft_costs.seconds(1) + max(catching_up, 0) / SHORTEST_WAIT
            best = max(best, (tokens / seconds, number))
        return best

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
