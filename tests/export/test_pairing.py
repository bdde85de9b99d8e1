"""Which pairs of vocabularies are accepted, which ids are masked, and how a refusal reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from pilotfish.export.pairing import (
    DifferingToken,
    VocabularyMatch,
    check_pair,
    compare_vocabularies,
    texts_by_id,
    vocabulary_of,
)
from pilotfish.runtime.errors import CheckpointError, PairingError

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
    match = check_pair(target, draft)
    assert (match.num_shared, match.num_target, match.num_draft) == (1000, 1100, 1300)
    assert match.masked_ids == ()


@pytest.mark.parametrize(
    "placeholder",
    [None, "", "[PAD7]", "<pad_7>", "[unused7]", "<unused7>", "<|unused_7|>", "<|reserved_special_token_7|>"],
)
def test_a_placeholder_is_no_token(placeholder: str | None) -> None:
    match = check_pair(["a", placeholder], ["a", "<think>"])
    assert (match.differing, match.only_draft, match.masked_ids) == ((), (1,), (1,))
    assert check_pair(["a", "<think>"], ["a", placeholder]).masked_ids == ()


@pytest.mark.parametrize("text", ["PAD7", "[7]", "<pad>", "[PAD7", "unused"])
def test_a_text_that_resembles_a_placeholder_is_a_token(text: str) -> None:
    assert compare_vocabularies([text], ["a"]).differing == (DifferingToken(0, text, "a"),)


def test_a_space_and_its_mark_are_the_same_text() -> None:
    assert check_pair(["a", "▁▁"], ["a", "  "]).num_shared == 2


@pytest.mark.parametrize(("width", "num_differing"), [(999, 0), (1000, 1), (40_000, 40), (64_000, 64), (200_000, 64)])
def test_a_few_differing_ids_are_masked(width: int, num_differing: int) -> None:
    texts = vocabulary(width)
    match = check_pair(texts, renamed(texts, num_differing))
    assert match.masked_ids == tuple(range(num_differing))
    with pytest.raises(PairingError, match=rf"{num_differing + 1} of {width} token ids differ"):
        check_pair(texts, renamed(texts, num_differing + 1))


def test_a_refusal_names_five_ids_with_both_texts_and_a_remedy() -> None:
    with pytest.raises(PairingError) as raised:
        check_pair(vocabulary(50), renamed(vocabulary(60), 20))
    message = str(raised.value)
    assert "20 of 50 token ids differ" in message
    assert "id 4 is 't4' in the target and 'other4' in the draft" in message
    assert "id 5 is" not in message
    assert "choose a draft of the target's own family" in message


@pytest.mark.parametrize(("target", "draft"), [([], []), (["a"], []), (["a", None], ["[PAD0]", "b"])])
def test_nothing_in_common_is_refused(target: Vocabulary, draft: Vocabulary) -> None:
    with pytest.raises(PairingError, match="no token id in common"):
        check_pair(target, draft)


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
