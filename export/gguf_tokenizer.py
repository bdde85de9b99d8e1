"""The tokenizer of a GGUF file, rebuilt from the file's metadata.

A GGUF keeps the vocabulary, not the tokenizer: `tokenizer.ggml.model` names the algorithm, and for byte-level
BPE `tokenizer.ggml.pre` names the rule by which text is cut before merging. The rules below are those of the
models' own `tokenizer.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
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
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LETTERS_AND_MARKS = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
_SYMBOLS_WITHOUT_MARKS = r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"

_GPT2 = _Rule()
_DIGITS_THEN_GPT2 = _Rule(isolates_digits=True)
_QWEN2 = _Rule("|".join((_CONTRACTIONS, _LETTERS, r"\p{N}", _SYMBOLS, _SPACES)), composes=True)
_QWEN35 = _Rule("|".join((_CONTRACTIONS, _LETTERS_AND_MARKS, r"\p{N}", _SYMBOLS_WITHOUT_MARKS, _SPACES)), composes=True)
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
    """Token texts and kinds by id."""

    texts: list[str]
    kinds: list[int]

    def ids(self, *kinds: _Kind) -> dict[str, int]:
        """Text → id of the tokens of these kinds."""
        pairs = enumerate(zip(self.texts, self.kinds, strict=True))
        return {text: i for i, (text, kind) in pairs if kind in kinds}

    def unpadded_ids(self) -> dict[str, int]:
        """Text → id of all tokens but the unused ones at the end, which pad the model's width."""
        used = (i for i, kind in enumerate(self.kinds) if kind != _Kind.UNUSED)
        return {text: i for i, text in enumerate(self.texts[: max(used, default=-1) + 1])}


def tokenizer_from_gguf(metadata: Mapping[str, object]) -> TokenizerFiles:
    """Build the tokenizer that a GGUF file's metadata describes.

    Byte-level BPE (`gpt2`) with a known pre-tokenizer, and SentencePiece BPE (`llama`). Control tokens become
    special tokens, user-defined ones plain added tokens; unused ids at the end get no token. Raises
    `CheckpointError` for another algorithm or pre-tokenizer, and for metadata that is missing or contradicts
    itself.
    """
    algorithm = _string(metadata, "model")
    if algorithm not in ("gpt2", "llama"):
        raise CheckpointError(
            f"{_KEY}model is {algorithm!r}, which export does not support; use a model whose tokenizer is "
            "'gpt2' (byte-level BPE) or 'llama' (SentencePiece BPE)"
        )
    vocabulary = _vocabulary(metadata)
    bos_id = _token_id(metadata, "bos_token_id", vocabulary)
    if algorithm == "gpt2":
        rule = _rule(_string(metadata, "pre"))
        tokenizer, adds_bos = _byte_level(metadata, vocabulary, rule), rule.adds_bos
    else:
        tokenizer, adds_bos = _sentencepiece(metadata, vocabulary), True
    _add_tokens(tokenizer, vocabulary)
    add_bos = _flag(metadata, "add_bos_token", default=adds_bos and bos_id is not None)
    bos_token = None if bos_id is None else vocabulary.texts[bos_id]
    if add_bos and bos_token is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=["bos", "$A"], special_tokens=[{"id": "bos", "ids": [bos_id], "tokens": [bos_token]}]
        )
    ends = (_token_id(metadata, key, vocabulary) for key in _END_KEYS)
    template = metadata.get("tokenizer.chat_template")
    return TokenizerFiles(
        tokenizer_json=tokenizer.to_str(),
        chat_template=template if isinstance(template, str) else None,
        bos_token=bos_token,
        eos_token_ids=end_token_ids((i for i in ends if i is not None), vocabulary.ids(_Kind.CONTROL)),
        add_bos=add_bos,
    )


def _byte_level(metadata: Mapping[str, object], vocabulary: _Vocabulary, rule: _Rule) -> Tokenizer:
    ids = vocabulary.unpadded_ids()
    merges = _merges(metadata, ids)
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=rule.ignores_merges))
    cuts: list[pre_tokenizers.PreTokenizer] = []
    if rule.isolates_digits:
        cuts.append(pre_tokenizers.Digits(individual_digits=True))
    if rule.split is not None:
        cuts.append(pre_tokenizers.Split(Regex(rule.split), behavior="isolated"))
    cuts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule.split is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    if rule.composes:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(metadata: Mapping[str, object], vocabulary: _Vocabulary) -> Tokenizer:
    ids = vocabulary.unpadded_ids()
    if _KEY + "merges" in metadata:
        merges = _merges(metadata, ids)
    else:
        merges = _merges_from_scores(vocabulary, _numbers(metadata, "scores", len(vocabulary.texts)))
    unknown = next(iter(vocabulary.ids(_Kind.UNKNOWN)), None)
    has_bytes = bool(vocabulary.ids(_Kind.BYTE))
    tokenizer = Tokenizer(
        models.BPE(vocab=ids, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=has_bytes)
    )
    spaces = normalizers.Replace(" ", _WORD_MARK)
    decoding = [decoders.Replace(_WORD_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if _flag(metadata, "add_space_prefix", default=True):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_WORD_MARK), spaces])
        tokenizer.decoder = decoders.Sequence([*decoding, decoders.Strip(" ", 1, 0)])
    else:
        tokenizer.normalizer = spaces
        tokenizer.decoder = decoders.Sequence(decoding)
    return tokenizer


