"""Tokenizers beside those of the tiny models: nearly the same, with other ids, and of other kinds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from pilotfish.export.tokenizer_files import TokenizerFiles

TEXT = (
    "Sharks are larger than pilot fish, and they swim together: the pilot fish leads. It's 12 o'clock, 345 fish, "
    "größer ähnlich 🦈 🐟 鮫の前を泳ぐ魚 def mean(values):\n    total = 0\n    return total / len(values)\n"
)
SPECIALS = ["<|start|>", "<|end|>"]


def without_texts(tokenizer_json: str, num_tokens: int) -> str:
    """Other texts, and nothing that says what bytes a token stands for: such a draft can pass neither ids nor text."""
    return json.dumps(json.loads(with_other_texts(tokenizer_json, num_tokens)) | {"decoder": None})


def with_other_texts(tokenizer_json: str, number: int) -> str:
    """The tokenizer with the texts of its last `number` tokens changed."""
    tokenizer = json.loads(tokenizer_json)
    ids = tokenizer["model"]["vocab"]
    for text in sorted(ids, key=ids.get)[-number:]:
        ids[f"~{text}~"] = ids.pop(text)
    tokenizer["model"]["merges"] = []
    return json.dumps(tokenizer)


def with_other_ids(files: TokenizerFiles, seed: int = 0) -> tuple[TokenizerFiles, np.ndarray]:
    """The same tokenizer with its ids in another order, and the old id of each new one."""
    values = json.loads(files.tokenizer_json)
    num_ids = Tokenizer.from_str(files.tokenizer_json).get_vocab_size()
    old_ids = np.random.default_rng(seed).permutation(num_ids)
    new_ids = np.argsort(old_ids)
    ids: Mapping[str, int] = values["model"]["vocab"]
    values["model"]["vocab"] = {text: int(new_ids[i]) for text, i in ids.items()}
    for token in values["added_tokens"]:
        token["id"] = int(new_ids[token["id"]])
    values["added_tokens"].sort(key=lambda token: token["id"])
    ends = tuple(int(new_ids[i]) for i in files.eos_token_ids)
    return replace(files, tokenizer_json=json.dumps(values), eos_token_ids=ends), old_ids


def byte_level(vocab_size: int = 300, specials: list[str] = SPECIALS, text: str = TEXT) -> TokenizerFiles:
    """Byte-level BPE, learnt from another text than that of the tiny models."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator([text] * 4, trainer)
    return _files(tokenizer, specials)


def sentencepiece(vocab_size: int = 310, specials: list[str] = SPECIALS) -> TokenizerFiles:
    """BPE of characters with bytes for the rest and a space in front of a text, as Llama 2 has."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 256, special_tokens=["<unk>", *specials], limit_alphabet=30, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT.replace("\n", " ")] * 4, trainer)
    values = json.loads(tokenizer.to_str())
    ids = values["model"]["vocab"]
    for byte in range(256):
        ids[f"<0x{byte:02X}>"] = len(ids)
    return _files(Tokenizer.from_str(json.dumps(values)), specials)


def unigram(vocab_size: int = 120, specials: list[str] = SPECIALS) -> TokenizerFiles:
    """A unigram model that knows no bytes and normalizes its text, as T5 has."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size, special_tokens=["<unk>", *specials], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    return _files(tokenizer, specials)


def characters(texts: str) -> str:
    """A tokenizer.json of single letters and of pairs of them, with these ids in this order."""
    ids = {text: i for i, text in enumerate(texts.split())}
    tokenizer = Tokenizer(models.BPE(ids, [tuple(text) for text in ids if len(text) == 2]))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer.to_str()


KINDS = {"byte-level": byte_level, "sentencepiece": sentencepiece, "unigram": unigram}


def _files(tokenizer: Tokenizer, specials: list[str]) -> TokenizerFiles:
    ends = (tokenizer.token_to_id(specials[-1]),)
    return TokenizerFiles(tokenizer.to_str(), None, bos_token=None, eos_token_ids=ends, add_bos=False)
