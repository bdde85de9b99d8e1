"""The theorem of speculative decoding on hand-written rows; no model.

Axis letters: `K` drafted tokens, `V` vocabulary. With the rule `seed` rows are settled by the noise of the run.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.runtime.acceptance import RULES, AcceptanceRule, Verdict
from pilotfish.runtime.sampling import Sampler, SamplingParams, draw
from support.measure import excess
from support.paper_rules import block_table, distance, everything_table, rule_of, token_table, unweighted

NUM_RUNS = 10_000
DRAWN = SamplingParams(temperature=1)
STORY_SEED = 32  # a story whose emitted tokens every wrong rule below changes widely
PAPER_TABLES = {"token": token_table, "block": block_table}

each_rule = pytest.mark.parametrize("rule", sorted(RULES))
each_drawn_rule = pytest.mark.parametrize("rule", sorted(PAPER_TABLES))


def rows(*values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)


def settled(rule: str, probs: np.ndarray, run: int, num_before: int = 0) -> np.ndarray:
    return Sampler(DRAWN, noise_seed=run if rule == "seed" else None).settled(probs, num_before)


def play(rule: str, draft: np.ndarray, target: np.ndarray, run: int) -> tuple[list[int], Verdict]:
    """Draws a proposal from the draft's rows and gives the verdict on it."""
    rng = np.random.default_rng(run)
    draft_probs = draft.copy()
    for i, row in enumerate(draft):
        draft_probs[i] = settled(rule, row[None], run, i)[0]
    drafted = [draw(row, rng) for row in draft_probs]
    return drafted, RULES[rule](drafted, draft_probs, settled(rule, target, run), rng)


class Numbers:
    """Stands for a generator whose next numbers are known."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = iter(numbers)

    def random(self) -> float:
        return next(self._numbers)


@each_rule
def test_a_token_the_target_never_writes_is_rejected(rule: str):
    plays = [play(rule, rows([0.6, 0.4, 0]), rows([0, 0.3, 0.7], [1, 0, 0]), run) for run in range(200)]
    verdicts = [verdict for drafted, verdict in plays if drafted == [0]]
    assert len(verdicts) > 50
    assert {verdict.num_accepted for verdict in verdicts} == {0}
    assert 0 not in {verdict.next_token for verdict in verdicts}


@each_rule
def test_a_token_the_draft_underrates_always_stands(rule: str):
    plays = [play(rule, rows([0.2, 0.8]), rows([0.7, 0.3], [0, 1]), run) for run in range(500)]
    verdicts = {verdict for drafted, verdict in plays if drafted == [0]}
    assert verdicts == {Verdict(num_accepted=1, next_token=1)}


@each_rule
def test_identical_rows_accept_everything(rule: str):
    row = [0.1, 0.2, 0.7]
    plays = [play(rule, rows(row, row), rows(row, row, row), run) for run in range(200)]
    assert {verdict.num_accepted for _, verdict in plays} == {2}
    assert len({tuple(drafted) for drafted, _ in plays}) > 4


@each_rule
def test_no_proposal_draws_from_the_target(rule: str):
    nothing, target = np.zeros((0, 3), np.float32), rows([0.5, 0, 0.5])
    verdicts = [play(rule, nothing, target, run)[1] for run in range(100)]
    assert {verdict.num_accepted for verdict in verdicts} == {0}
    assert {verdict.next_token for verdict in verdicts} == {0, 2}


@each_rule
@pytest.mark.parametrize(
    ("drafted", "target", "verdict"),
    [([3, 1, 4], [3, 1, 2, 0], (2, 2)), ([3, 1, 4], [0, 1, 4, 2], (0, 0)), ([3, 1, 4], [3, 1, 4, 2], (3, 2))],
)
def test_greedy_rows_reduce_to_equal_or_take_the_targets_token(
    rule: str, drafted: list[int], target: list[int], verdict: tuple[int, int]
):
    one_hot = np.eye(5, dtype=np.float32)
    for run in range(20):
        assert play(rule, one_hot[drafted], one_hot[target], run) == (drafted, Verdict(*verdict))


@each_drawn_rule
def test_the_correction_follows_what_the_draft_left_out(rule: str):
    """The first number rejects; the second goes evenly through all of [0, 1), so shares are exact but for one cell."""
    draft, target, num_cells = rows([0.5, 0.3, 0.2, 0]), rows([0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0]), 1000
    numbers = [Numbers(0.99, (cell + 0.5) / num_cells) for cell in range(num_cells)]
    verdicts = [RULES[rule]([0], draft, target, rng) for rng in numbers]
    assert {verdict.num_accepted for verdict in verdicts} == {0}
    shares = np.bincount([verdict.next_token for verdict in verdicts], minlength=4) / num_cells
    np.testing.assert_allclose(shares, [0, 0, 0.2, 0.8], atol=1.01 / num_cells)  # max(0, target − draft) over its sum


def test_inside_a_block_the_target_is_weighed_by_the_tokens_before():
    """The weight 1/2 leaves [0.25, 0, 0] of the second row, so the first token stands alone once in three times."""
    draft, target = rows([1, 0, 0], [0, 0.3, 0.7]), rows([0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1])
    stands = 0.25 / (0.25 + 1 - 0.5)
    for number, verdict in ((stands - 1e-6, Verdict(1, 0)), (stands + 1e-6, Verdict(0, 1))):
        assert RULES["block"]([0, 2], draft, target, Numbers(number, 0.5, 0.99)) == verdict


def first_shares(rule: str, draft: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Share of each token as the first one emitted."""
    rng, counts = np.random.default_rng(0), np.zeros(draft.shape[1])
    for run in range(NUM_RUNS):
        draft_probs, target_probs = settled(rule, draft, run), settled(rule, target, run)
        drafted = draw(draft_probs[0], rng)
        verdict = RULES[rule]([drafted], draft_probs, target_probs, rng)
        counts[drafted if verdict.num_accepted else verdict.next_token] += 1
    return counts / NUM_RUNS