def _merges_from_scores(vocabulary: _Vocabulary, scores: list[float]) -> list[tuple[str, str]]:
    """Every way to join two pieces into a third, the best-scored result first.

    SentencePiece knows no merges: it joins the neighbours whose result scores highest, and joins normal pieces
    only. Among the ways to one result the longest left part goes first, as in transformers' conversions.
    """
    normal = {text: scores[i] for text, i in vocabulary.ids(_Kind.NORMAL).items()}
    if len(normal) > 1 and len(set(normal.values())) == 1:
        raise CheckpointError(
            f"all scores in {_KEY}scores are {next(iter(normal.values()))}, so the order of merges is lost; "
            "convert the model again from its tokenizer.model"
        )
    splits = [
        (score, cut, len(text) - cut, text)
        for text, score in normal.items()
        for cut in range(1, len(text))
        if text[:cut] in normal and text[cut:] in normal
    ]
    splits.sort(key=lambda split: split[:3], reverse=True)
    return [(text[:cut], text[cut:]) for _, cut, _, text in splits]


def _add_tokens(tokenizer: Tokenizer, vocabulary: _Vocabulary) -> None:
    special = vocabulary.ids(_Kind.CONTROL, _Kind.UNKNOWN)
    plain = vocabulary.ids(_Kind.USER_DEFINED)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in plain])


def _rule(name: str) -> _Rule:
    if name not in _RULES:
        raise CheckpointError(
            f"{_KEY}pre is {name!r}, a pre-tokenizer export does not know; it knows {', '.join(_RULES)}. Export "
            "from the model's Hugging Face folder instead, which holds a tokenizer.json"
        )
    return _RULES[name]


def _vocabulary(metadata: Mapping[str, object]) -> _Vocabulary:
    texts = _strings(metadata, "tokens")
    kinds = [int(kind) for kind in _numbers(metadata, "token_type", len(texts))]
    unknown = set(kinds) - set(_Kind)
    if unknown:
        raise _wrong("token_type", sorted(unknown), "only kinds 1 to 6")
    return _Vocabulary(texts, kinds)


def _merges(metadata: Mapping[str, object], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    for rank, merge in enumerate(_strings(metadata, "merges")):
        left, space, right = merge.partition(" ")
        if not space or left not in ids or right not in ids or left + right not in ids:
            raise CheckpointError(
                f"merge {rank} in {_KEY}merges is {merge!r}, which does not join two tokens of the vocabulary "
                "into a third; convert or fetch the model again"
            )
        merges.append((left, right))
    return merges


def _value(metadata: Mapping[str, object], key: str) -> object:
    if _KEY + key not in metadata:
        raise CheckpointError(
            f"tokenizer missing: the GGUF has no {_KEY}{key}; fetch a complete model file, or convert the model "
            "again with a current converter"
        )
    return metadata[_KEY + key]


def _wrong(key: str, value: object, wanted: str) -> CheckpointError:
    return CheckpointError(f"{_KEY}{key} is {value!r}, not {wanted}; convert or fetch the model again")


def _string(metadata: Mapping[str, object], key: str) -> str:
    value = _value(metadata, key)
    if not isinstance(value, str):
        raise _wrong(key, value, "a string")
    return value


def _strings(metadata: Mapping[str, object], key: str) -> list[str]:
    value = _value(metadata, key)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _wrong(key, type(value).__name__, "an array of strings")
    return value


def _numbers(metadata: Mapping[str, object], key: str, length: int) -> list[float]:
    numbers = np.asarray(_value(metadata, key))
    if numbers.shape != (length,) or numbers.dtype.kind not in "iuf":
        raise _wrong(key, f"{numbers.dtype} of shape {numbers.shape}", f"{length} numbers, one for each token")
    listed: list[float] = numbers.tolist()
    return listed


def _flag(metadata: Mapping[str, object], key: str, *, default: bool) -> bool:
    value = metadata.get(_KEY + key, default)
    if not isinstance(value, bool):
        raise _wrong(key, value, "true or false")
    return value


def _token_id(metadata: Mapping[str, object], key: str, vocabulary: _Vocabulary) -> int | None:
    value = metadata.get(_KEY + key)
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < len(vocabulary.texts):
        raise _wrong(key, value, f"a token id below {len(vocabulary.texts)}")
    return value
