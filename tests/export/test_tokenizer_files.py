"""What is read of a Hugging Face folder's tokenizer, and how a faulty folder is explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, processors

from pilotfish.export.tokenizer_files import TokenizerFiles, end_token_ids, tokenizer_from_folder
from pilotfish.runtime.errors import CheckpointError

VOCABULARY = {"a": 0, "b": 1, "<s>": 2, "</s>": 3, "<|im_end|>": 4, "<|start|>": 5}


def tokenizer_json(*, leading: str | None = None) -> str:
    tokenizer = Tokenizer(models.BPE(vocab=VOCABULARY, merges=[]))
    tokenizer.add_special_tokens(list(VOCABULARY)[2:])
    if leading is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[leading, "$A"], special_tokens=[(leading, VOCABULARY[leading])]
        )
    return str(tokenizer.to_str())


def write(folder: Path, *, leading: str | None = None, **files: Any) -> Path:
    (folder / "tokenizer.json").write_text(tokenizer_json(leading=leading), encoding="utf-8")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_a_bare_tokenizer_json_is_enough(tmp_path: Path) -> None:
    files = tokenizer_from_folder(write(tmp_path))
    assert files == TokenizerFiles(tokenizer_json(), None, None, (3, 4), add_bos=False)


def test_ends_come_from_all_files_the_models_own_first(tmp_path: Path) -> None:
    write(
        tmp_path,
        tokenizer_config={"eos_token": "<|im_end|>"},
        generation_config={"eos_token_id": [1, 4]},
        config={"eos_token_id": 0},
    )
    assert tokenizer_from_folder(tmp_path).eos_token_ids == (4, 1, 0, 3)


def test_ends_keep_their_order_once() -> None:
    assert end_token_ids([7, 2, 7], {"</s>": 2, "<|endoftext|>": 1, "<other>": 5}) == (7, 2, 1)


@pytest.mark.parametrize("bos_token", ["<s>", {"content": "<s>", "lstrip": False}])
def test_begin_of_text_is_a_string_or_an_object(tmp_path: Path, bos_token: object) -> None:
    write(tmp_path, tokenizer_config={"bos_token": bos_token, "add_bos_token": True})
    files = tokenizer_from_folder(tmp_path)
    assert (files.bos_token, files.add_bos) == ("<s>", True)


@pytest.mark.parametrize(
    ("config", "leading", "expected"),
    [
        ({"bos_token": "<s>"}, None, ("<s>", False)),
        ({"bos_token": "<s>"}, "<s>", ("<s>", True)),
        ({}, "<s>", ("<s>", True)),
        ({"bos_token": "<s>"}, "<|start|>", ("<s>", False)),
        ({"bos_token": "<s>", "add_bos_token": False}, "<s>", ("<s>", False)),
        ({"bos_token": None, "add_bos_token": False}, None, (None, False)),
    ],
)
def test_the_post_processor_decides_where_the_configuration_is_silent(
    tmp_path: Path, config: dict[str, object], leading: str | None, expected: tuple[str | None, bool]
) -> None:
    files = tokenizer_from_folder(write(tmp_path, leading=leading, tokenizer_config=config))
    assert (files.bos_token, files.add_bos) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ x }}", "{{ x }}"),
        ([{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}], "d"),
        (None, None),
    ],
)
def test_the_template_of_the_configuration(tmp_path: Path, template: object, expected: str | None) -> None:
    write(tmp_path, tokenizer_config={"chat_template": template})
    assert tokenizer_from_folder(tmp_path).chat_template == expected


def test_a_template_file_wins_over_the_configuration(tmp_path: Path) -> None:
    write(tmp_path, tokenizer_config={"chat_template": "old"}, chat_template={"chat_template": "json"})
    assert tokenizer_from_folder(tmp_path).chat_template == "old"
    (tmp_path / "chat_template.jinja").write_text("new", encoding="utf-8")
    assert tokenizer_from_folder(tmp_path).chat_template == "new"


def test_a_template_in_a_json_file(tmp_path: Path) -> None:
    write(tmp_path, chat_template={"chat_template": "json"})
    assert tokenizer_from_folder(tmp_path).chat_template == "json"


def test_a_missing_tokenizer_json_names_the_folder_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json in .*save_pretrained") as raised:
        tokenizer_from_folder(tmp_path)
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize("name", ["tokenizer", "tokenizer_config", "generation_config", "config"])
def test_malformed_json_names_file_and_position(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    (tmp_path / f"{name}.json").write_text('{"a": 1,\n "b" 2}', encoding="utf-8")
    with pytest.raises(CheckpointError, match=rf"{name}\.json' is not valid JSON at line 2, column 6"):
        tokenizer_from_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer", {"model": {"type": "Other"}}, r"tokenizer\.json' is JSON but no tokenizer"),
        ("tokenizer_config", [1], r"holds a JSON list, not an object"),
        ("tokenizer_config", {"bos_token": 3}, r"bos_token in .* is 3; write it"),
        ("tokenizer_config", {"add_bos_token": True}, r"names none; give"),
        ("tokenizer_config", {"chat_template": [{"name": "rag", "template": "t"}]}, r"\['rag'\]\); name"),
        ("tokenizer_config", {"chat_template": 3}, r"no template named 'default'"),
        ("generation_config", {"eos_token_id": "2"}, r"eos_token_id in .* is '2'; write it"),
        ("generation_config", {"eos_token_id": [2, -1]}, r"is \[2, -1\]"),
        ("config", {"eos_token_id": True}, r"is True"),
    ],
)
def test_a_wrong_value_is_named(tmp_path: Path, name: str, content: object, message: str) -> None:
    write(tmp_path)
    (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CheckpointError, match=message):
        tokenizer_from_folder(tmp_path)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "tokenizer_config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json' is not UTF-8 text at byte 7"):
        tokenizer_from_folder(tmp_path)
