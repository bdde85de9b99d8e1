"""Tokens as bytes: all of a text and nothing else, whatever kind of tokenizer cut it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from pilotfish.runtime.errors import PairingError
from pilotfish.runtime.vocabulary import Vocabulary, valid_beginning, whole_characters
from support.tiny_models import tiny_tokenizer
from support.vocabularies import KINDS, TEXT

VOCABULARIES = {name: Vocabulary(make().tokenizer_json) for name, make in KINDS.items()}
VOCABULARIES["tiny"] = Vocabulary(tiny_tokenizer().tokenizer_json)
TEXTS = st.text() | st.text(alphabet="aeé ŵ\n🦈鮫▁'1<|end|>", max_size=20)


@pytest.mark.parametrize("kind", ["byte-level", "sentencepiece", "tiny"])
@given(text=TEXTS)
@example(" pilot")
@example("pilot")
@example("👩‍👩‍👧 <|end|> x")
def test_the_bytes_of_the_tokens_are_those_of_the_text(kind: str, text: str):
    vocabulary = VOCABULARIES[kind]
    found = b"".join(map(vocabulary.bytes_of, vocabulary.encode(text)))
    expected = unicodedata.normalize("NFC", text) if kind == "byte-level" else text.replace("▁", " ")
    if kind == "sentencepiece":  # a space and its mark are one to it
        found = found.replace("▁".encode(), b" ")
    assert found in (expected.encode(), text.encode())


def test_a_tokenizer_without_bytes_keeps_what_it_knows():
    vocabulary = VOCABULARIES["unigram"]
    words = [" pilot fish", "fish", " larger than", "fish: 12"]
    assert [b"".join(map(vocabulary.bytes_of, vocabulary.encode(word))).decode() for word in words] == words


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_no_space_is_put_in_front_and_special_tokens_have_their_names(kind: str):
    vocabulary = VOCABULARIES[kind]
    first, *_ = vocabulary.encode("fish")
    assert vocabulary.bytes_of(first)[:1] == b"f"
    (end,) = vocabulary.encode("<|end|>")
    assert vocabulary.bytes_of(end) == b"<|end|>"
    assert vocabulary.specials[end] == "<|end|>"
    assert vocabulary.bytes_of(vocabulary.num_tokens) == b""


@given(st.binary(max_size=12) | TEXTS.map(str.encode))
def test_the_end_that_is_no_whole_character_is_left_over(data: bytes):
    text, rest = whole_characters(data)
    assert len(rest) < 4
    assert data.endswith(rest)
    assert text == data[: len(data) - len(rest)].decode(errors="replace")
    if rest:  # it can still become a character
        assert any(_is_text(rest + more) for more in (b"\x80", b"\x80" * 2, b"\x80" * 3, b"\xa0\x80", b"\x90\x80\x80"))


@given(st.binary(max_size=12), TEXTS)
def test_a_text_is_read_up_to_what_is_none(noise: bytes, text: str):
    assert valid_beginning(text.encode() + b"\xff" + noise) == text
    assert valid_beginning(text.encode()) == text


@given(st.text(min_size=1, max_size=4), st.integers(1, 3))
def test_a_cut_character_is_left_over_whole(text: str, num_bytes: int):
    last = text[-1].encode()
    if num_bytes < len(last):
        cut = (text[:-1].encode() + last)[: len(text[:-1].encode()) + num_bytes]
        assert whole_characters(cut) == (text[:-1], last[:num_bytes])
        assert valid_beginning(cut) == text[:-1]


@pytest.mark.parametrize("decoder", [None, decoders.WordPiece(), decoders.BPEDecoder(), decoders.CTC()])
def test_tokens_without_a_text_of_their_own_are_refused(decoder: object):
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    if decoder is not None:
        tokenizer.decoder = decoder
    with pytest.raises(PairingError, match=r"have no text of their own.*choose a draft of the target's own family"):
        Vocabulary(tokenizer.to_str())


def _is_text(data: bytes) -> bool:
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def test_the_sample_is_cut_differently_by_each():
    """Otherwise tests of drafting between them say little."""
    cuts = {tuple(map(vocabulary.bytes_of, vocabulary.encode(TEXT))): kind for kind, vocabulary in VOCABULARIES.items()}
    assert len(cuts) == len(VOCABULARIES)