@each_rule
@pytest.mark.parametrize(
    ("draft", "target"),
    [
        ([0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4]),  # mass that the draft never proposes is reached
        ([0.0, 0.0, 1.0, 0.0], [0.4, 0.3, 0.2, 0.1]),  # a lookup drafter is certain
        ([0.25, 0.25, 0.25, 0.25], [0.97, 0.01, 0.01, 0.01]),
    ],
)
def test_the_emitted_token_follows_the_target(rule: str, draft: list[float], target: list[float]):
    assert excess(first_shares(rule, rows(draft), rows(target, [1, 0, 0, 0])), np.array(target), NUM_RUNS) <= 1


@dataclass(frozen=True)
class Story:
    """Two models on paper: after fewer than K, or than K + 1, of V tokens their rows depend on each one of them."""

    draft: dict[tuple[int, ...], np.ndarray]
    target: dict[tuple[int, ...], np.ndarray]
    num_drafted: int

    def draft_probs(self, block: tuple[int, ...]) -> np.ndarray:
        return np.stack([self.draft[block[:i]] for i in range(self.num_drafted)])

    def target_probs(self, block: tuple[int, ...]) -> np.ndarray:
        return np.stack([self.target[block[:i]] for i in range(self.num_drafted + 1)])

    @property
    def blocks(self) -> list[tuple[int, ...]]:
        return list(itertools.product(range(len(self.target[()])), repeat=self.num_drafted))


def random_story(num_drafted: int, seed: int, vocab_size: int = 3) -> Story:
    """Rows between nearly flat and nearly certain."""
    rng = np.random.default_rng(seed)

    def row() -> np.ndarray:
        return rng.dirichlet(np.full(vocab_size, 0.8)).astype(np.float32)

    prefixes = [p for n in range(num_drafted + 1) for p in itertools.product(range(vocab_size), repeat=n)]
    return Story({p: row() for p in prefixes}, {p: row() for p in prefixes}, num_drafted)


def chance(model: dict[tuple[int, ...], np.ndarray], token_ids: tuple[int, ...], num_given: int = 0) -> float:
    """That a model goes on to write all of `token_ids` after the first `num_given` of them."""
    return float(np.prod([float(model[token_ids[:i]][token_ids[i]]) for i in range(num_given, len(token_ids))]))


def drafted_block(rule: str, story: Story, run: int, rng: np.random.Generator) -> tuple[tuple[int, ...], np.ndarray]:
    """The drafted tokens, and the rows that each was drawn from."""
    block: tuple[int, ...] = ()
    probs = np.zeros((story.num_drafted, len(story.target[()])), np.float32)
    for i in range(story.num_drafted):
        probs[i] = settled(rule, story.draft[block][None], run, i)[0]
        block = (*block, draw(probs[i], rng))
    return block, probs


def outcomes(rule: str, accept: AcceptanceRule, story: Story) -> Counter[tuple[tuple[int, ...], Verdict]]:
    """How often each block was drafted and met each verdict."""
    rng, counts = np.random.default_rng(0), Counter()
    for run in range(NUM_RUNS):
        block, probs = drafted_block(rule, story, run, rng)
        counts[block, accept(block, probs, settled(rule, story.target_probs(block), run), rng)] += 1
    return counts


@cache
def outcomes_of_rule(rule: str, num_drafted: int) -> Counter[tuple[tuple[int, ...], Verdict]]:
    return outcomes(rule, RULES[rule], random_story(num_drafted, STORY_SEED))


def paper_tables(story: Story, table) -> np.ndarray:
    """The chance of each block and of each verdict on it: (V ** K, K + 1, V)."""
    return np.stack([
        chance(story.draft, block) * table(block, story.draft_probs(block), story.target_probs(block))
        for block in story.blocks
    ])  # fmt: skip


