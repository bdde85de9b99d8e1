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
from pilotfish.runtime.drafters.proposal import ReadingDrafter
from pilotfish.runtime.drafters.translated import TranslatedDrafter
from pilotfish.runtime.errors import BundleError, PairingError
from pilotfish.runtime.tokenizer import Tokenizer
from pilotfish.runtime.vocabulary import Vocabulary

HISTORY = 2048  # tokens that are looked through before each pass of a draft, which is short itself
NUM_COPIED, MOST_DRAFTED = 2, 8  # tokens in a round of a draft: by look-up, by a draft of its own


class Drafts:
    """The draft models of a bundle, and the drafters that they make."""

    def __init__(self, bundle: Bundle, tokenizer: Tokenizer, decoders: Sequence[Decoder]) -> None:
        """`tokenizer` is the target's, `decoders` are in the order of the manifest's drafts.

        `BundleError` if the drafts have a tokenizer of their own that cannot be used.
        """
        manifest, entry = bundle.manifest, bundle.manifest.draft_tokenizer
        self._decoders, self._vocab_size = decoders, manifest.vocab_size
        self._of_target = self._of_drafts = tokenizer
        self._vocabularies: tuple[Vocabulary, Vocabulary] | None = None
        if entry is not None:
            self._of_drafts = Tokenizer(bundle, entry)
            try:  # large ones take a second to read
                self._vocabularies = Vocabulary.of(tokenizer), Vocabulary.of(self._of_drafts)
            except PairingError as error:
                raise BundleError(f"the draft of {bundle.path} has a tokenizer of its own, and {error}") from error
        # A drafter for each model, as if the others were not there; each in rows of the width of the one before.
        width = self._vocab_size if entry is None else entry.num_tokens
        self._bare: list[ModelDrafter] = []
        for decoder, model in zip(decoders, manifest.drafts, strict=True):
            self._bare.append(ModelDrafter(decoder, width, model.masked_ids))
            width = self._bare[-1].view.vocab_size

    def levels(self, target: Decoder) -> list[Level]:
        """Each draft beside the model that it drafts for."""
        if not self._bare:
            return []
        drafters = [self._for_target(self._bare[0]), *self._bare[1:]]
        verifiers: list[Decoder | DraftView] = [target, *(drafter.view for drafter in self._bare[:-1])]
        tokenizers = [self._of_target, *[self._of_drafts] * (len(self._bare) - 1)]
        return [Level(*each) for each in zip(verifiers, drafters, self._decoders, tokenizers, strict=True)]

    def nested(self, measured: Sequence[DraftCalibration]) -> ReadingDrafter | None:
        """The drafter for the target, with all that drafts for it inside; None without a draft model.

        Each draft copies what the text repeats; where it repeats nothing, the draft below writes as many tokens as pay
        by what was `measured` of each, or is left out if none do. Where nobody but a look-up drafts for a draft that
        can hand its ids on on the device, that comes before copying.
        """
        inner: ModelDrafter | None = None
        for level in reversed(range(len(self._bare))):
            width = self._bare[level].view.vocab_size
            lookup = LookupDrafter(width, num_looked_at=HISTORY)
            number = best_length(measured[level].costs, measured[level + 1]) if inner is not None else 0
            drafted_by = CascadeDrafter([lookup, inner], width) if inner is not None and number else lookup
            inner = self._bare[level].drafted_by(
                drafted_by, number or NUM_COPIED, hands_ids_on=self._decoders[level].hands_ids_on and not number
            )  # fmt: skip
        return None if inner is None else self._for_target(inner)

    def _for_target(self, model: ModelDrafter) -> ReadingDrafter:
        """The drafter of the first draft as the target can use it."""
        if self._vocabularies is None:
            return model
        return TranslatedDrafter(model, *self._vocabularies, self._vocab_size)


def best_length(costs: WidthCosts, draft: DraftCalibration) -> int:
    """The number of tokens by `draft` in a round of a model with `costs` that promises most; 0 if none pays.

    Expected tokens ÷ seconds of a round, with every token accepted by the same chance (Leviathan et al. 2023, theorem
    3.8).
    """

    def speed(number: int) -> float:
        tokens = sum(draft.agreement**position for position in range(number + 1))
        return tokens / (costs.seconds(number + 1) + number * draft.costs.seconds(1))

    return max(range(MOST_DRAFTED + 1), key=speed)
