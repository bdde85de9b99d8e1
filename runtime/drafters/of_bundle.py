"""Which drafter the draft of a bundle needs: one that shares the target's ids, or one that translates."""

from __future__ import annotations

from pilotfish.runtime.bundle import Bundle
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.lookup import LookupDrafter
from pilotfish.runtime.drafters.model import ModelDrafter
from pilotfish.runtime.drafters.proposal import ReadingDrafter
from pilotfish.runtime.drafters.translated import TranslatedDrafter
from pilotfish.runtime.errors import BundleError, PairingError
from pilotfish.runtime.tokenizer import Tokenizer
from pilotfish.runtime.vocabulary import Vocabulary

INNER_HISTORY = 2048  # tokens that are looked through before each pass of the draft, which is short itself


def drafter_of(bundle: Bundle, tokenizer: Tokenizer, decoder: Decoder) -> ReadingDrafter:
    """The drafter that runs the draft of a bundle, which is drafted for by lookup in turn.

    `tokenizer` is the target's. `BundleError` if the draft has a tokenizer of its own that cannot be used.
    """
    manifest = bundle.manifest
    entry, vocab_size = manifest.draft_tokenizer, manifest.vocab_size
    num_ids = min(vocab_size if entry is None else entry.num_tokens, decoder.vocab_size)
    inner = LookupDrafter(num_ids, num_looked_at=INNER_HISTORY)
    if entry is None:
        return ModelDrafter(decoder, vocab_size, manifest.masked_draft_ids, inner)
    model = ModelDrafter(decoder, num_ids, inner=inner)
    try:
        target, draft = Vocabulary.of(tokenizer), Vocabulary.of(Tokenizer(bundle, entry))
    except PairingError as error:
        raise BundleError(f"the draft of {bundle.path} has a tokenizer of its own, and {error}") from error
    return TranslatedDrafter(model, target, draft, vocab_size)
