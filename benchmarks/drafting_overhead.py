"""Times what a round costs beside the models: the suffix automaton, by length of the text, and the controller's choice.

Usage: python benchmarks/drafting_overhead.py

Prints microseconds (medians). A text of random words from a small set repeats itself now and then, as real text does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from pilotfish.runtime.controller import Controller
from pilotfish.runtime.costs import WidthCosts
from pilotfish.runtime.drafters.suffix import SuffixDrafter
from pilotfish.runtime.rounds import Round
from pilotfish.runtime.sampling import Sampler, SamplingParams
from pilotfish.runtime.text_table import markdown_table

HEADINGS = ("tokens", "reading, µs a token", "match, µs", "propose 8 and their rows, µs", "controller, µs a round")

VOCAB_SIZE = 152_000
NUM_ROUNDS = 400
COSTS = {1: 0.1, 2: 0.1, 5: 0.11, 9: 0.13, 17: 0.18}


class StandIn:
    """Stands for a draft model that has read everything."""

    length = 0


def text(num_tokens: int) -> list[int]:
    """Token ids of random words of four tokens each, out of 300 words."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, VOCAB_SIZE, (300, 4))
    return words[rng.integers(0, 300, num_tokens // 4)].ravel().tolist()


def median_us(call: Callable[[], object], prepare: Callable[[], object]) -> float:
    """Microseconds of `call`; `prepare` goes before each and is not timed."""
    found = []
    for _ in range(NUM_ROUNDS):
        prepare()
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return float(np.median(found)) * 1e6


def main() -> None:
    """Measures and prints."""
    sampler, rng = Sampler(SamplingParams()), np.random.default_rng(0)
    rows = []
    for num_tokens in (1000, 2000, 4000, 8000, 16000):
        committed = text(num_tokens)
        suffix = SuffixDrafter(VOCAB_SIZE)
        started = time.perf_counter()
        suffix.match_length(committed)
        reading = (time.perf_counter() - started) * 1e6 / num_tokens
        matching = median_us(
            lambda suffix=suffix, committed=committed: suffix.match_length(committed),
            lambda committed=committed: committed.append(committed[-40]),
        )
        proposing = median_us(
            lambda suffix=suffix, committed=committed: suffix.propose(committed, 8, sampler, rng),
            lambda committed=committed: committed.append(committed[-40]),
        )
        model = StandIn()
        controller = Controller(WidthCosts(COSTS), WidthCosts({w: s / 3 for w, s in COSTS.items()}), suffix, model)
        controller.begin(num_tokens, 2 * num_tokens)

        def choose(
            controller: Controller = controller, committed: list[int] = committed, model: StandIn = model
        ) -> None:
            model.length = len(committed)
            plan = controller.plan(committed, 16)
            k = min(plan.num_draft_tokens, 4)
            played = Round(tuple(range(k)), k, max(k - 1, 0), None, None, None, (), (0.8,) * k, plan.arm if k else "")
            controller.observe(plan, played, 0.11, 0.03 * k, 0.001)

        choosing = median_us(choose, lambda: None)
        rows.append((str(num_tokens), *(f"{each:.1f}" for each in (reading, matching, proposing, choosing))))
    print(markdown_table(HEADINGS, rows))


if __name__ == "__main__":
    main()
