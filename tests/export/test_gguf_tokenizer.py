"""A tokenizer rebuilt from GGUF metadata gives the ids of the tokenizer the metadata was made from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pilotfish.export.gguf import GgufFile
from pilotfish.export.gguf_tokenizer import tokenizer_from_gguf
from pilotfish.runtime.errors import CheckpointError

NUM_TOKENS = 400
SENTENCES = [
    "The pilot fish swims ahead of the shark, and the shark follows.",
    "def propose(committed):\n    return committed[-1:] * 4  # four drafts\n",
    "Die Größe zählt: 1234567890 Fälle, 3.14159 und ½.",
    "世界你好，今天天气不错。こんにちは。",
    "🎉🎉 emoji 👩‍👩‍👧 and é",
]
NASTY_TEXTS = [
    "",
    " ",
    " \n \t\n  x",
    "def f(x):\n    return x**2\r\n\r\n",
    "it's DON'T we'll I'VE",
    "2024-01-01 ½ ²³ ١٢٣ Ⅷ",
    "你好，世界！안녕하세요",
    "👩‍👩‍👧‍👦🏳️‍🌈😀",
    "cafe\u0301 \u1112\u1161\u11ab",
    "สวัสดี नमस्ते عِبْ",
    "    " * 9 + "x",
    "\u00a0\u3000x\u200b\x00",
    "<|im_start|>user\nhi<|im_end|>\n",
]


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=NUM_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES * 4, trainer)
    return tokenizer


def byte_level_metadata(tokenizer: Tokenizer, pre: str = "gpt-2") -> dict[str, object]:
    model = json.loads(tokenizer.to_str())["model"]
    texts = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array([3] * 3 + [1] * (len(texts) - 3), np.int32),
        "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def sentencepiece_metadata(scores: dict[str, float], **extra: object) -> dict[str, object]:
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *scores]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array([2, 3, 3] + [6] * 256 + [1] * len(scores), np.int32),
        "tokenizer.ggml.scores": np.array([0.0] * 259 + list(scores.values()), np.float32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    } | {f"tokenizer.ggml.{key}": value for key, value in extra.items()}


def load(metadata: dict[str, object]) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_from_gguf(metadata).tokenizer_json)


def tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    return list(tokenizer.encode(text, add_special_tokens=False).tokens)


GREETING = {
    "▁": -9.0,
    "h": -9.1,
    "e": -9.2,
    "l": -9.3,
    "o": -9.4,
    "he": -1.0,
    "ll": -2.0,
    "hell": -3.0,
    "hello": -4.0,
    "▁hello": -5.0,
    "▁▁": -6.0,
}


class TestByteLevel:
    def test_random_text_gives_equal_ids_and_comes_back(self, trained: Tokenizer) -> None:
        rebuilt = load(byte_level_metadata(trained))

        @settings(max_examples=200, deadline=None)
        @given(st.text(max_size=60) | st.text("ab19 \n\té你🎉\u0301<|>", max_size=60))
        def holds(text: str) -> None:
            ids = rebuilt.encode(text).ids
            assert ids == trained.encode(text).ids
            assert rebuilt.decode(ids) == text

        holds()

    @pytest.mark.parametrize(
        ("pre", "text", "pieces"),
        [
            ("gpt-2", "it's 1234", ["it", "'s", " 1234"]),
            ("default", "a 12", ["a", " 12"]),
            ("smollm", "a 123b", ["a", " ", "1", "2", "3", "b"]),
            ("starcoder", "a 12", ["a", " ", "1", "2"]),
            ("smollm", "a ½b", ["a", " ", "½", "b"]),
            ("qwen2", "IT'S 12\n\n x", ["IT", "'S", " ", "1", "2", "\n\n", " x"]),
            ("qwen2", "नी_a", ["न", "ी_", "a"]),
            ("qwen35", "नी_a", ["नी", "_a"]),
            ("qwen35", "a 12  b", ["a", " ", "1", "2", " ", " b"]),
            ("llama-bpe", "a 12345!!\n", ["a", " ", "123", "45", "!!\n"]),
            ("llama3", "I'LL", ["I", "'LL"]),
            ("llama-v3", "1234", ["123", "4"]),
        ],
    )
    def test_text_is_cut_by_the_named_rule(self, trained: Tokenizer, pre: str, text: str, pieces: list[str]) -> None:
        cut = load(byte_level_metadata(trained, pre)).pre_tokenizer.pre_tokenize_str(text)
        spans = [span for _, span in cut]
        assert [text[start:end] for start, end in spans] == pieces

    def test_qwen_composes_combining_marks_and_gpt2_does_not(self, trained: Tokenizer) -> None:
        decomposed, composed = "e\u0301", "\u00e9"
        qwen, gpt2 = (load(byte_level_metadata(trained, pre)) for pre in ("qwen2", "gpt-2"))
        assert qwen.encode(decomposed).ids == qwen.encode(composed).ids
        assert gpt2.encode(decomposed).ids != gpt2.encode(composed).ids

    def test_control_tokens_are_special_and_user_defined_ones_are_not(self, trained: Tokenizer) -> None:
        metadata = byte_level_metadata(trained)
        metadata["tokenizer.ggml.token_type"] = np.array([3, 4, 3] + [1] * (trained.get_vocab_size() - 3))
        rebuilt = load(metadata)
        ids = rebuilt.encode("<|endoftext|>a<|im_start|>").ids
        assert ids[0] == 0
        assert ids[-1] == 1
        assert rebuilt.decode(ids, skip_special_tokens=True) == "a<|im_start|>"

    def test_unused_ids_at_the_end_get_no_token(self, trained: Tokenizer) -> None:
        metadata: dict[str, Any] = byte_level_metadata(trained)
        texts, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
        width = len(texts)
        metadata["tokenizer.ggml.tokens"] = [*texts, "[PAD1]", "last", "[PAD2]", "[PAD3]"]
        metadata["tokenizer.ggml.token_type"] = np.append(kinds, [5, 4, 5, 5])
        rebuilt = load(metadata)
        assert rebuilt.encode("last").ids == [width + 1]
        assert rebuilt.get_vocab_size() == width + 2

    def test_llama3_takes_a_whole_word_without_its_merges(self, trained: Tokenizer) -> None:
        metadata: dict[str, Any] = byte_level_metadata(trained)
        metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "zqx"]
        metadata["tokenizer.ggml.token_type"] = np.append(metadata["tokenizer.ggml.token_type"], 1)
        assert tokens(load(metadata), "zqx") == ["z", "q", "x"]
        assert tokens(load(metadata | {"tokenizer.ggml.pre": "llama-bpe"}), "zqx") == ["zqx"]

    def test_begin_of_text_is_added_where_the_model_does(self, trained: Tokenizer) -> None:
        gpt2 = tokenizer_from_gguf(byte_level_metadata(trained))
        llama = tokenizer_from_gguf(byte_level_metadata(trained, "llama-bpe"))
        assert not gpt2.add_bos
        assert (llama.add_bos, llama.bos_token) == (True, "<|im_start|>")
        assert Tokenizer.from_str(llama.tokenizer_json).encode("a").ids[0] == 1
        explicit = byte_level_metadata(trained, "llama-bpe") | {"tokenizer.ggml.add_bos_token": False}
        assert not tokenizer_from_gguf(explicit).add_bos

    def test_a_begin_of_text_with_a_colon_is_added(self, trained: Tokenizer) -> None:
        metadata: dict[str, Any] = byte_level_metadata(trained, "llama-bpe")
        metadata["tokenizer.ggml.tokens"] = ["a", "<|x:bos|>", *metadata["tokenizer.ggml.tokens"][2:]]
        metadata["tokenizer.ggml.merges"] = []
        assert load(metadata).encode("b").ids[0] == 1

    def test_ends_are_named_ones_first_then_well_known_control_tokens(self, trained: Tokenizer) -> None:
        metadata = byte_level_metadata(trained) | {"tokenizer.ggml.eot_token_id": 9}
        assert tokenizer_from_gguf(metadata).eos_token_ids == (2, 9, 0)

    def test_the_chat_template_is_kept(self, trained: Tokenizer) -> None:
        metadata = byte_level_metadata(trained)
        assert tokenizer_from_gguf(metadata).chat_template is None
        metadata["tokenizer.chat_template"] = "{{ messages }}"
        assert tokenizer_from_gguf(metadata).chat_template == "{{ messages }}"


class TestSentencePiece:
    def test_the_best_scored_result_is_merged_first(self) -> None:
        letters = {"a": -9.0, "b": -9.1, "c": -9.2}
        left = sentencepiece_metadata(letters | {"ab": -1.0, "bc": -2.0}, add_space_prefix=False)
        right = sentencepiece_metadata(letters | {"ab": -2.0, "bc": -1.0}, add_space_prefix=False)
        assert tokens(load(left), "abc") == ["ab", "c"]
        assert tokens(load(right), "abc") == ["a", "bc"]

    def test_a_space_prefix_is_added_by_default_and_stripped_again(self) -> None:
        rebuilt = load(sentencepiece_metadata(GREETING))
        assert tokens(rebuilt, "hello hello") == ["▁hello", "▁hello"]
        assert rebuilt.decode(rebuilt.encode("hello  hello").ids) == "hello  hello"

    def test_no_space_prefix_where_the_model_wants_none(self) -> None:
        rebuilt = load(sentencepiece_metadata(GREETING, add_space_prefix=False))
        assert tokens(rebuilt, "hello hello") == ["hello", "▁hello"]
        assert rebuilt.decode(rebuilt.encode(" hello").ids) == " hello"

    @given(st.text("helo é你🎉\n", max_size=40))
    @settings(max_examples=100, deadline=None)
    def test_unknown_characters_become_bytes_and_come_back(self, text: str) -> None:
        rebuilt = load(sentencepiece_metadata(GREETING))
        assert rebuilt.decode(rebuilt.encode(text).ids) == text

    def test_the_name_of_a_byte_in_text_is_not_the_byte(self) -> None:
        rebuilt = load(sentencepiece_metadata(GREETING | {"<": -8.0, "0x0A>": -8.1}, add_space_prefix=False))
        assert "<0x0A>" not in tokens(rebuilt, "<0x0A>")

    def test_begin_of_text_is_added_by_default(self) -> None:
        files = tokenizer_from_gguf(sentencepiece_metadata(GREETING))
        assert (files.add_bos, files.bos_token, files.eos_token_ids) == (True, "<s>", (2,))
        assert Tokenizer.from_str(files.tokenizer_json).encode("hello").tokens == ["<s>", "▁hello"]

    def test_without_a_begin_of_text_token_none_is_added(self) -> None:
        metadata = sentencepiece_metadata(GREETING)
        del metadata["tokenizer.ggml.bos_token_id"]
        assert not tokenizer_from_gguf(metadata).add_bos

    def test_merges_in_the_file_win_over_scores(self) -> None:
        metadata = sentencepiece_metadata({"a": 0.0, "b": 0.0, "ab": 0.0}, merges=["a b"], add_space_prefix=False)
        assert tokens(load(metadata), "ab") == ["ab"]

    def test_equal_scores_are_refused(self) -> None:
        with pytest.raises(CheckpointError, match=r"all scores .* are -1000\.0.*tokenizer\.model"):
            tokenizer_from_gguf(sentencepiece_metadata({"a": -1000.0, "b": -1000.0}))


class TestRefusals:
    @pytest.mark.parametrize("key", ["model", "pre", "tokens", "token_type", "merges"])
    def test_a_missing_key_is_named(self, trained: Tokenizer, key: str) -> None:
        metadata = byte_level_metadata(trained)
        del metadata[f"tokenizer.ggml.{key}"]
        with pytest.raises(CheckpointError, match=rf"tokenizer missing.*tokenizer\.ggml\.{key}; fetch"):
            tokenizer_from_gguf(metadata)

    def test_missing_scores_are_named(self) -> None:
        metadata = sentencepiece_metadata(GREETING)
        del metadata["tokenizer.ggml.scores"]
        with pytest.raises(CheckpointError, match=r"tokenizer missing.*scores"):
            tokenizer_from_gguf(metadata)

    @pytest.mark.parametrize("algorithm", ["bert", "t5", "rwkv"])
    def test_another_algorithm_is_named(self, algorithm: str) -> None:
        with pytest.raises(CheckpointError, match=rf"'{algorithm}'.*'gpt2'.*'llama'"):
            tokenizer_from_gguf({"tokenizer.ggml.model": algorithm})

    def test_an_unknown_pre_tokenizer_is_named_with_the_known_ones(self, trained: Tokenizer) -> None:
        with pytest.raises(CheckpointError, match=r"'tekken'.*gpt-2.*llama-bpe.*qwen2.*smollm.*tokenizer\.json"):
            tokenizer_from_gguf(byte_level_metadata(trained, "tekken"))

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("model", 3, "is 3, not a string"),
            ("tokens", 3, "not an array of strings"),
            ("tokens", [1, 2], "not an array of strings"),
            ("token_type", np.ones(3), r"shape \(3,\).* numbers, one for each token"),
            ("token_type", np.full(NUM_TOKENS, 9), r"\[9\], not only kinds 1 to 6"),
            ("merges", ["ab"], r"merge 0 .*'ab'"),
            ("merges", ["zq xx"], r"merge 0 .*'zq xx'."),
            ("bos_token_id", 4294967295, f"4294967295, not a token id below {NUM_TOKENS}"),
            ("eos_token_id", "2", "'2', not a token id"),
            ("add_bos_token", 1, "is 1, not true or false"),
        ],
    )
    def test_a_wrong_value_is_named(self, trained: Tokenizer, key: str, value: object, message: str) -> None:
        metadata = byte_level_metadata(trained) | {f"tokenizer.ggml.{key}": value}
        assert trained.get_vocab_size() == NUM_TOKENS
        with pytest.raises(CheckpointError, match=message):
            tokenizer_from_gguf(metadata)

    def test_begin_of_text_without_a_token_is_refused(self, trained: Tokenizer) -> None:
        metadata = byte_level_metadata(trained) | {"tokenizer.ggml.add_bos_token": True}
        del metadata["tokenizer.ggml.bos_token_id"]
        with pytest.raises(CheckpointError, match="add_bos_token"):
            tokenizer_from_gguf(metadata)


@pytest.mark.real_model
def test_smollm_gives_the_ids_of_transformers() -> None:
    default = Path.home() / ".cache/pilotfish-dev-models"
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    folder = Path(os.environ.get("PILOTFISH_DEV_MODELS", default))
    if not (folder / name).exists():
        pytest.skip(f"{folder / name} is not there; set PILOTFISH_DEV_MODELS to the folder that holds it")
    from transformers.integrations.ggml import convert_gguf_tokenizer

    with GgufFile(folder / name) as file:
        metadata = file.metadata
    ours = load(metadata)
    keys = ("tokens", "token_type", "merges", "bos_token_id", "eos_token_id")
    described = {key: metadata[f"tokenizer.ggml.{key}"] for key in keys}
    theirs, _ = convert_gguf_tokenizer("llama", described | {"tokenizer_type": "gpt2"})
    # transformers drops SmolLM's first rule: each digit stands alone.
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), theirs.pre_tokenizer]
    )
    for text in (*NASTY_TEXTS, *SENTENCES):
        ids = ours.encode(text, add_special_tokens=False).ids
        assert ids == theirs.encode(text, add_special_tokens=False).ids
        assert ours.decode(ids, skip_special_tokens=False) == text
