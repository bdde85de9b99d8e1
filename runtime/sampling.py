"""From logits to the distribution that tokens are drawn from; the same for draft and target.

Axis letters: `N` rows, `V` vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.errors import OptionError

Probs = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn. Temperature 0 is greedy; `seed` None means a fresh one for each generation."""

    temperature: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise OptionError(f"temperature is {self.temperature}; it must lie between 0 and 100")
        if self.seed is not None and self.seed < 0:
            raise OptionError(f"seed is {self.seed}; it must not be negative")


def probabilities(logits: NDArray[np.float32], params: SamplingParams) -> Probs:
    """Logits (N, V) → float32 probabilities (N, V). With temperature 0 a row is one-hot at the first maximum."""
    if params.temperature == 0:
        probs = np.zeros_like(logits)
        probs[np.arange(len(logits)), logits.argmax(axis=1)] = 1
        return probs
    scaled: Probs = logits - logits.max(axis=1, keepdims=True)
    scaled /= np.float32(params.temperature)
    np.exp(scaled, out=scaled)
    scaled /= scaled.sum(axis=1, keepdims=True, dtype=np.float64)
    return scaled


def draw(probs: Probs, rng: np.random.Generator) -> int:
    """One token id from a row of non-negative weights (V,), which need not sum to one."""
    most_likely = int(probs.argmax())
    if probs[most_likely] >= 1:  # certain, as every greedy row is: nothing to add up
        return most_likely
    cumulative = np.cumsum(probs, dtype=np.float64)
    token_id = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    return token_id if token_id < len(probs) else most_likely  # the product above can round up to the sum
