"""The tokenizer of a GGUF file, rebuilt from the file's metadata.

A GGUF keeps the vocabulary, not the tokenizer: `tokenizer.ggml.model` names the algorithm, and for byte-level
BPE `tokenizer.ggml.pre` names the rule by which text is cut before merging. The rules below are those of the
models' own `tokenizer.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from pilotfish.export.tokenizer_files import TokenizerFiles, end_token_ids
from pilotfish.runtime.errors import CheckpointError

_KEY = "tokenizer.ggml."
_WORD_MARK = "▁"
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


class _Kind(IntEnum):
    """What `tokenizer.ggml.token_type` says of a token."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_SPECIAL = (_Kind.CONTROL, _Kind.UNKNOWN)


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a byte-level BPE cuts text; without a `split` pattern, GPT-2's own is used."""

    split: str | None = None
    isolates_digits: bool = False
    composes: bool = False
    ignores_merges: bool = False
    adds_bos: bool = False


_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTERS_AND_MARKS = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"

_GPT2 = _Rule()
_DIGITS_THEN_GPT2 = _Rule(isolates_digits=True)
_QWEN2 = _Rule("|".join((_CONTRACTIONS, _LETTERS, r"\p{N}", _SYMBOLS, _SPACES)), composes=True)
_QWEN35 = _Rule(
    "|".join((_CONTRACTIONS, _LETTERS_AND_MARKS, r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", _SPACES)),
    composes=True,
)
_LLAMA3 = _Rule(
    "|".join((_CONTRACTIONS, _LETTERS, r"\p{N}{1,3}", _SYMBOLS, _SPACES)), ignores_merges=True, adds_bos=True
)
_RULES = {
    "default": _GPT2,
    "gpt-2": _GPT2,
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
    "qwen35": _QWEN35,
    "smollm": _DIGITS_THEN_GPT2,
    "starcoder": _DIGITS_THEN_GPT2,
}


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """Token texts and kinds by id. Unused ids are padding: they get no place in the tokenizer."""

    texts: list[str]
    kinds: list[int]

    def ids(self, *kinds: _Kind) -> dict[str, int]:
        """Text → id of the tokens of these kinds, or of all but the unused."""
        wanted = set(kinds or _Kind) - (set() if kinds else {_Kind.UNUSED})
        return {
            text: i for i, (text, kind) in enumerate(zip(self.texts, self.kinds, strict=True)) if kind in wanted
        }


def tokenizer_from_gguf(metadata: Mapping[str, object]) -> TokenizerFiles:
    """Build the tokenizer that a GGUF file's metadata describes.

    Byte-level BPE (`gpt2`) with a known pre-tokenizer, and SentencePiece BPE (`llama`). Control tokens become
    special tokens, user-defined ones plain added tokens; unused ids stay holes. Raises `CheckpointError` for
    another algorithm or pre-tokenizer, and for metadata that is missing or contradicts itself.
    """
    algorithm = _string(metadata, "model")
    vocabulary = _vocabulary(metadata)
    bos_id = _token_id(metadata, "bos_token_id", vocabulary)
    try:
        if algorithm == "gpt2":
            rule = _rule(_string(metadata, "pre"))
            tokenizer, adds_bos = _byte_level(metadata, vocabulary, rule), rule.adds_bos
        elif algorithm == "llama":
            tokenizer, adds_bos = _sentencepiece(metadata, vocabulary), True
        else:
            raise CheckpointError(
                f"{_KEY}model is {algorithm!r}, which export does not support; use a model whose tokenizer is "
                "'gpt2' (byte-level BPE) or 'llama' (SentencePiece BPE)"
            )
        _add_tokens(tokenizer, vocabulary)
        bos_token = None if bos_id is None else vocabulary.texts[bos_id]
        add_bos = _flag(metadata, "add_bos_token", default=adds_bos and bos_token is not None)
        if add_bos and bos_token is not None:
            tokenizer.post_processor = processors.TemplateProcessing(
                single=[bos_token, "$A"], special_tokens=[(bos_token, bos_id)]
            )
        tokenizer_json = tokenizer.to_str()
    except (ValueError, TypeError) as error:
        raise CheckpointError(
            f"the GGUF tokenizer contradicts itself: {error}; convert or fetch the model again"
        ) from error
    named = (_token_id(metadata, key, vocabulary) for key in _END_KEYS)
    return TokenizerFiles(
        tokenizer_json=tokenizer_json,
        chat_template=_chat_template(metadata),
        bos_token=bos_token,
        eos_token_ids=end_token_ids((i for i in named if i is not None), vocabulary.ids(_Kind.CONTROL)),
        add_bos=add_bos,
    )
