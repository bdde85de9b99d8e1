"""The theorem of speculative decoding on hand-written rows; no model."""

from __future__ import annotations

import numpy as np
import pytest

from pilotfish.runtime.acceptance import accept

NUM_RUNS = 20_000


def rows(*values: list[float]) -> np.ndarray:
    return np.array(values, np.float32)


def frequencies(draft: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Share of each token as the first one emitted, with the draft's token drawn from `draft`."""
    rng = np.random.default_rng(0)
    counts = np.zeros(draft.shape[1])
    for drafted in rng.choice(draft.shape[1], NUM_RUNS, p=draft[0]):
        verdict = accept([drafted], draft, target, rng)
        counts[drafted if verdict.num_accepted else verdict.next_token] += 1
    return counts / NUM_RUNS


def test_a_token_the_target_never_writes_is_rejected_and_replaced_from_the_residual():
    verdict = accept([0], rows([1, 0, 0]), rows([0, 0, 1], [1, 0, 0]), np.random.default_rng(0))
    assert (verdict.num_accepted, verdict.next_token) == (0, 2)


def test_a_token_the_draft_underrates_always_stands():
    draft, target = rows([0.2, 0.8]), rows([0.7, 0.3], [0, 1])
    for seed in range(200):
        verdict = accept([0], draft, target, np.random.default_rng(seed))
        assert (verdict.num_accepted, verdict.next_token) == (1, 1)


def test_identical_rows_accept_everything():
    row = [0.1, 0.2, 0.7]
    for seed in range(200):
        assert accept([2, 1], rows(row, row), rows(row, row, row), np.random.default_rng(seed)).num_accepted == 2


def test_no_proposal_draws_from_the_target():
    verdict = accept([], np.zeros((0, 3), np.float32), rows([0, 1, 0]), np.random.default_rng(0))
    assert (verdict.num_accepted, verdict.next_token) == (0, 1)


def test_greedy_rows_reduce_to_equal_or_take_the_targets_token():
    one_hot = np.eye(5, dtype=np.float32)
    verdict = accept([3, 1, 4], one_hot[[3, 1, 4]], one_hot[[3, 1, 2, 0]], np.random.default_rng(0))
    assert (verdict.num_accepted, verdict.next_token) == (2, 2)


@pytest.mark.parametrize(
    ("draft", "target"),
    [
        ([0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4]),  # mass that the draft never proposes is reached
        ([0.0, 0.0, 1.0, 0.0], [0.4, 0.3, 0.2, 0.1]),  # a lookup drafter is certain
        ([0.25, 0.25, 0.25, 0.25], [0.97, 0.01, 0.01, 0.01]),
    ],
)
def test_the_emitted_token_follows_the_target(draft: list[float], target: list[float]):
    # Each share is a mean of NUM_RUNS 0/1 draws: five standard deviations of the widest one.
    tolerance = 5 * 0.5 / np.sqrt(NUM_RUNS)
    shares = frequencies(rows(draft), rows(target, [1, 0, 0, 0]))
    np.testing.assert_allclose(shares, target, atol=tolerance)


def test_the_same_measure_notices_a_wrong_residual(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pilotfish.runtime.acceptance.np.maximum", lambda difference, _: np.abs(difference))
    shares = frequencies(rows([0.5, 0.3, 0.2, 0.0]), rows([0.1, 0.2, 0.3, 0.4], [1, 0, 0, 0]))
    assert np.abs(shares - [0.1, 0.2, 0.3, 0.4]).max() > 5 * 0.5 / np.sqrt(NUM_RUNS)
