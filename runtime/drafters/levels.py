"""The drafters of a bundle's draft models: the first drafts for the target, each further one for the one before it.

All drafts of a bundle share one tokenizer: the target's, or another one, and then what the first writes is translated.
"""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.runtime.bundle import Bundle
from pilotfish.runtime.calibration import DraftCalibration, Level
from pilotfish.runtime.costs import WidthCosts
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.cascade import CascadeDrafter
from pilotfish.runtime.drafters.lookup import LookupDrafter
from pilotfish.runtime.drafters.model import DraftView, ModelDrafter
from pilotfish.runtime.drafters.proposal import Drafter, ReadingDrafter
from pilotfish.runtime.drafters.translated import TranslatedDrafter
from pilotfish.runtime.errors import BundleError, PairingError
from pilotfish.runtime.tokenizer import Tokenizer
from pilotfish.runtime.vocabulary import Vocabulary

HISTORY = 2048  # tokens that are looked through before each pass of a draft, which is short itself
NUM_COPIED, MOST_DRAFTED = 2, 8  # tokens in a round of a draft: by look-up, by a draft of its own


def levels_of(bundle: Bundle, tokenizer: Tokenizer, target: Decoder, drafts: Sequence[Decoder]) -> list[Level]:
    """Each draft beside the model that it drafts for; `tokenizer` is the target's.

    `BundleError` if the drafts have a tokenizer of their own that cannot be used.
    """
    bare = _bare_drafters(bundle, drafts)
    if not bare:
        return []
    entry = bundle.manifest.draft_tokenizer
    drafters = [_for_target(bundle, tokenizer, bare[0]), *bare[1:]]
    verifiers: list[Decoder | DraftView] = [target, *(drafter.view for drafter in bare)]
    of_drafts = tokenizer if entry is None else Tokenizer(bundle, entry)
    tokenizers = [tokenizer, *[of_drafts] * (len(bare) - 1)]
    return [Level(*each) for each in zip(verifiers[:-1], drafters, drafts, tokenizers, strict=True)]


def nested_drafter(
    bundle: Bundle, tokenizer: Tokenizer, drafts: Sequence[Decoder], measured: Sequence[DraftCalibration]
) -> ReadingDrafter | None:  # fmt: skip
    """The drafter for the target, with all that drafts for it inside; None without a draft model.

    Each draft copies what the text repeats; where it repeats nothing, the draft below writes as many tokens as pay by
    what was `measured` of each, or is left out if none do. Where nobody but a look-up drafts for a draft that can hand
    its ids on on the device, that comes before copying.
    """
    outer: ModelDrafter | None = None
    inner: Drafter | None = None
    bare = _bare_drafters(bundle, drafts)
    for level in reversed(range(len(bare))):
        width = bare[level].view.vocab_size
        lookup = LookupDrafter(width, num_looked_at=HISTORY)
        number = best_length(measured[level].costs, measured[level + 1]) if inner is not None else 0
        drafted_by = CascadeDrafter([lookup, inner], width) if inner is not None and number else lookup
        inner = outer = bare[level].drafted_by(
            drafted_by, number or NUM_COPIED, hands_ids_on=drafts[level].hands_ids_on and not number
        )  # fmt: skip
    return None if outer is None else _for_target(bundle, tokenizer, outer)


def best_length(costs: WidthCosts, draft: DraftCalibration) -> int:
    """The number of tokens by `draft` in a round of a model with `costs` that promises most; 0 if none pays.

    Expected tokens ÷ seconds of a round, with every token accepted by the same chance (Leviathan et al. 2023, theorem
    3.8).
    """

    def speed(number: int) -> float:
        tokens = sum(draft.agreement**position for position in range(number + 1))
        return tokens / (costs.seconds(number + 1) + number * draft.costs.seconds(1))

    return max(range(MOST_DRAFTED + 1), key=speed)


def _bare_drafters(bundle: Bundle, drafts: Sequence[Decoder]) -> list[ModelDrafter]:
    """A drafter for each draft model, as if the others were not there; each in rows of the width of the one before."""
    manifest = bundle.manifest
    width = manifest.vocab_size if manifest.draft_tokenizer is None else manifest.draft_tokenizer.num_tokens
    drafters: list[ModelDrafter] = []
    for decoder, model in zip(drafts, manifest.drafts, strict=True):
        drafters.append(ModelDrafter(decoder, width, model.masked_ids))
        width = drafters[-1].view.vocab_size
    return drafters


def _for_target(bundle: Bundle, tokenizer: Tokenizer, model: ModelDrafter) -> ReadingDrafter:
    """The drafter of the first draft as the target can use it."""
    entry = bundle.manifest.draft_tokenizer
    if entry is None:
        return model
    try:
        target, draft = Vocabulary.of(tokenizer), Vocabulary.of(Tokenizer(bundle, entry))
    except PairingError as error:
        raise BundleError(f"the draft of {bundle.path} has a tokenizer of its own, and {error}") from error
    return TranslatedDrafter(model, target, draft, bundle.manifest.vocab_size)
