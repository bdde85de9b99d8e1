"""The controller in a world on paper: it finds the arm that pays, leaves the one that does not, and says why."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import pilotfish.runtime as pilotfish
from pilotfish.runtime import GenerationOptions, SamplingParams
from pilotfish.runtime.controller import Controller, Plan
from pilotfish.runtime.costs import WidthCosts
from pilotfish.runtime.drafters.suffix import SuffixDrafter
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.rounds import Round

TARGET_S = {1: 0.100, 2: 0.102, 3: 0.104, 5: 0.108, 9: 0.120, 17: 0.150}


class World:
    """A draft model whose tokens each stand with the same chance, and a text in which nothing repeats."""

    def __init__(self, chance: float, draft_s: float) -> None:
        self.chance, self.draft_s = chance, draft_s
        self.length = 0  # stands for the draft model, which has read all
        self.seconds = 0.0
        self._rng = np.random.default_rng(0)
        self._costs = WidthCosts(TARGET_S)
        costs = {width: draft_s * (1 + 0.01 * width) for width in TARGET_S}
        self.controller = Controller(WidthCosts(TARGET_S), WidthCosts(costs), SuffixDrafter(1 << 30), self)

    def generate(self, num_tokens: int, most: int = 16) -> Iterator[Plan]:
        self.controller.begin()
        committed = [0]
        while len(committed) < num_tokens:
            self.length = len(committed)
            plan = self.controller.plan(committed, most)
            yield plan
            round_ = self.play(plan, len(committed))
            committed.extend(round_.token_ids)
            draft_s = self.draft_s * round_.num_drafted
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
        return Round(token_ids, num_drafted, num_accepted, None, None, origins, tuple(confidences), drafted_by)

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
    assert 1 <= sum(plan.arm == "model" for plan in plans[100:]) < 10  # tried again, sparingly
    assert world.controller.speculation.startswith("off: the draft costs 0.5")
    assert "of a target pass and" in world.controller.speculation


def test_a_draft_that_recovers_is_taken_up_again():
    world = World(0.0, 0.02)
    for _ in world.generate(300):
        pass
    world.chance = 0.9
    plans = list(world.generate(3000))
    assert sum(plan.arm == "model" for plan in plans[-100:]) > 90


@pytest.mark.parametrize("most", [0, 1, 3])
def test_it_never_drafts_more_than_it_may(most: int):
    assert {plan.num_draft_tokens <= most for plan in World(0.9, 0.01).generate(200, most)} == {True}


class Reckless:
    """Another drafter and another number of tokens in each round, at random."""

    speculation, target_only_s = "on: anything", None

    def __init__(self, engine: Engine, seed: int) -> None:
        self._drafters = [None, *engine._context.drafters.values()]
        self._rng = np.random.default_rng(seed)
        self.num_arms: set[int] = set()

    def begin(self) -> None:
        pass

    def plan(self, committed: list[int], most: int) -> Plan:
        arm = int(self._rng.integers(len(self._drafters)))
        self.num_arms.add(arm)
        return Plan("any", self._drafters[arm], min(int(self._rng.integers(1, 9)), most))

    def observe(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(0.9, top_p=0.9, seed=5)], ids=["greedy", "seed"])
@pytest.mark.parametrize("seed", range(4))
def test_arms_that_change_at_random_change_no_output(
    engine: Engine, sampling: SamplingParams, seed: int, monkeypatch: pytest.MonkeyPatch
):
    text = "the pilot fish swims ahead of the shark, and the pilot fish"
    expected = [i for c in engine.generate(text, GenerationOptions(60, sampling, "off")) for i in c.token_ids]
    engine.reset()
    policy = Reckless(engine, seed)
    monkeypatch.setattr(pilotfish.Engine, "_policy", lambda *_: policy)
    found: list[int] = []
    for chunk in engine.generate(text, GenerationOptions(60, sampling)):
        found.extend(chunk.token_ids)
        for decoder in engine._context.decoders.values():
            assert decoder.length < len(engine._context.committed)
    assert found == expected
    assert len(policy.num_arms) > 2