def excess_of_joint(shares: np.ndarray, story: Story, num_runs: int) -> float:
    """By how much the tokens emitted, continued by the target to K + 1 of them, stray from the target's joint.

    `shares` are those of each block and verdict, (V ** K, K + 1, V). The continuation is summed up, not drawn.
    """
    vocab_size = shares.shape[2]
    emitted: Counter[tuple[int, ...]] = Counter()
    for (b, i, token_id), share in np.ndenumerate(shares):
        emitted[*story.blocks[b][:i], token_id] += share
    texts = list(itertools.product(range(vocab_size), repeat=story.num_drafted + 1))
    found = [sum(emitted[t[:n]] * chance(story.target, t, n) for n in range(1, len(t) + 1)) for t in texts]
    return excess(np.array(found), np.array([chance(story.target, text) for text in texts]), num_runs)


def shares_of(counts: Counter[tuple[tuple[int, ...], Verdict]], story: Story) -> np.ndarray:
    shares = np.zeros((len(story.blocks), story.num_drafted + 1, len(story.target[()])))
    for (block, verdict), count in counts.items():
        shares[story.blocks.index(block), verdict.num_accepted, verdict.next_token] = count / NUM_RUNS
    return shares


@each_rule
@pytest.mark.parametrize("num_drafted", [1, 2, 3])
def test_all_emitted_tokens_together_follow_the_target(rule: str, num_drafted: int):
    story = random_story(num_drafted, STORY_SEED)
    assert excess_of_joint(shares_of(outcomes_of_rule(rule, num_drafted), story), story, NUM_RUNS) <= 1


@each_drawn_rule
@pytest.mark.parametrize("num_drafted", [1, 2, 3])
def test_verdicts_are_as_frequent_as_the_paper_says(rule: str, num_drafted: int):
    story = random_story(num_drafted, STORY_SEED)
    shares, probs = shares_of(outcomes_of_rule(rule, num_drafted), story), paper_tables(story, PAPER_TABLES[rule])
    assert excess(shares, probs, NUM_RUNS) <= 1
    assert excess(shares.sum(axis=(0, 2)), probs.sum(axis=(0, 2)), NUM_RUNS) <= 1  # how many tokens stand


WRONG_TABLES = {
    "everything stands": everything_table,
    "by token, |target − draft|": partial(token_table, residual=distance),
    "by block, |target − draft|": partial(block_table, residual=distance),
    "by block, residual without the weight": partial(block_table, residual=unweighted),
    "by block, weight above 1": partial(block_table, cap=np.inf),
}


@pytest.mark.parametrize("name", WRONG_TABLES)
def test_the_same_measure_notices_a_wrong_rule(name: str):
    story = random_story(2, STORY_SEED)
    counts = outcomes("block", rule_of(WRONG_TABLES[name]), story)
    assert excess_of_joint(shares_of(counts, story), story, NUM_RUNS) > 1


@each_drawn_rule
def test_the_same_measure_passes_the_papers_own_rule(rule: str):
    """So it is the fault alone that the measure notices in a wrong one."""
    story = random_story(2, STORY_SEED)
    counts = outcomes(rule, rule_of(PAPER_TABLES[rule]), story)
    assert excess_of_joint(shares_of(counts, story), story, NUM_RUNS) <= 1


def expected_num_accepted(story: Story, table) -> float:
    return float(paper_tables(story, table).sum(axis=(0, 2)) @ np.arange(story.num_drafted + 1))


@given(num_drafted=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_by_block_no_fewer_tokens_stand_than_by_token(num_drafted: int, seed: int):
    story = random_story(num_drafted, seed)
    by_token, by_block = (expected_num_accepted(story, PAPER_TABLES[rule]) for rule in ("token", "block"))
    assert by_block >= by_token - 1e-6  # rows are float32 and sum to one only so closely
    if num_drafted == 1:
        assert by_block == pytest.approx(by_token)


@pytest.mark.parametrize(("rule", "expected"), [("token", 10 / 9), ("block", 11 / 9)])
def test_by_block_more_tokens_stand_in_the_papers_own_example(rule: str, expected: float):
    """Two letters, drafted with 2/3 and 1/3 where the target has 1/3 and 2/3 (Sun et al. 2024, motivating example)."""
    prefixes = [p for n in range(3) for p in itertools.product(range(2), repeat=n)]
    draft, target = rows([2 / 3, 1 / 3])[0], rows([1 / 3, 2 / 3])[0]
    story = Story(dict.fromkeys(prefixes, draft), dict.fromkeys(prefixes, target), num_drafted=2)
    assert expected_num_accepted(story, PAPER_TABLES[rule]) == pytest.approx(expected, abs=1e-6)
    shares = shares_of(outcomes(rule, RULES[rule], story), story).sum(axis=(0, 2))
    assert excess(shares, paper_tables(story, PAPER_TABLES[rule]).sum(axis=(0, 2)), NUM_RUNS) <= 1
    # Five standard deviations of a mean of NUM_RUNS numbers between 0 and 2: less than half of what lies between.
    assert shares @ np.arange(3) == pytest.approx(expected, abs=5 / np.sqrt(NUM_RUNS))
