"""Logits to probabilities, and draws from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.filters import exponential, keep_top_k, keep_top_p, probability, race, softmax
from pilotfish.runtime.sampling import Sampler, SamplingParams, draw
from support.measure import excess

LOGITS = arrays(np.float32, (3, 7), elements=st.floats(-80, 80, width=32))


def probabilities(logits: np.ndarray, params: SamplingParams, prefix=(), drafted=(), **options) -> np.ndarray:
    if params.acceptance_rule == "seed":
        options["noise_seed"] = params.seed
    return Sampler(params, **options).probabilities(np.asarray(logits, np.float32), prefix, drafted)


def kept(row: list[float], **options) -> list[int]:
    """Ids that a filter leaves of a row of probabilities."""
    params = SamplingParams(temperature=1, **options)
    return np.flatnonzero(probabilities([np.log(row)], params)[0]).tolist()


class FixedRandom:
    """Stands for a generator whose next number is known."""

    def __init__(self, value: float) -> None:
        self._value = value

    def random(self) -> float:
        return self._value


@given(logits=LOGITS)
def test_greedy_rows_are_one_hot_at_the_first_maximum(logits: np.ndarray):
    probs = probabilities(logits, SamplingParams())
    np.testing.assert_array_equal(probs.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_array_equal(np.sort(probs, axis=1)[:, -2:], [[0, 1]] * 3)


@given(logits=LOGITS, temperature=st.floats(0.1, 5))
def test_rows_are_a_softmax_of_the_scaled_logits(logits: np.ndarray, temperature: float):
    probs = probabilities(logits, SamplingParams(temperature))
    scaled = logits.astype(np.float64) / temperature
    expected = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    np.testing.assert_allclose(probs, expected / expected.sum(axis=1, keepdims=True), rtol=1e-3, atol=1e-7)
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(("number", "token_id"), [(0.0, 1), (0.24, 1), (0.26, 3), (0.99, 3), (1.0, 3)])
def test_a_draw_never_lands_on_a_token_without_mass(number: float, token_id: int):
    assert draw(np.array([0, 0.1, 0, 0.3, 0], np.float32), FixedRandom(number)) == token_id


def test_a_certain_token_is_drawn_whatever_the_number():
    assert {draw(np.eye(4, dtype=np.float32)[2], FixedRandom(number)) for number in (0.0, 0.5, 0.999)} == {2}


def test_draws_follow_the_weights():
    rng = np.random.default_rng(0)
    weights = np.array([1, 2, 3, 4], np.float32) / 20  # they need not sum to one
    counts = np.bincount([draw(weights, rng) for _ in range(20_000)], minlength=4)
    np.testing.assert_allclose(counts / 20_000, [0.1, 0.2, 0.3, 0.4], atol=5 * 0.5 / np.sqrt(20_000))


ROW = [0.1, 0.4, 0.05, 0.3, 0.15]


@pytest.mark.parametrize("num_tokens", [1, 511, 512, 513, 5000])
def test_a_token_is_drawn_where_the_cumulative_mass_passes_the_random_number(num_tokens: int):
    """Over all blocks of a row, and never one that cannot be, wherever rounding takes the mass."""
    rng = np.random.default_rng(num_tokens)
    weights = rng.gamma(0.2, size=num_tokens).astype(np.float32) * (rng.random(num_tokens) < 0.5) + 0
    weights[num_tokens // 2] = 0.5
    weights = (weights / (2 * weights.max())).astype(np.float32)
    cumulative = np.cumsum(weights, dtype=np.float64)
    for number in (0.0, 0.25, *rng.random(300), 1 - 2**-53):
        expected = int(np.searchsorted(cumulative, number * cumulative[-1], side="right"))
        found = draw(weights, FixedRandom(number))
        assert weights[found] > 0
        assert number == 1 - 2**-53 or found == expected
    edges = [cumulative[end - 1] / cumulative[-1] for end in range(512, num_tokens, 512)]
    assert all(weights[draw(weights, FixedRandom(edge))] > 0 for edge in edges)


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 9}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.39}, [1]),
        ({"top_p": 0.6}, [1, 3]),
        ({"top_p": 0.75}, [1, 3, 4]),
        ({"top_p": 0.0}, [1]),
        ({"min_p": 0.5}, [1, 3]),
        ({"min_p": 1.0}, [1]),
        ({"top_k": 3, "top_p": 0.8}, [1, 3]),  # of the three that are left 0.82 is more than enough
        ({"top_k": 4, "min_p": 0.3}, [1, 3, 4]),
    ],
)
def test_filters_keep_what_they_should(options: dict, ids: list[int]):
    assert kept(ROW, **options) == ids


@given(logits=LOGITS, top_k=st.integers(0, 8), top_p=st.floats(0, 1), min_p=st.floats(0, 1))
def test_filtered_rows_are_the_rest_of_the_softmax_normalized(logits, top_k: int, top_p: float, min_p: float):
    whole = probabilities(logits, SamplingParams(1))
    probs = probabilities(logits, SamplingParams(1, top_k, top_p, min_p))
    left = np.where(probs > 0, whole, 0)
    np.testing.assert_allclose(probs, left / left.sum(axis=1, keepdims=True), rtol=1e-4)
    assert (probs[np.arange(3), whole.argmax(axis=1)] > 0).all()


def test_ties_at_the_border_of_top_k_leave_exactly_k():
    assert kept([0.2] * 5, top_k=3) == [0, 1, 2]


def changed(params: SamplingParams, prefix: list[int], drafted: list[int] = (), **options) -> np.ndarray:
    """The logits that a row of zeros, ones and minus ones turns into, read off a softmax up to a constant."""
    logits = np.tile(np.array([1, -1, 0, 2], np.float32), (len(drafted) + 1, 1))
    with np.errstate(divide="ignore"):
        found = np.log(probabilities(logits, params, prefix, drafted, **options))
    return found - found[:, 2:3]


def test_each_row_sees_exactly_the_tokens_before_it():
    params = SamplingParams(temperature=1, frequency_penalty=0.5, presence_penalty=0.25)
    rows = changed(params, [3, 0], [0, 3, 0], num_prompt_tokens=1)
    expected = [[0.25, -1, 0, 2], [-0.25, -1, 0, 2], [-0.25, -1, 0, 1.25], [-0.75, -1, 0, 1.25]]
    np.testing.assert_allclose(rows, expected, atol=1e-5)


def test_the_repetition_penalty_covers_the_prompt_and_pushes_both_signs_down():
    rows = changed(SamplingParams(temperature=1, repetition_penalty=2), [3, 1], [0], num_prompt_tokens=2)
    np.testing.assert_allclose(rows, [[1, -2, 0, 1], [0.5, -2, 0, 1]], atol=1e-5)


def test_a_bias_is_added():
    rows = changed(SamplingParams(temperature=1, logit_bias={1: 3.0, 99: 1.0}), [])
    np.testing.assert_allclose(rows, [[1, 2, 0, 2]], atol=1e-5)


def test_no_ngram_comes_twice():
    rows = changed(SamplingParams(temperature=1, no_repeat_ngram=2), [0, 1, 2, 0, 3], [0])
    assert np.isneginf(rows).tolist() == [[False] * 4, [False, True, False, True]]


def test_no_end_before_enough_tokens():
    params = SamplingParams(temperature=1, min_tokens=2)
    rows = changed(params, [0, 0], [0, 0, 0], num_prompt_tokens=2, end_token_ids={3, 99})
    assert np.isneginf(rows[:, 3]).tolist() == [True, True, False, False]


def test_where_all_is_banned_the_models_choice_stands():
    params = SamplingParams(no_repeat_ngram=1)
    assert probabilities([[1, 3, 2]], params, [0, 1, 2]).argmax() == 1


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 1.1}, {"top_p": -0.1},
        {"min_p": 2}, {"repetition_penalty": 0}, {"presence_penalty": 1e9}, {"frequency_penalty": float("nan")},
        {"no_repeat_ngram": -1}, {"min_tokens": -1}, {"seed": -1}, {"logit_bias": {3: float("inf")}},
    ],
)  # fmt: skip
def test_values_out_of_range_are_named(options: dict):
    with pytest.raises(OptionError, match=next(iter(options))):
        SamplingParams(**options)


def test_over_seeds_each_token_is_picked_as_often_as_its_probability_says():
    row, num_seeds = np.array([0.05, 0.5, 0.15, 0.3], np.float32), 4000
    picks = [
        int(probabilities([np.log(row)], SamplingParams(1, seed=seed), prefix=[0] * 7)[0].argmax())
        for seed in range(num_seeds)
    ]
    shares = np.bincount(picks, minlength=4) / num_seeds
    np.testing.assert_allclose(shares, row, atol=5 * 0.5 / np.sqrt(num_seeds))


def test_noise_depends_on_seed_and_position_and_not_on_the_width():
    flat = np.zeros((6, 50), np.float32)
    picks = probabilities(flat, SamplingParams(1, seed=3), [0] * 4, [0] * 5).argmax(axis=1)
    later = probabilities(flat[:4], SamplingParams(1, seed=3), [0] * 6, [0] * 3).argmax(axis=1)
    np.testing.assert_array_equal(picks[2:], later)
    assert len(set(picks)) > 1
    assert (probabilities(flat, SamplingParams(1, seed=4), [0] * 4, [0] * 5).argmax(axis=1) != picks).any()
    wider = np.concatenate([flat, np.full((6, 30), -np.inf, np.float32)], axis=1)
    np.testing.assert_array_equal(
        probabilities(wider, SamplingParams(1, seed=3), [0] * 4, [0] * 5).argmax(axis=1), picks
    )


@given(
    logits=arrays(np.float32, (4, 9), elements=st.floats(-8, 8, width=32)),
    moves=arrays(np.float32, (4, 9), elements=st.floats(0, 1, width=32)),
    seed=st.none() | st.integers(0, 99),
)
def test_less_than_the_margin_moves_no_pick(logits: np.ndarray, moves: np.ndarray, seed: int | None):
    sampler = Sampler(SamplingParams(temperature=0 if seed is None else 1.5), noise_seed=seed)
    margins = sampler.margins(logits, [1, 2, 3], [4, 5, 6])
    picks = sampler.probabilities(logits, [1, 2, 3], [4, 5, 6]).argmax(axis=1)
    decided = np.flatnonzero(margins > 1e-3)
    moved = logits - np.float32(0.98) * margins[:, None] * moves  # a difference of two moves by less than the margin
    np.testing.assert_array_equal(
        sampler.probabilities(moved, [1, 2, 3], [4, 5, 6]).argmax(axis=1)[decided], picks[decided]
    )
    runner_up = logits.copy()
    runner_up[np.arange(4), picks] -= np.float32(1.02) * margins + np.float32(1e-3)
    assert (sampler.probabilities(runner_up, [1, 2, 3], [4, 5, 6]).argmax(axis=1) != picks).all()


def test_free_draws_have_no_margin():
    assert np.isinf(Sampler(SamplingParams(temperature=1)).margins(np.zeros((2, 5), np.float32), [1])).all()


def reference_nucleus(row: np.ndarray, top_p: float) -> set[int]:
    order, mass, kept = np.argsort(-row, kind="stable"), 0.0, set()
    for token_id in order.tolist():
        if kept and mass >= top_p * row.sum(dtype=np.float64):
            break
        kept.add(token_id)
        mass += float(row[token_id])
    return kept


@given(
    row=arrays(np.float32, 40, elements=st.floats(0, 1, width=32)).filter(lambda row: row.sum() > 0),
    top_p=st.floats(0, 0.999),
    top_k=st.integers(1, 45),
)
def test_filters_equal_their_definition(row: np.ndarray, top_p: float, top_k: int):
    nucleus, largest = row.copy(), row.copy()
    keep_top_p(nucleus, top_p)
    expected = reference_nucleus(row, top_p)
    assert set(np.flatnonzero(nucleus)) == {i for i in expected if row[i] > 0}
    keep_top_k(largest, top_k)
    assert set(np.flatnonzero(largest)) == {i for i in np.argsort(-row, kind="stable")[:top_k] if row[i] > 0}


def test_the_probability_of_a_token_is_its_share_of_the_softmax_and_0_in_a_broken_row():
    row = np.array([1.0, 3.0, -2.0], np.float32)
    assert probability(row, 1) == pytest.approx(softmax(row[None])[0, 1])
    assert probability(np.array([np.nan, 1.0], np.float32), 1) == 0
    assert probability(np.array([-1e30, 1e30], np.float32), 0) == 0


def winners(row: np.ndarray, num_seeds: int, position: int = 7) -> np.ndarray:
    found = []
    for seed in range(num_seeds):
        ids, arrivals = race(row, seed, position)
        assert (arrivals >= 0).all()
        found.append(ids[arrivals.argmax()])
    return np.array(found)


def test_in_a_race_each_token_wins_with_its_probability():
    row = np.zeros(2000, np.float32)
    row[:5] = (0.4, 0.3, 0.15, 0.05, 0.0)
    row[5:] = 0.1 / 1995  # each runs alone
    counts = np.bincount(np.minimum(winners(row, 20_000), 5), minlength=6) / 20_000
    assert excess(counts, np.array([0.4, 0.3, 0.15, 0.05, 0.0, 0.1]), 20_000) < 1


def test_tokens_too_small_to_run_alone_win_together_with_their_mass_and_apart_by_their_shares():
    row = np.full(2_000_000, 0.6 / 1_999_998, np.float32)
    row[:2] = (0.3, 0.1)
    row[2:1_000_001] *= np.float32(0.5)  # the first half has a quarter of it
    row[1_000_001:] *= np.float32(1.5)
    assert row[2:].max() < 1e-6
    found = winners(row, 400)
    parts = np.digitize(found, [1, 2, 1_000_001])
    assert excess(np.bincount(parts, minlength=4) / 400, np.array([0.3, 0.1, 0.15, 0.45]), 400) < 1
    assert len(np.unique(found[parts > 1])) > 200


def test_rows_that_are_alike_mostly_have_the_same_winner_whatever_their_width():
    rng = np.random.default_rng(0)
    row = rng.dirichlet(np.full(3000, 0.05)).astype(np.float32)
    other = row * rng.uniform(0.9, 1.1, len(row)).astype(np.float32)
    alike = winners(row, 300) == winners(other[:2900] / other[:2900].sum(), 300)
    assert alike.mean() > 0.85
    assert (winners(row, 300, 7) == winners(row, 300, 8)).mean() < 0.2


def test_nobody_runs_where_nothing_is_possible():
    ids, arrivals = race(np.zeros(10, np.float32), 1, 2)
    assert len(ids) == len(arrivals) == 0


def test_noise_is_exponential_and_of_each_token_its_own():
    keys = [np.random.SeedSequence((seed, 0)).generate_state(2) for seed in range(10)]
    noise = np.concatenate([exponential(np.arange(100_000), key) for key in keys])
    assert (noise > 0).all()
    for quantile in (1e-4, 1e-2, 0.5, 0.99, 0.9999):
        share, deviation = (noise < -np.log1p(-quantile)).mean(), np.sqrt(quantile * (1 - quantile) / len(noise))
        assert abs(share - quantile) < 5 * deviation
    first, second = noise[:100_000], noise[100_000:200_000]
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.02
