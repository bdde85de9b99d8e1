"""Rows of a large vocabulary: from logits to probabilities, and to the tokens that stand."""

from __future__ import annotations

import numpy as np
import pytest

from pilotfish.runtime.acceptance import RULES
from pilotfish.runtime.sampling import Sampler, SamplingParams

VOCAB_SIZE = 151_936  # of Qwen2.5
NUM_DRAFTED = 4
PREFIX = np.random.default_rng(2).integers(0, VOCAB_SIZE, 500).tolist()
PARAMS = {
    "greedy": SamplingParams(),
    "temperature": SamplingParams(0.8),
    "top-k": SamplingParams(0.8, top_k=40),
    "top-p": SamplingParams(0.8, top_p=0.95),
    "min-p": SamplingParams(0.8, min_p=0.05),
    "penalty": SamplingParams(0.8, repetition_penalty=1.1),
}


def logits(num_rows: int, seed: int = 0) -> np.ndarray:
    """As peaked as those of a real model: a few tokens have nearly all of the mass."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(0, 2, (num_rows, VOCAB_SIZE)).astype(np.float32)
    rows[:, rng.integers(0, VOCAB_SIZE, 8)] += np.linspace(10, 16, 8, dtype=np.float32)
    return rows


@pytest.mark.parametrize("name", PARAMS)
def test_distributions_of_a_round(benchmark, name: str):
    rows, drafted = logits(NUM_DRAFTED + 1), PREFIX[:NUM_DRAFTED]
    probs = benchmark(Sampler(PARAMS[name]).distributions, rows, PREFIX, drafted)
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-4)


def test_settling_by_a_seed(benchmark):
    sampler = Sampler(SamplingParams(0.8, top_p=0.95, seed=1), noise_seed=1)
    probs = sampler.distributions(logits(NUM_DRAFTED + 1), PREFIX, PREFIX[:NUM_DRAFTED])
    settled = benchmark(sampler.settled, probs, len(PREFIX))
    assert (settled.sum(axis=1) == 1).all()


@pytest.mark.parametrize("rule", RULES)
def test_accept(benchmark, rule: str):
    """All tokens stand, the longest way through each rule, since the draft is the target."""
    sampler = Sampler(SamplingParams(0.8), noise_seed=1 if rule == "seed" else None)
    target = sampler.settled(sampler.distributions(logits(NUM_DRAFTED + 1), []), 0)
    drafted = target[:-1].argmax(axis=1).tolist()
    verdict = benchmark(RULES[rule], drafted, target[:-1], target, np.random.default_rng(0))
    assert verdict.num_accepted == NUM_DRAFTED
