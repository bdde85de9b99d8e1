"""Odds learned from simulated rounds come near the chances that the rounds were drawn with."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.runtime.odds import FADING, PRIOR_WEIGHT, ConfidenceOdds, PositionOdds

SHARES = st.floats(0, 1)


def num_accepted(rng: random.Random, chances: list[float]) -> int:
    return next((position for position, chance in enumerate(chances) if rng.random() >= chance), len(chances))


@pytest.mark.parametrize("guess", [0.1, 0.7])
@pytest.mark.parametrize("chances", [[0.8] * 4, [0.2] * 2, [0.9, 0.5, 0.2], [0.5, 0.95, 0.95], [1.0] * 3, [0.0]])
def test_each_position_comes_near_its_own_chance(guess: float, chances: list[float]):
    rng, odds = random.Random(3), PositionOdds(guess)
    found: list[list[float]] = []
    for _ in range(4000):
        odds.observe(len(chances), num_accepted(rng, chances))
        found.append([odds.chance(position) for position in range(len(chances))])
    for position, chance in enumerate(chances):
        assert fmean(row[position] for row in found[500:]) == pytest.approx(chance, abs=0.06)


@pytest.mark.parametrize("chance", [0.15, 0.6, 0.9])
def test_expected_tokens_are_what_rounds_emit_on_average(chance: float):
    rng, odds, expected = random.Random(5), PositionOdds(0.5), list[float]()
    emitted = []
    for _ in range(6000):
        emitted.append(num_accepted(rng, [chance] * 4) + 1)
        odds.observe(4, emitted[-1] - 1)
        expected.append(odds.expected_tokens(4)[-1])
    assert fmean(expected[500:]) == pytest.approx(fmean(emitted), rel=0.05)
    assert fmean(emitted) == pytest.approx(sum(chance**power for power in range(5)), rel=0.05)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), max_size=30), SHARES)
def test_more_drafted_tokens_never_promise_fewer_and_at_most_one_each(rounds: list[tuple[int, int]], guess: float):
    odds = PositionOdds(guess)
    for num_drafted, accepted in rounds:
        odds.observe(num_drafted, min(accepted, num_drafted))
    expected = [1.0, *odds.expected_tokens(16)]
    assert len(expected) == 17
    assert all(0 <= after - before <= 1 for before, after in pairwise(expected))
    assert odds.expected_tokens(5) == expected[1:6]


def test_a_position_without_evidence_takes_the_rate_over_all():
    odds = PositionOdds(0.5)
    assert [odds.rate, odds.chance(0), odds.chance(9)] == [0.5] * 3
    for _ in range(50):
        odds.observe(2, 2)
    assert odds.chance(9) == odds.rate > 0.9


def test_tokens_behind_a_rejected_one_teach_nothing():
    one, other = PositionOdds(0.5), PositionOdds(0.5)
    for _ in range(10):
        one.observe(8, 1)
        other.observe(2, 1)
    assert one.expected_tokens(8) == other.expected_tokens(8)


def test_a_change_is_followed_within_a_hundred_rounds():
    odds = PositionOdds(0.7)
    for _ in range(500):
        odds.observe(4, 0)
    assert odds.chance(0) < 0.05
    for _ in range(100):
        odds.observe(4, 4)
    assert odds.chance(0) > 0.9


def test_faded_evidence_gives_way_to_the_guess():
    odds, rates = PositionOdds(0.7), list[float]()
    for _ in range(100):
        odds.observe(1, 0)
    for _ in range(8):
        rates.append(odds.rate)
        odds.fade(0.3)
    assert rates[0] < 0.05
    assert rates == sorted(rates)
    assert odds.rate == pytest.approx(0.7, abs=0.01)


def test_a_confidence_comes_near_the_share_of_its_bin_that_stood():
    rng, odds = random.Random(7), ConfidenceOdds()
    truth = {0.05: 0.3, 0.35: 0.1, 0.55: 0.9, 0.95: 0.6}  # not as sure as the drafter is, nor in its order
    found: dict[float, list[float]] = {confidence: [] for confidence in truth}
    for _ in range(3000):
        for confidence, chance in truth.items():
            odds.observe(confidence, rng.random() < chance)
            found[confidence].append(odds.chance(confidence))
    for confidence, chance in truth.items():
        # The guess keeps a share of the weight, as a token of a bin that was seen often still has its own confidence.
        share = PRIOR_WEIGHT / (PRIOR_WEIGHT + 1 / (1 - FADING))
        expected = (1 - share) * chance + share * (0.15 + 0.8 * confidence)
        assert fmean(found[confidence][500:]) == pytest.approx(expected, abs=0.03)
        assert expected == pytest.approx(chance, abs=0.03)


def test_a_surer_drafter_is_trusted_more_before_anything_is_known():
    chances = [ConfidenceOdds().chance(step / 100) for step in range(101)]
    assert chances == sorted(chances)
    assert len(set(chances)) == 101
    assert 0 < chances[0] < 0.2 < 0.9 < chances[-1] < 1


@given(st.lists(st.tuples(SHARES, st.booleans()), max_size=60), st.integers(0, 9), SHARES, SHARES)
def test_within_a_bin_a_surer_token_is_never_trusted_less(
    seen: list[tuple[float, bool]], bin_: int, one: float, other: float
):
    odds = ConfidenceOdds()
    for confidence, stood in seen:
        odds.observe(confidence, stood)
    low, high = sorted(min(0.1 * bin_ + 0.0999 * place + 1e-9, 1) for place in (one, other))
    assert 0 < odds.chance(low) <= odds.chance(high) < 1
    assert 0 < odds.mean < 1


def test_a_bin_learns_nothing_from_another():
    odds = ConfidenceOdds()
    before = odds.chance(0.2)
    for _ in range(50):
        odds.observe(0.95, True)
    assert odds.chance(0.2) == before
    assert odds.chance(1.0) > 0.95


def mean_after(shares: dict[tuple[float, float], float]) -> tuple[float, float]:
    """The mean that is learned, averaged over time, and the true one, of (confidence, chance) in these shares."""
    rng, odds, found = random.Random(9), ConfidenceOdds(), list[float]()
    for _ in range(4000):
        ((confidence, chance),) = rng.choices(list(shares), list(shares.values()))
        odds.observe(confidence, rng.random() < chance)
        found.append(odds.mean)
    return fmean(found[1000:]), sum(chance * share for (_, chance), share in shares.items())


def test_the_mean_comes_near_the_share_that_stands_where_confidences_are_spread_evenly():
    found, expected = mean_after({(0.95, 0.9): 0.5, (0.25, 0.2): 0.5})
    assert found == pytest.approx(expected, abs=0.05)


def test_the_mean_comes_near_the_share_that_stands_where_one_confidence_is_rare():
    found, expected = mean_after({(0.95, 0.9): 0.9, (0.25, 0.1): 0.1})
    assert found == pytest.approx(expected, abs=0.05)
