"""Several draft models, one below the other: each drafts for the one before it, and the first for the target."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.runtime.calibration import DraftCalibration
from pilotfish.runtime.costs import WidthCosts
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.cascade import CascadeDrafter
from pilotfish.runtime.drafters.lookup import LookupDrafter
from pilotfish.runtime.drafters.model import ModelDrafter
from pilotfish.runtime.drafters.proposal import Drafter

HISTORY = 2048  # tokens that are looked through before each pass of a draft, which is short itself
NUM_COPIED, MOST_DRAFTED = 2, 8  # tokens in a round of a draft: by look-up, by a draft of its own


def bare_drafters(
    decoders: Sequence[Decoder], masked_ids: Sequence[Sequence[int]], vocab_size: int
) -> list[ModelDrafter]:  # fmt: skip
    """A drafter for each draft model, as if the others were not there; each in rows of the width of the one before."""
    drafters: list[ModelDrafter] = []
    for decoder, masked in zip(decoders, masked_ids, strict=True):
        drafters.append(ModelDrafter(decoder, vocab_size, masked))
        vocab_size = drafters[-1].view.vocab_size
    return drafters


def nested_drafter(
    decoders: Sequence[Decoder], masked_ids: Sequence[Sequence[int]], vocab_size: int,
    measured: Sequence[DraftCalibration],
) -> ModelDrafter | None:  # fmt: skip
    """The drafter for the target, with all that drafts for it inside; None without a draft model.

    Each draft copies what the text repeats; where it repeats nothing, the draft below writes as many tokens as pay by
    what was `measured` of each, or is left out if none do. Where nobody but a look-up drafts for a draft that can hand
    its ids on on the device, that comes before copying.
    """
    outer: ModelDrafter | None = None
    inner: Drafter | None = None
    bare = bare_drafters(decoders, masked_ids, vocab_size)
    for level in reversed(range(len(decoders))):
        width = bare[level].view.vocab_size
        lookup = LookupDrafter(width, num_looked_at=HISTORY)
        number = best_length(measured[level].costs, measured[level + 1]) if inner is not None else 0
        drafted_by = CascadeDrafter([lookup, inner], width) if inner is not None and number else lookup
        row_width = vocab_size if level == 0 else bare[level - 1].view.vocab_size
        outer = ModelDrafter(
            decoders[level], row_width, masked_ids[level], drafted_by, number or NUM_COPIED,
            hands_ids_on=decoders[level].hands_ids_on and not number,
        )  # fmt: skip
        inner = outer
    return outer


def best_length(costs: WidthCosts, draft: DraftCalibration) -> int:
    """The number of tokens by `draft` in a round of a model with `costs` that promises most; 0 if none pays.

    Expected tokens ÷ seconds of a round, with every token accepted by the same chance (Leviathan et al. 2023, theorem
    3.8).
    """

    def speed(number: int) -> float:
        tokens = sum(draft.agreement**position for position in range(number + 1))
        return tokens / (costs.seconds(number + 1) + number * draft.costs.seconds(1))

    return max(range(MOST_DRAFTED + 1), key=speed)
