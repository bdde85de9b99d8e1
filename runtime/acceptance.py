"""The theorem of speculative decoding: which drafted tokens stand, so that the output follows the target.

Every rule is given K drafted token ids, `draft_probs` (K, V), the distribution that each was drawn from, and
`target_probs` (K + 1, V), the target's at each drafted position and after the last. By every rule the tokens that are
emitted, the accepted ones and `next_token`, are distributed as the target's own.

Axis letters: `K` drafted tokens, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.filters import Probs
from pilotfish.runtime.sampling import draw


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many drafted tokens stand, and the target's own token after them: a correction, or the bonus token."""

    num_accepted: int
    next_token: int


AcceptanceRule = Callable[[Sequence[int], Probs, Probs, np.random.Generator], Verdict]


def accept_by_token(
    drafted: Sequence[int], draft_probs: Probs, target_probs: Probs, rng: np.random.Generator
) -> Verdict:
    """Token x stands with probability min(1, target(x) / draft(x)), each after the one before it stood.

    At the first that does not, the correction is drawn from max(0, target − draft). Source: Leviathan, Kalman, Matias,
    "Fast Inference from Transformers via Speculative Decoding" (2023), algorithm 1. Greedy is not a special case: with
    one-hot rows a drafted token stands if it equals the target's.
    """
    for position, token_id in enumerate(drafted):
        target, draft = target_probs[position], draft_probs[position]
        if rng.random() * draft[token_id] < target[token_id]:
            continue
        return Verdict(position, _correction(target, draft, 1.0, rng))
    return Verdict(len(drafted), draw(target_probs[len(drafted)], rng))


def accept_by_block(
    drafted: Sequence[int], draft_probs: Probs, target_probs: Probs, rng: np.random.Generator
) -> Verdict:
    """The longest beginning of the block that may stand, judged by the likelihood of the block as a whole.

    A token that the target likes better than the draft makes up for one before it that the target likes less, so in
    expectation no fewer tokens stand than token by token. Source: Sun et al., "Block Verification Accelerates
    Speculative Decoding" (2024), algorithm 2.
    """
    num_accepted, weight, accepted_weight = 0, 1.0, 1.0
    for position, token_id in enumerate(drafted):
        ratio = float(target_probs[position][token_id]) / max(float(draft_probs[position][token_id]), 1e-300)
        weight = min(weight * ratio, 1.0)
        threshold = weight
        if position + 1 < len(drafted):
            missing = _residual(target_probs[position + 1], draft_probs[position + 1], weight).sum(dtype=np.float64)
            # Where nothing is missing and the weight is 1, the tokens behind stand too and this threshold is moot.
            threshold = missing / (missing + 1 - weight) if missing + 1 - weight > 0 else 0.0
        if rng.random() < threshold:
            num_accepted, accepted_weight = position + 1, weight
    if num_accepted == len(drafted):
        return Verdict(num_accepted, draw(target_probs[num_accepted], rng))
    target, draft = target_probs[num_accepted], draft_probs[num_accepted]
    return Verdict(num_accepted, _correction(target, draft, accepted_weight, rng))


# With the rule `seed` rows come one-hot at the token that the noise has picked: equal, or take the target's.
RULES: Mapping[str, AcceptanceRule] = MappingProxyType(
    {"token": accept_by_token, "block": accept_by_block, "seed": accept_by_token}
)


def _residual(target: Probs, draft: Probs, weight: float) -> NDArray[np.float32]:
    """What the draft left out of the target's row, max(0, weight · target − draft): (V,)."""
    residual: NDArray[np.float32] = np.maximum(np.float32(weight) * target - draft, 0)
    return residual


def _correction(target: Probs, draft: Probs, weight: float, rng: np.random.Generator) -> int:
    residual = _residual(target, draft, weight)
    return draw(residual if residual.any() else target, rng)  # equal rows differ by rounding only
