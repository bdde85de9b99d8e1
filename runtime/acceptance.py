"""The theorem of speculative decoding: which drafted tokens stand, so that the output follows the target.

Source: Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding" (2023), algorithm 1.
Axis letters: `K` drafted tokens, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pilotfish.runtime.sampling import Probs, draw


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many drafted tokens stand, and the target's own token after them: a correction, or the bonus token."""

    num_accepted: int
    next_token: int


def accept(drafted: Sequence[int], draft_probs: Probs, target_probs: Probs, rng: np.random.Generator) -> Verdict:
    """Decides over one proposal.

    `drafted` are K token ids, `draft_probs` (K, V) the distribution each was drawn from, and `target_probs` (K + 1, V)
    the target's at each drafted position and after the last. Token x stands with probability
    min(1, target(x) / draft(x)); at the first that does not, the correction is drawn from max(0, target − draft). The
    emitted tokens are then distributed as the target's own.

    Greedy is not a special case: with one-hot rows a drafted token stands if it equals the target's.
    """
    for position, token_id in enumerate(drafted):
        target, draft = target_probs[position], draft_probs[position]
        if rng.random() * draft[token_id] < target[token_id]:
            continue
        residual = np.maximum(target - draft, 0)
        return Verdict(position, draw(residual if residual.any() else target, rng))
    return Verdict(len(drafted), draw(target_probs[len(drafted)], rng))
