"""Which pairs of vocabularies pass ids and which are masked, which pass text, and how that reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from pilotfish.export.pairing import (
    DifferingToken,
    VocabularyMatch,
    compare_vocabularies,
    difference,
    pair_tokenizers,
    texts_by_id,
    vocabulary_of,
)
from pilotfish.runtime.errors import CheckpointError, PairingError
from support.vocabularies import characters

Vocabulary = list[str | None]


def vocabulary(width: int) -> Vocabulary:
    return [f"t{token_id}" for token_id in range(width)]


def renamed(texts: Vocabulary, count: int) -> Vocabulary:
    return [f"other{token_id}" if token_id < count else text for token_id, text in enumerate(texts)]


def test_a_comparison_counts_both_sides() -> None:
    match = compare_vocabularies(["a", "b", None, "d"], ["a", "x", "c", None, "e", "[PAD5]"])
    assert match == VocabularyMatch(
        num_target=4,
        num_draft=6,
        num_shared=1,
        differing=(DifferingToken(1, "b", "x"),),
        only_target=(3,),
        only_draft=(2, 4),
    )
    assert match.masked_ids == (1, 2, 4)


@given(st.lists(st.none() | st.text(max_size=3), max_size=40))
def test_a_vocabulary_never_differs_from_itself(texts: Vocabulary) -> None:
    match = compare_vocabularies(texts, texts)
    assert (match.differing, match.only_target, match.only_draft) == ((), (), ())
    assert match.masked_ids == ()


def test_padding_tails_of_different_width_do_not_count() -> None:
    texts = vocabulary(1000)
    target = [*texts, *(f"[PAD{i}]" for i in range(1000, 1100))]
    draft: Vocabulary = [*texts, *([None] * 300)]
    match = compare_vocabularies(target, draft)
    assert match.is_accepted
    assert (match.num_shared, match.num_target, match.num_draft) == (1000, 1100, 1300)
    assert match.masked_ids == ()


@pytest.mark.parametrize(
    "placeholder",
    [None, "", "[PAD7]", "<pad_7>", "[unused7]", "<unused7>", "<|unused_7|>", "<|reserved_special_token_7|>"],
)
def test_a_placeholder_is_no_token(placeholder: str | None) -> None:
    match = compare_vocabularies(["a", placeholder], ["a", "<think>"])
    assert (match.differing, match.only_draft, match.masked_ids) == ((), (1,), (1,))
    assert compare_vocabularies(["a", "<think>"], ["a", placeholder]).masked_ids == ()


@pytest.mark.parametrize("text", ["PAD7", "[7]", "<pad>", "[PAD7", "unused"])
def test_a_text_that_resembles_a_placeholder_is_a_token(text: str) -> None:
    assert compare_vocabularies([text], ["a"]).differing == (DifferingToken(0, text, "a"),)


def test_a_space_and_its_mark_are_the_same_text() -> None:
    assert compare_vocabularies(["a", "▁▁"], ["a", "  "]).num_shared == 2


@pytest.mark.parametrize(("width", "num_differing"), [(999, 0), (1000, 1), (40_000, 40), (64_000, 64), (200_000, 64)])
def test_a_few_differing_ids_are_masked(width: int, num_differing: int) -> None:
    texts = vocabulary(width)
    match = compare_vocabularies(texts, renamed(texts, num_differing))
    assert match.is_accepted
    assert match.masked_ids == tuple(range(num_differing))
    assert not compare_vocabularies(texts, renamed(texts, num_differing + 1)).is_accepted


def test_a_difference_is_told_with_five_ids_and_both_texts() -> None:
    told = difference(compare_vocabularies(vocabulary(50), renamed(vocabulary(60), 20)))
    assert "20 of 50 token ids differ" in told
    assert "id 4 is 't4' in the target and 'other4' in the draft" in told
    assert "id 5 is" not in told


@pytest.mark.parametrize(("target", "draft"), [([], []), (["a"], []), (["a", None], ["[PAD0]", "b"])])
def test_nothing_in_common_is_not_accepted(target: Vocabulary, draft: Vocabulary) -> None:
    match = compare_vocabularies(target, draft)
    assert not match.is_accepted
    assert "no token id in common" in difference(match)


def test_vocabularies_that_share_their_ids_pass_ids() -> None:
    pairing = pair_tokenizers(characters("a b c"), characters("a b c"))
    assert (pairing.passes_text, pairing.masked_ids) == (False, ())
    assert str(pairing) == "3 token ids shared"


def test_others_pass_text_and_mask_nothing() -> None:
    pairing = pair_tokenizers(characters("a b c d"), characters("b a c ab d"))
    assert (pairing.passes_text, pairing.share_in_common, pairing.masked_ids) == (True, 0.8, ())
    assert str(pairing) == "different tokenizer: drafts pass as text; 80% of the draft's tokens map one to one"


@pytest.mark.parametrize("empty", ["target", "draft"])
def test_a_side_without_tokens_is_refused(empty: str) -> None:
    sides = {"target": characters("a"), "draft": characters("b")} | {empty: characters("")}
    with pytest.raises(PairingError, match=f"the {empty} has no tokens; choose"):
        pair_tokenizers(sides["target"], sides["draft"])


def test_texts_by_id_keep_holes() -> None:
    assert texts_by_id({"c": 3, "a": 0}) == ["a", None, None, "c"]
    assert texts_by_id({}) == []


def test_the_vocabulary_of_a_tokenizer_holds_its_added_tokens() -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    tokenizer.add_special_tokens(["<end>"])
    assert vocabulary_of(tokenizer.to_str()) == ["a", "b", "<end>"]


def test_a_tokenizer_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json of 2 characters cannot be read .*fetch it again"):
        vocabulary_of("{}")
