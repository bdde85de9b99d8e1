"""Text to token ids and back: encoding, the chat template in a sandbox, and decoding while tokens arrive."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import tokenizers
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pilotfish.runtime.bundle import Bundle, TokenizerEntry
from pilotfish.runtime.errors import BundleError, TemplateError

Message = Mapping[str, Any]

MAX_RENDERED_CHARACTERS = 10_000_000
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what the tokenizer writes for bytes that are not yet a character


class Tokenizer:
    """A tokenizer of a bundle, and its chat template.

    `end_token_ids` end a text, and `end_text` names the one that is the model's own; a text begins with `prefix`.
    """

    def __init__(self, bundle: Bundle, entry: TokenizerEntry | None = None) -> None:
        """Reads the files that an entry of the manifest names, by default the target's.

        `BundleError` or `TemplateError` if they are faulty.
        """
        entry = entry or bundle.manifest.tokenizer
        path = bundle.path / entry.file
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises plain Exception for a malformed file
            raise BundleError(f"{path} is not a tokenizer ({error}); export the bundle again") from error
        self.num_tokens = entry.num_tokens
        self.end_token_ids = frozenset(entry.end_token_ids)
        self.end_text = entry.eos_token
        self._specials = {"bos_token": entry.bos_token or "", "eos_token": entry.eos_token or ""}
        bos_id = self._tokenizer.token_to_id(entry.bos_token) if entry.bos_token else None
        self.prefix = (bos_id,) if entry.add_bos and bos_id is not None else ()
        self._template = _compile(bundle.path / entry.chat_template) if entry.chat_template else None

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text, with the begin-of-text token in front if the model wants one."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids if tuple(ids[:1]) == self.prefix else [*self.prefix, *ids]

    def encode_chat(self, messages: Sequence[Message], reply: str = "") -> list[int]:
        """Token ids of a conversation up to where the assistant's reply begins, and of that beginning of the reply.

        A message has `role` and `content`. The template writes the special tokens, so none are added here.
        `TemplateError` if the bundle has no template or the template fails.
        """
        if self._template is None:
            raise TemplateError("this bundle has no chat template; pass plain text, or use --raw")
        context = {"messages": list(messages), "add_generation_prompt": True, **self._specials}
        rendered: list[str] = []
        length = 0
        try:
            for piece in self._template.generate(context):
                length += len(piece)
                if length > MAX_RENDERED_CHARACTERS:
                    raise TemplateError(f"the chat template wrote over {MAX_RENDERED_CHARACTERS:,} characters")
                rendered.append(piece)
        except TemplateError:
            raise
        except Exception as error:  # a template can raise anything that Python can
            raise TemplateError(f"the chat template failed: {type(error).__name__}: {error}") from error
        ids: list[int] = self._tokenizer.encode("".join([*rendered, reply]), add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def to_json(self) -> str:
        """The tokenizer as the text of a `tokenizer.json`."""
        return str(self._tokenizer.to_str())


class StreamDecoder:
    """Decodes a growing list of tokens into text that can be shown at once.

    Bytes of a character that is not complete are held back, so what `push` returns never ends in a broken character
    and the concatenation of all pieces equals the text decoded in one go.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Starts with no tokens."""
        self._tokenizer = tokenizer
        self._token_ids: list[int] = []
        # Tokens before `_context_start` no longer matter; those up to `_shown` were returned as text. A decoder may
        # treat the first token it sees specially (a leading space), so some shown tokens are kept in front.
        self._context_start = 0
        self._shown = 0

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty while a character is incomplete."""
        self._token_ids.append(token_id)
        text = self._unshown()
        if not text or text.endswith(REPLACEMENT):
            return ""
        self._context_start, self._shown = self._shown, len(self._token_ids)
        return text

    def flush(self) -> str:
        """What was held back, at the end of a generation; incomplete bytes come out as U+FFFD."""
        text = self._unshown()
        self._context_start, self._shown = self._shown, len(self._token_ids)
        return text

    def _unshown(self) -> str:
        before = self._tokenizer.decode(self._token_ids[self._context_start : self._shown])
        return self._tokenizer.decode(self._token_ids[self._context_start :])[len(before) :]


def _compile(path: Path) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda pattern: datetime.now().astimezone().strftime(pattern)
    try:
        return environment.from_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, jinja2.TemplateError) as error:
        raise TemplateError(f"the chat template {path} cannot be read: {error}") from error


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
