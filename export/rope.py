"""Rotary position embedding: by which angle each pair of a head's elements turns at each position.

Axis letters: `T` positions, `F` frequencies, one for each pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.errors import CheckpointError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Linear:
    """Positions squeezed by `factor` (https://arxiv.org/abs/2306.15595)."""

    factor: float

    def scaled(self, frequencies: Doubles) -> Doubles:
        """(F,) → (F,)."""
        return frequencies / self.factor


@dataclass(frozen=True, slots=True)
class Llama3:
    """Llama 3.1's rule: slow pairs are squeezed, fast ones kept, and those between blended.

    A pair is slow if it turns fewer than `low_turns` times in `original_positions`, and fast at `high_turns` or more.
    """

    factor: float
    low_turns: float
    high_turns: float
    original_positions: int

    def scaled(self, frequencies: Doubles) -> Doubles:
        """(F,) → (F,)."""
        turns = self.original_positions * frequencies / (2 * math.pi)
        kept = np.clip((turns - self.low_turns) / (self.high_turns - self.low_turns), 0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


@dataclass(frozen=True, slots=True)
class Yarn:
    """YaRN's "NTK by parts" (https://arxiv.org/abs/2309.00071, section 3.2), blended along the pairs' numbers.

    `fast_turns` and `slow_turns` are the paper's β and α. `rounds` widens the blended range to whole pairs, as most
    implementations do.
    """

    factor: float
    original_positions: int
    fast_turns: float = 32.0
    slow_turns: float = 1.0
    rounds: bool = True

    def __post_init__(self) -> None:
        if min(self.factor, self.original_positions, self.fast_turns, self.slow_turns) <= 0:
            raise CheckpointError(f"the model's rope has {self}; all its numbers must be positive")

    def scaled(self, frequencies: Doubles) -> Doubles:
        """(F,) → (F,)."""
        num_pairs, step = len(frequencies), math.log(frequencies[0] / frequencies[1])

        def pair_that_turns(turns: float) -> float:
            return math.log(self.original_positions / (2 * math.pi * turns)) / step

        first, last = pair_that_turns(self.fast_turns), pair_that_turns(self.slow_turns)
        if self.rounds:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * num_pairs - 1)
        squeezed: Doubles = np.clip((np.arange(num_pairs) - first) / max(last - first, 1e-3), 0, 1)
        scaled: Doubles = frequencies * (1 - squeezed + squeezed / self.factor)
        return scaled


@dataclass(frozen=True, slots=True)
class PerPair:
    """A divisor for each pair, the form in which GGUF files keep Llama 3.1's rule."""

    divisors: tuple[float, ...]

    def scaled(self, frequencies: Doubles) -> Doubles:
        """(F,) → (F,); `CheckpointError` if there are not F divisors."""
        if len(self.divisors) != len(frequencies):
            raise CheckpointError(
                f"the model has {len(self.divisors)} rotary divisors; {len(frequencies)} pairs are rotated"
            )
        scaled: Doubles = frequencies / np.array(self.divisors)
        return scaled


Scaling = Linear | Llama3 | Yarn | PerPair


@dataclass(frozen=True, slots=True)
class Rope:
    """The rotary embedding of one model: the first `width` elements of each head are rotated in pairs.

    Pair i turns by position · theta^(−2i / width), changed by `scaling`. The rotated elements are also multiplied by
    `attention_factor`. A pair is (i, i + width / 2), or (2i, 2i + 1) if `interleaved`, which is the order in which
    GGUF files keep the q and k rows of some families.
    """

    theta: float
    width: int
    scaling: Scaling | None = None
    attention_factor: float = 1.0
    interleaved: bool = False

    def __post_init__(self) -> None:
        if not self.theta > 1:
            raise CheckpointError(f"the model's rope theta is {self.theta}; it must be above 1")
        if self.width < 4 or self.width % 2:
            raise CheckpointError(f"{self.width} rotated elements of a head do not make pairs")
        with np.errstate(all="ignore"):
            usable = np.isfinite(self.frequencies) & (self.frequencies > 0)
        if not usable.all():
            raise CheckpointError(f"the model's rope {self.scaling} gives frequencies that are not positive numbers")

    @property
    def frequencies(self) -> Doubles:
        """Angle of each pair at position 1: (F,) with F = width / 2, the fastest first."""
        unscaled = self.theta ** -(np.arange(0, self.width, 2, dtype=np.float64) / self.width)
        return self.scaling.scaled(unscaled) if self.scaling else unscaled

    def num_positions(self, configured: int) -> int:
        """Positions that a model with so many `configured` can use."""
        if not isinstance(self.scaling, Yarn):
            return configured
        # Qwen's instructions add YaRN to a configuration and leave the number of positions as it was before.
        return max(configured, round(self.scaling.factor * self.scaling.original_positions))

    def tables(self, num_positions: int) -> tuple[Floats, Floats]:
        """Cosines and sines times `attention_factor`, each (T, F), computed in double precision."""
        angles = np.outer(np.arange(num_positions), self.frequencies)
        cos, sin = (self.attention_factor * table for table in (np.cos(angles), np.sin(angles)))
        return cos.astype(np.float32), sin.astype(np.float32)


def yarn_attention_factor(factor: float, weight: float = 1.0) -> float:
    """What YaRN multiplies q and k by, each: 1 + 0.1 · weight · ln factor (https://arxiv.org/abs/2309.00071, 3.4)."""
    return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0
