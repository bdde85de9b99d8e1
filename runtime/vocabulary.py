"""The tokens of a vocabulary as bytes, and text that goes on from other text cut into them.

What two models with different tokenizers have in common is text. A byte of it belongs to one token of either side, even
where a token ends inside a character.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import tokenizers

from pilotfish.runtime.errors import PairingError
from pilotfish.runtime.tokenizer import Tokenizer

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_PLAIN_DECODERS = frozenset({"ByteFallback", "Fuse", "Metaspace", "Replace", "Strip"})


class Vocabulary:
    """What each token of a tokenizer stands for.

    `specials` are the names of its special tokens by id, `end_token_ids` and `end_text` are of those that end a text
    (None if there is none), and `prefix` are the ids that a text begins with.
    """

    def __init__(
        self,
        tokenizer_json: str,
        end_token_ids: Collection[int] = (),
        end_text: str | None = None,
        prefix: Sequence[int] = (),
    ) -> None:
        """`PairingError` if its tokens have no text of their own."""
        values = json.loads(tokenizer_json)
        steps = list(_steps(values["decoder"], "decoders"))
        kinds = {step["type"] for step in steps}
        self._is_byte_level = "ByteLevel" in kinds
        if not self._is_byte_level and not (kinds & {"Metaspace", "Replace"} and kinds <= _PLAIN_DECODERS):
            raise PairingError(
                f"tokens that are decoded by {', '.join(sorted(kinds)) or 'nothing'} have no text of their own, so "
                "drafts cannot pass as text; choose a draft of the target's own family, or drafts by lookup"
            )
        self._has_bytes = "ByteFallback" in kinds
        self._spaces = [mark for step in steps if (mark := _space_mark(step)) is not None]
        _put_no_space_in_front(values)
        self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(values))
        added = values["added_tokens"]
        self._added = {token["id"]: str(token["content"]) for token in added}
        self.specials = {token["id"]: str(token["content"]) for token in added if token["special"]}
        self.special_texts = frozenset(self.specials.values())
        self.end_token_ids, self.end_text, self.prefix = end_token_ids, end_text, tuple(prefix)
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Vocabulary:
        """The vocabulary of a tokenizer of a bundle."""
        return cls(tokenizer.to_json(), tokenizer.end_token_ids, tokenizer.end_text, tokenizer.prefix)

    @property
    def num_tokens(self) -> int:
        """One more than the highest id."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def bytes_of(self, token_id: int) -> bytes:
        """What a token adds to the text: a special token its name, an id without a token nothing."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._read(token_id)
        return known

    def encode(self, text: str) -> list[int]:
        """The tokens of a text that stands behind another; names of special tokens become these."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _read(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        text: str = self._tokenizer.id_to_token(token_id) or ""
        if self._is_byte_level:
            return b"".join(_BYTES_OF_CHARACTERS.get(character, character.encode()) for character in text)
        byte = _BYTE.fullmatch(text) if self._has_bytes else None
        if byte:
            return bytes([int(byte[1], 16)])
        for mark in self._spaces:
            text = text.replace(mark, " ")
        return text.encode()


def whole_characters(data: bytes) -> tuple[str, bytes]:
    """The text of bytes, and the bytes at the end that begin a character; what is no UTF-8 becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data), decoder.getstate()[0]


def valid_beginning(data: bytes) -> str:
    """The text of bytes up to the first that are no whole character."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return data[: error.start].decode()


def _characters_of_bytes() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's table): printable ones themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES_OF_CHARACTERS: Mapping[str, bytes] = {text: bytes([byte]) for text, byte in _characters_of_bytes().items()}


def _steps(part: Mapping[str, Any] | None, key: str) -> Iterator[dict[str, Any]]:
    """A part of a tokenizer.json and what it is made of, without sequences."""
    if part is not None:
        if part["type"] == "Sequence":
            for inner in part[key]:
                yield from _steps(inner, key)
        else:
            yield dict(part)


def _space_mark(decoder: Mapping[str, Any]) -> str | None:
    """The text that a decoder turns into a space."""
    if decoder["type"] == "Metaspace":
        return str(decoder["replacement"])
    is_space = decoder["type"] == "Replace" and decoder["content"] == " "
    return decoder["pattern"].get("String") if is_space else None


def _put_no_space_in_front(values: dict[str, Any]) -> None:
    """Changes a tokenizer.json, in place, so that text which begins inside another one gets no space of its own."""
    kept = [step for step in _steps(values["normalizer"], "normalizers") if step["type"] != "Prepend"]
    values["normalizer"] = {"type": "Sequence", "normalizers": kept}
    cuts = list(_steps(values["pre_tokenizer"], "pretokenizers"))
    for cut in cuts:
        if "add_prefix_space" in cut:
            cut["add_prefix_space"] = False
        if "prepend_scheme" in cut:
            cut["prepend_scheme"] = "never"
    values["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": cuts}
