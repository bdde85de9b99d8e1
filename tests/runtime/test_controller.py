"""The controller in a world on paper: it finds the arm that pays, leaves the one that does not, and says why."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pilotfish.runtime.controller import Controller, Plan
from pilotfish.runtime.costs import WidthCosts
from pilotfish.runtime.drafters.suffix import SuffixDrafter
from pilotfish.runtime.rounds import Round

TARGET_S = {1: 0.100, 2: 0.102, 3: 0.104, 5: 0.108, 9: 0.120, 17: 0.150}


class World:
    """A draft model whose tokens each stand with the same chance, and a text in which nothing repeats.

    Reading takes the draft a tenth of the time for a token beyond the first of a pass. It reads only when it drafts.
    """

    def __init__(self, chance: float, draft_s: float, agreement: float | None = None) -> None:
        self.chance, self.draft_s = chance, draft_s
        self.length = 0  # stands for the draft model
        self.seconds = 0.0
        self._rng = np.random.default_rng(0)
        self._costs = WidthCosts(TARGET_S)
        self.draft_costs = WidthCosts({width: self.reading_s(width) for width in TARGET_S})
        suffix = SuffixDrafter(1 << 30)
        self.controller = Controller(WidthCosts(TARGET_S), self.draft_costs, suffix, self, agreement)

    def reading_s(self, num_tokens: int) -> float:
        return self.draft_s * (0.9 + 0.1 * num_tokens)

    def generate(self, num_tokens: int, most: int = 16, num_prompt_tokens: int = 1) -> Iterator[Plan]:
        self.length = 0
        self.controller.begin(num_prompt_tokens, num_prompt_tokens + num_tokens)
        committed = list(range(num_prompt_tokens))
        while len(committed) < num_prompt_tokens + num_tokens:
            plan = self.controller.plan(committed, most)
            yield plan
            round_ = self.play(plan, len(committed))
            draft_s = 0.0
            if round_.num_drafted:
                pending = len(committed) - self.length
                draft_s = self.reading_s(pending) + (round_.num_drafted - 1) * self.reading_s(1)
                self.length = len(committed)
            committed.extend(round_.token_ids)
            target_s = self._costs.seconds(round_.num_drafted + 1)
            self.seconds += target_s + draft_s
            self.controller.observe(plan, round_, target_s, draft_s, 0.0)

    def play(self, plan: Plan, start: int) -> Round:
        confidences: list[float] = []
        while len(confidences) < plan.num_draft_tokens:
            confidences.append(self.chance)
            if plan.should_stop(confidences):
                break
        num_drafted = len(confidences)
        rejected = np.flatnonzero(self._rng.random(num_drafted) >= self.chance)
        num_accepted = int(rejected[0]) if len(rejected) else num_drafted
        token_ids = tuple(range(start, start + num_accepted + 1))
        origins, drafted_by = ("model",) * num_accepted, "model" if num_drafted else ""
        return Round(token_ids, num_drafted, num_accepted, None, None, None, origins, tuple(confidences), drafted_by)

    def best_fixed_s(self) -> float:
        """Seconds a token of the best fixed number of drafted tokens, none included, in expectation."""
        found = [self._costs.seconds(1)]
        for number in range(1, 17):
            tokens = sum(self.chance**i for i in range(number + 1))
            found.append((number * self.draft_s + self._costs.seconds(number + 1)) / tokens)
        return min(found)


@pytest.mark.parametrize("draft_s", [0.01, 0.04])
@pytest.mark.parametrize("chance", [0.3, 0.5, 0.7, 0.9])
def test_it_is_nearly_as_fast_as_the_best_fixed_arm(chance: float, draft_s: float):
    world = World(chance, draft_s)
    for _ in world.generate(3000):
        pass
    assert 3000 * world.best_fixed_s() / world.seconds > 0.93


def test_a_hopeless_draft_is_left_within_few_rounds_and_the_reason_is_told():
    world = World(0.0, 0.05)
    plans = list(world.generate(1000))
    assert world.seconds < 1.03 * 1000 * TARGET_S[1]
    assert sum(plan.arm == "model" for plan in plans[:20]) <= 6
    assert sum(plan.arm == "model" for plan in plans[100:]) < 10  # tried again sparingly, if at all
    assert world.controller.speculation.startswith("off: the draft costs 0.5")
    assert "of a target pass and" in world.controller.speculation


@pytest.mark.parametrize("num_prompt_tokens", [20, 500])
@pytest.mark.parametrize("num_answers", [1, 30])
def test_a_draft_measured_as_hopeless_costs_next_to_nothing_in_short_answers(num_prompt_tokens: int, num_answers: int):
    world = World(0.0, 0.04, agreement=0.01)
    for _ in range(num_answers):
        for _ in world.generate(128, num_prompt_tokens=num_prompt_tokens):
            pass
    assert world.seconds < 1.015 * num_answers * 128 * TARGET_S[1]


def test_a_draft_that_recovers_is_taken_up_again():
    world = World(0.0, 0.02)
    for _ in world.generate(300):
        pass
    world.chance = 0.9
    plans = list(world.generate(3000))
    assert sum(plan.arm == "model" for plan in plans[-100:]) > 90


def test_reading_what_the_draft_missed_is_not_taken_for_the_price_of_a_token():
    world = World(0.6, 0.04)
    for plan in world.generate(3000):
        if plan.arm == "model":
            world.length = max(world.length - 7, 0)  # as after rounds in which somebody else drafted
    assert world.draft_costs.seconds(1) == pytest.approx(0.04, rel=0.03)


def test_a_long_prompt_is_read_by_the_draft_only_if_the_answer_can_pay_for_it():
    lengths = {
        num_tokens: sum(plan.arm == "model" for plan in World(0.8, 0.02).generate(num_tokens, num_prompt_tokens=1000))
        for num_tokens in (8, 400)
    }
    assert lengths[8] == 0
    assert lengths[400] > 50


def test_a_draft_that_writes_what_is_of_no_use_is_left_like_one_that_is_rejected():
    world = World(0.9, 0.04)
    world.play = lambda plan, start: Round((start,), 0, 0, None, None, None, (), (), "")
    observe, plans = world.controller.observe, []
    for plan in world.generate(300):
        plans.append(plan)
        world.controller.observe = lambda plan, round_, target_s, draft_s, host_s: observe(
            plan, round_, target_s, 0.08 if plan.arm == "model" else 0.0, host_s
        )
    assert plans[0].arm == "model"
    assert sum(plan.arm == "model" for plan in plans[20:]) < 10
    assert world.controller.speculation.startswith("off: the draft costs")


@pytest.mark.parametrize("most", [0, 1, 3])
def test_it_never_drafts_more_than_it_may(most: int):
    assert {plan.num_draft_tokens <= most for plan in World(0.9, 0.01).generate(200, most)} == {True}
