"""What was measured about a bundle on this device: exactness, costs, and how well the draft knows the target.

Kept in the user's cache folder, not in the bundle. A bundle may be shared and read-only, and what holds on one device
does not hold on another.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pilotfish.runtime.catalog import cache_dir
from pilotfish.runtime.costs import WidthCosts, measure
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.model import DraftView
from pilotfish.runtime.drafters.proposal import ReadingDrafter, never
from pilotfish.runtime.exactness import WIDEST, exact_widths, near_tie_margin
from pilotfish.runtime.generation import MAX_DRAFT_TOKENS
from pilotfish.runtime.sampling import Sampler, SamplingParams
from pilotfish.runtime.tokenizer import Tokenizer
from pilotfish.runtime.whole_file import write_whole

FORMAT_VERSION = 4
# Ordinary prose and ordinary code: what a draft knows of the one says little about the other.
SAMPLE = """The library opens at nine on weekdays. Bring a card and a letter with your address on it, and the desk \
will sign you up while you wait.

def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)
"""
FIRST_SCORED, NUM_SAMPLED = 8, 72  # tokens of the sample; every second one is scored

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Level:
    """One draft, without drafts of its own, beside the model that it drafts for, whose `tokenizer` it is."""

    verifier: Decoder | DraftView
    drafter: ReadingDrafter
    decoder: Decoder
    tokenizer: Tokenizer


@dataclass(frozen=True, slots=True)
class DraftCalibration:
    """What a draft's passes cost, and the part of its tokens that the model before it accepts.

    `agreement` is as `measured_agreement` found it; the model before the first draft is the target.
    """

    costs: WidthCosts
    agreement: float

    def __post_init__(self) -> None:
        if not 0 <= self.agreement <= 1:
            raise ValueError(f"an agreement of {self.agreement} is no part of anything")


@dataclass(frozen=True, slots=True)
class Calibration:
    """`exact_widths`, ascending: forwards of as many rows give identical bits.

    `near_tie_margin` is a lead in logits below which rounding may decide; 0 in exact mode, where it cannot. The costs
    are those of the padded forwards that exact mode runs, or of the bare ones. `drafts` are in the order of the
    manifest's.
    """

    exact_widths: tuple[int, ...]
    near_tie_margin: float
    target_costs: WidthCosts
    drafts: tuple[DraftCalibration, ...]

    def __post_init__(self) -> None:
        if not self.exact_widths or list(self.exact_widths) != sorted(
            set(self.exact_widths) & set(range(2, WIDEST[0] + 1))
        ):
            raise ValueError(f"forwards of {self.exact_widths} rows were never compared")
        if not 0 <= self.near_tie_margin < float("inf"):
            raise ValueError(f"the near-tie margin {self.near_tie_margin} is no lead in logits")

    @property
    def max_width(self) -> int:
        """The most rows of a verification."""
        return min(self.exact_widths[-1], MAX_DRAFT_TOKENS + 1)


def calibrate(
    target: Decoder, levels: Sequence[Level], sample: str, *, exact: bool
) -> Calibration:  # fmt: skip
    """Measures; takes some thirty forwards of each model. The caches are empty before and after.

    Of `levels` the first drafts for the target, each further one for the one before it; `sample` is ordinary text, for
    their agreement.

    In exact mode it leaves the target padding its forwards to the exact widths.
    """
    widths = exact_widths(target)
    margin = 0.0 if exact else near_tie_margin(target)
    target.exact_widths = widths if exact else ()
    drafts = tuple(
        DraftCalibration(
            measure(level.decoder),
            measured_agreement(level.verifier, level.drafter, level.tokenizer.encode(sample)[:NUM_SAMPLED]),
        )
        for level in levels
    )
    return Calibration(widths, margin, measure(target), drafts)


def measured_agreement(target: Decoder | DraftView, drafter: ReadingDrafter, sample: Sequence[int]) -> float:
    """The chance that the target accepts a token which the draft draws, over positions of a text; temperature 1.

    Σ min(draft, target) over the vocabulary at each position (Leviathan et al. 2023, theorem 3.5). 0.5, a guess, for a
    text too short to tell; a draft that writes nothing at a position has nothing accepted there. The caches are empty
    before and after.
    """
    token_ids = sample[: target.context_length - 1]
    positions = range(FIRST_SCORED, len(token_ids), 2)
    if not positions:
        return 0.5
    sampler, rng, overlaps = Sampler(SamplingParams(temperature=1)), np.random.default_rng(0), list[float]()
    logits = target.forward(token_ids, len(token_ids))
    try:
        for position in positions:
            draft_probs = drafter.propose(token_ids[:position], 1, sampler, rng, never).probs
            target_probs = sampler.distributions(logits[position - 1 : position, : draft_probs.shape[1]], [])
            overlaps.append(float(np.minimum(draft_probs, target_probs).sum()))
    finally:
        target.rollback(0)
        drafter.rollback(0)
    return float(np.clip(np.mean(overlaps), 0, 1))


def kept_calibration(fingerprint: str) -> Calibration | None:
    """What was kept for this `fingerprint`; None if there is nothing, or nothing that can be read."""
    path = _path(fingerprint)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["format"] != FORMAT_VERSION or kept["fingerprint"] != fingerprint:
            return None
        return Calibration(
            exact_widths=tuple(map(int, kept["exact_widths"])),
            near_tie_margin=float(kept["near_tie_margin"]),
            target_costs=WidthCosts.from_dict(kept["target_s"]),
            drafts=tuple(
                DraftCalibration(WidthCosts.from_dict(draft["s"]), float(draft["agreement"]))
                for draft in kept["drafts"]
            ),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError) as error:
        _logger.warning("the calibration %s cannot be read and is made again: %s", path, error)
        return None


def keep_calibration(fingerprint: str, calibration: Calibration) -> None:
    """Writes a calibration for later runs. Where that fails it is made again each time, which the log says."""
    path = _path(fingerprint)
    values = {
        "format": FORMAT_VERSION,
        "fingerprint": fingerprint,
        "exact_widths": calibration.exact_widths,
        "near_tie_margin": calibration.near_tie_margin,
        "target_s": calibration.target_costs.to_dict(),
        "drafts": [{"s": draft.costs.to_dict(), "agreement": draft.agreement} for draft in calibration.drafts],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(values, indent=1))
    except OSError as error:
        _logger.warning("the calibration cannot be kept in %s: %s", path, error)


def _path(fingerprint: str) -> Path:
    return cache_dir() / "calibrations" / f"{hashlib.sha256(fingerprint.encode()).hexdigest()[:24]}.json"
