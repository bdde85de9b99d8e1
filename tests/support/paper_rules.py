"""The acceptance rules as their papers write them: the chance of each outcome, and rules that go wrong on purpose.

A table is float64 (K + 1, V): the chance that so many of the K drafted tokens stand and that this token follows them.
Sources: Leviathan et al. 2023, algorithm 1; Sun et al. 2024, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pilotfish.runtime.acceptance import AcceptanceRule, Verdict

Residual = Callable[[np.ndarray, np.ndarray, float], np.ndarray]
Table = Callable[[Sequence[int], np.ndarray, np.ndarray], np.ndarray]


def left_out(target: np.ndarray, draft: np.ndarray, weight: float) -> np.ndarray:
    residual = np.maximum(weight * target - draft, 0)
    return residual / residual.sum() if residual.any() else target


def unweighted(target: np.ndarray, draft: np.ndarray, weight: float) -> np.ndarray:
    return left_out(target, draft, 1.0)


def whole_target(target: np.ndarray, draft: np.ndarray, weight: float) -> np.ndarray:
    return target


def distance(target: np.ndarray, draft: np.ndarray, weight: float) -> np.ndarray:
    difference = np.abs(weight * target - draft)
    return difference / difference.sum() if difference.any() else target


def token_table(
    drafted: Sequence[int], draft_probs: np.ndarray, target_probs: np.ndarray, residual: Residual = left_out
) -> np.ndarray:
    draft_probs, target_probs = draft_probs.astype(np.float64), target_probs.astype(np.float64)
    table, reached = np.zeros_like(target_probs), 1.0
    for i, token_id in enumerate(drafted):
        stands = min(1.0, target_probs[i, token_id] / draft_probs[i, token_id])
        table[i] = reached * (1 - stands) * residual(target_probs[i], draft_probs[i], 1.0)
        reached *= stands
    table[-1] = reached * target_probs[-1]
    return table


def block_table(
    drafted: Sequence[int], draft_probs: np.ndarray, target_probs: np.ndarray,
    residual: Residual = left_out, cap: float = 1.0,
) -> np.ndarray:  # fmt: skip
    draft_probs, target_probs = draft_probs.astype(np.float64), target_probs.astype(np.float64)
    weights = [1.0]
    for i, token_id in enumerate(drafted):
        weights.append(min(weights[-1] * target_probs[i, token_id] / draft_probs[i, token_id], cap))
    table, num_drafted, none_behind = np.zeros_like(target_probs), len(drafted), 1.0
    for i in range(num_drafted, -1, -1):
        stands = 1.0 if i == 0 else min(weights[i], 1.0)
        if 0 < i < num_drafted:
            missing = np.maximum(weights[i] * target_probs[i] - draft_probs[i], 0).sum()
            stands = min(missing / max(missing + 1 - weights[i], 1e-300), 1.0)
        row = target_probs[i] if i == num_drafted else residual(target_probs[i], draft_probs[i], weights[i])
        table[i] = none_behind * stands * row
        none_behind *= 1 - stands
    return table


def everything_table(drafted: Sequence[int], draft_probs: np.ndarray, target_probs: np.ndarray) -> np.ndarray:
    table = np.zeros_like(target_probs, np.float64)
    table[-1] = target_probs[-1]
    return table


def rule_of(table: Table) -> AcceptanceRule:
    """The rule that draws its verdict from the table."""

    def accept(
        drafted: Sequence[int], draft_probs: np.ndarray, target_probs: np.ndarray, rng: np.random.Generator
    ) -> Verdict:
        chances = table(drafted, draft_probs, target_probs).cumsum()
        outcome = int(np.searchsorted(chances, rng.random() * chances[-1], side="right"))
        return Verdict(*divmod(outcome, target_probs.shape[1]))

    return accept
