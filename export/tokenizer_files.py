"""What a bundle keeps of a tokenizer, and how it is read from a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from pilotfish.runtime.errors import CheckpointError

END_TOKEN_TEXTS = frozenset(
    {
        "</s>",
        "<end_of_turn>",
        "<eos>",
        "<|end_of_text|>",
        "<|end|>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<|eot_id|>",
        "<|im_end|>",
    }
)


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """A tokenizer and what a chat needs beside it.

    `tokenizer_json` is a file that `tokenizers.Tokenizer.from_str` reads. `chat_template` is Jinja source.
    `eos_token_ids` is every id that ends a generation, the model's own end of text first. `add_bos` says that
    plain text (without a template, which writes its own) begins with `bos_token`; the JSON may hold a
    post-processor that adds it too, so encode without special tokens and let `add_bos` decide.
    """

    tokenizer_json: str
    chat_template: str | None
    bos_token: str | None
    eos_token_ids: tuple[int, ...]
    add_bos: bool

    def __post_init__(self) -> None:
        """Raise `CheckpointError` where a begin-of-text token is to be added and none is named."""
        if self.add_bos and self.bos_token is None:
            raise CheckpointError(
                "the tokenizer says that text begins with a begin-of-text token (add_bos_token is true) but "
                "names none; give the model's tokenizer a bos_token, or set add_bos_token to false"
            )


def end_token_ids(named: Iterable[int], special_tokens: Mapping[str, int]) -> tuple[int, ...]:
    """The ids a model names as ends, in its order, then the special tokens whose text is a well-known end."""
    known = sorted(token_id for text, token_id in special_tokens.items() if text in END_TOKEN_TEXTS)
    return tuple(dict.fromkeys((*named, *known)))


def tokenizer_from_folder(path: str | Path) -> TokenizerFiles:
    """Read the tokenizer of a Hugging Face folder; `tokenizer.json` is kept as it stands.

    Raises `CheckpointError` where `tokenizer.json` is missing, or where a file is not what it should be.
    """
    folder = Path(path)
    tokenizer_json = _read_text(folder / "tokenizer.json")
    if tokenizer_json is None:
        raise CheckpointError(
            f"there is no tokenizer.json in {str(folder)!r}; fetch the model again with that file, or write one "
            "from the model's slow tokenizer with transformers: "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    tokenizer = _load(tokenizer_json, folder / "tokenizer.json")
    config_path = folder / "tokenizer_config.json"
    config = _read_object(config_path)
    bos_token = _token_text(config, "bos_token", config_path)
    leading = _leading_special_token(tokenizer)
    add_bos = config.get("add_bos_token")
    if not isinstance(add_bos, bool):
        add_bos = leading is not None and bos_token in (None, leading)
    specials = {t.content: i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special}
    return TokenizerFiles(
        tokenizer_json=tokenizer_json,
        chat_template=_chat_template(folder, config),
        bos_token=bos_token or leading,
        eos_token_ids=end_token_ids(_named_ends(folder, config, tokenizer), specials),
        add_bos=add_bos,
    )


def _read_text(path: Path) -> str | None:
    """The file's text, or None where there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{str(path)!r} is not UTF-8 text at byte {error.start}; fetch the file again") from error


def _read_object(path: Path) -> dict[str, object]:
    """The JSON object in a file; empty where there is no such file."""
    text = _read_text(path)
    if text is None:
        return {}
    value = _parse(text, path)
    if not isinstance(value, dict):
        raise CheckpointError(f"{str(path)!r} holds a JSON {type(value).__name__}, not an object; fetch the file again")
    return value


def _parse(text: str, path: Path) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise CheckpointError(
            f"{str(path)!r} is not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}); "
            "fetch the file again"
        ) from error


def _load(tokenizer_json: str, path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_str(tokenizer_json)
    except Exception as error:  # tokenizers raises bare Exception
        _parse(tokenizer_json, path)
        raise CheckpointError(
            f"{str(path)!r} is JSON but no tokenizer ({error}); fetch the file again, or update the tokenizers "
            "package if the model is newer than it"
        ) from error


def _leading_special_token(tokenizer: Tokenizer) -> str | None:
    """What the tokenizer's own post-processor puts before a text."""
    plain = tokenizer.encode("a", add_special_tokens=False).tokens
    tokens = tokenizer.encode("a").tokens
    if not plain or tokens[0] == plain[0]:
        return None
    return str(tokens[0])


def _token_text(config: Mapping[str, object], key: str, path: Path) -> str | None:
    value = config.get(key)
    if isinstance(value, dict):
        value = value.get("content")
    if value is None or isinstance(value, str):
        return value
    raise CheckpointError(f'{key} in {str(path)!r} is {value!r}; write it as a string or as {{"content": string}}')


def _chat_template(folder: Path, config: Mapping[str, object]) -> str | None:
    template = _read_text(folder / "chat_template.jinja")
    if template is not None:
        return template
    config_path, json_path = folder / "tokenizer_config.json", folder / "chat_template.json"
    if config.get("chat_template") is not None:
        return _default_template(config["chat_template"], config_path)
    return _default_template(_read_object(json_path).get("chat_template"), json_path)


def _default_template(value: object, path: Path) -> str | None:
    if value is None or isinstance(value, str):
        return value
    named = value if isinstance(value, list) else []
    templates = {entry["name"]: entry.get("template") for entry in named if _is_named(entry)}
    default = templates.get("default")
    if isinstance(default, str):
        return default
    raise CheckpointError(
        f"chat_template in {str(path)!r} has no template named 'default' (there are {sorted(templates)}); "
        "name the one to use 'default'"
    )


def _is_named(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str)


def _named_ends(folder: Path, config: Mapping[str, object], tokenizer: Tokenizer) -> list[int]:
    eos_token = _token_text(config, "eos_token", folder / "tokenizer_config.json")
    eos_id = tokenizer.token_to_id(eos_token) if eos_token is not None else None
    ends = [] if eos_id is None else [eos_id]
    for name in ("generation_config.json", "config.json"):
        ends += _ids(_read_object(folder / name).get("eos_token_id"), folder / name)
    return ends


def _ids(value: object, path: Path) -> list[int]:
    if value is None:
        return []
    entries = value if isinstance(value, list) else [value]
    ids = [entry for entry in entries if type(entry) is int and entry >= 0]
    if len(ids) == len(entries):
        return ids
    raise CheckpointError(f"eos_token_id in {str(path)!r} is {value!r}; write it as a token id or a list of token ids")
