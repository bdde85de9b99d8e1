"""Logits to probabilities, and draws from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pilotfish.runtime.sampling import SamplingParams, draw, probabilities

LOGITS = arrays(np.float32, (3, 7), elements=st.floats(-80, 80, width=32))


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
