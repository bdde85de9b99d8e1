"""Decides whether two models speak the same token ids, or have to pass text, and explains it.

Where ids pass from draft to target, what must agree is the text of each id. How the two tokenizers cut text (merges,
pre-tokenizers, normalizers) is not compared: only the target's tokenizer encodes. Where the ids differ, drafts pass as
text (`runtime/drafters/translated.py`), which works for all tokenizers whose tokens are pieces of text.
A vocabulary is a sequence of token texts by id, with None where no token has that id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from pilotfish.runtime.errors import CheckpointError, PairingError
from pilotfish.runtime.vocabulary import Vocabulary

MAX_DIFFERING_IDS = 64
MAX_DIFFERING_SHARE = 0.001
NUM_EXAMPLES = 5

_PLACEHOLDER = re.compile(r"[\[<]\|?(pad|unused|dummy|reserved|reserved_special_token)[_ ]?\d+\|?[\]>]", re.I)


@dataclass(frozen=True, slots=True)
class DifferingToken:
    """One id that stands for another text in the draft than in the target."""

    token_id: int
    target_text: str
    draft_text: str


@dataclass(frozen=True, slots=True)
class VocabularyMatch:
    """How two vocabularies compare. Ids without a real token on either side appear nowhere but in the widths.

    `num_target` and `num_draft` are the widths, padding included. `num_shared` counts ids with identical text.
    `only_target` and `only_draft` are the ids for which just one side has a token.
    """

    num_target: int
    num_draft: int
    num_shared: int
    differing: tuple[DifferingToken, ...]
    only_target: tuple[int, ...]
    only_draft: tuple[int, ...]

    @property
    def num_compared(self) -> int:
        """Ids for which both sides have a token."""
        return self.num_shared + len(self.differing)

    @property
    def is_accepted(self) -> bool:
        """Whether ids can pass from the draft to the target: at most 0.1 % and 64 of the compared ids differ."""
        allowed = min(MAX_DIFFERING_IDS, MAX_DIFFERING_SHARE * self.num_compared)
        return self.num_shared > 0 and len(self.differing) <= allowed

    @property
    def masked_ids(self) -> tuple[int, ...]:
        """Ids the draft must never propose, ascending: they mean another text, or nothing, to the target."""
        return tuple(sorted({*(token.token_id for token in self.differing), *self.only_draft}))


def compare_vocabularies(target: Sequence[str | None], draft: Sequence[str | None]) -> VocabularyMatch:
    """Compare two vocabularies by token text, id by id.

    None, an empty text and a padding name such as `[PAD151936]` or `<unused7>` count as no token. A space and
    SentencePiece's mark for one are the same text: a GGUF file and a tokenizer.json of one model differ in that.
    """
    target_real, draft_real = _real_tokens(target), _real_tokens(draft)
    both = target_real.keys() & draft_real.keys()
    differing = tuple(
        DifferingToken(token_id, target_real[token_id], draft_real[token_id])
        for token_id in sorted(both)
        if not _is_same_text(target_real[token_id], draft_real[token_id])
    )
    return VocabularyMatch(
        num_target=len(target),
        num_draft=len(draft),
        num_shared=len(both) - len(differing),
        differing=differing,
        only_target=tuple(sorted(target_real.keys() - both)),
        only_draft=tuple(sorted(draft_real.keys() - both)),
    )


@dataclass(frozen=True, slots=True)
class Pairing:
    """How drafts pass to the target: as ids if the vocabularies `match`, otherwise as text.

    `share_in_common` is the part of the draft's tokens whose text is a token of the target too, None if ids pass. A
    text of such tokens is often cut alike on both sides.
    """

    match: VocabularyMatch
    share_in_common: float | None = None

    @property
    def passes_text(self) -> bool:
        """Whether the draft needs its own tokenizer."""
        return self.share_in_common is not None

    @property
    def masked_ids(self) -> tuple[int, ...]:
        """Ids that a draft which passes ids must not propose."""
        return () if self.passes_text else self.match.masked_ids

    def __str__(self) -> str:
        if self.share_in_common is None:
            masked = f", {len(self.masked_ids)} masked" if self.masked_ids else ""
            return f"{self.match.num_shared} token ids shared{masked}"
        return (
            f"different tokenizer: drafts pass as text; {self.share_in_common:.0%} of the draft's tokens map one to one"
        )


def pair_tokenizers(target_json: str, draft_json: str) -> Pairing:
    """How the drafts of one tokenizer.json pass to another; `PairingError` if neither as ids nor as text."""
    match = compare_vocabularies(vocabulary_of(target_json), vocabulary_of(draft_json))
    if match.is_accepted:
        return Pairing(match)
    target, draft = _tokens_in(target_json), _tokens_in(draft_json)
    if not target or not draft:
        raise PairingError(f"the {'draft' if target else 'target'} has no tokens; choose a draft with a vocabulary")
    return Pairing(match, len(draft & target) / len(draft))


def pair_drafts(target_json: str, draft_jsons: Sequence[str]) -> list[Pairing]:
    """How each of several drafts passes to the one before it: the first as it can, the others as ids.

    `PairingError` if they cannot: all drafts of a bundle share one tokenizer, the target's or another.
    """
    if not draft_jsons:
        return []
    first = pair_tokenizers(target_json, draft_jsons[0])
    shared = draft_jsons[0] if first.passes_text else target_json
    pairings = [first]
    for draft_json in draft_jsons[1:]:
        match = compare_vocabularies(vocabulary_of(shared), vocabulary_of(draft_json))
        if not match.is_accepted:
            raise PairingError(f"a draft of a draft must share its vocabulary, and {difference(match)}; leave it out")
        pairings.append(Pairing(match))
    return pairings


def difference(match: VocabularyMatch) -> str:
    """Why ids cannot pass, with examples."""
    if match.num_compared == 0:
        return f"draft and target have no token id in common (target {match.num_target} ids, draft {match.num_draft})"
    examples = "; ".join(
        f"id {token.token_id} is {token.target_text!r} in the target and {token.draft_text!r} in the draft"
        for token in match.differing[:NUM_EXAMPLES]
    )
    return (
        f"draft and target do not share a vocabulary: {len(match.differing)} of {match.num_compared} token ids "
        f"differ, and at most {MAX_DIFFERING_SHARE:.1%} and {MAX_DIFFERING_IDS} may. {examples}"
    )


def texts_by_id(ids: Mapping[str, int]) -> list[str | None]:
    """Turn text → id, as `Tokenizer.get_vocab` gives it, into texts by id, with None for the holes."""
    texts: list[str | None] = [None] * (max(ids.values(), default=-1) + 1)
    for text, token_id in ids.items():
        texts[token_id] = text
    return texts


def vocabulary_of(tokenizer_json: str) -> list[str | None]:
    """The token texts by id of a tokenizer.json, added tokens included."""
    try:
        tokenizer = Tokenizer.from_str(tokenizer_json)
    except Exception as error:  # tokenizers raises bare Exception
        raise CheckpointError(
            f"a tokenizer.json of {len(tokenizer_json)} characters cannot be read ({error}); fetch it again"
        ) from error
    return texts_by_id(tokenizer.get_vocab(with_added_tokens=True))


def _tokens_in(tokenizer_json: str) -> set[bytes]:
    """What the tokens of a tokenizer.json stand for."""
    vocabulary = Vocabulary(tokenizer_json)
    return {vocabulary.bytes_of(token_id) for token_id in range(vocabulary.num_tokens)} - {b""}


def _is_same_text(target_text: str, draft_text: str) -> bool:
    return target_text == draft_text or target_text.replace("▁", " ") == draft_text.replace("▁", " ")


def _real_tokens(vocabulary: Sequence[str | None]) -> dict[int, str]:
    return {
        token_id: text
        for token_id, text in enumerate(vocabulary)
        if text and not (text[0] in "[<" and _PLACEHOLDER.fullmatch(text))
    }
