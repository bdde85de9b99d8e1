"""The prompts of a benchmark: those that ship with the project, or those of a file of the same form.

A file is TOML: a table `[[prompt]]` for each, with `text`. If wanted, `kind` and `length` put prompts together in the
report, and `documents` is a list of names out of the table `[documents]`, whose texts follow the prompt's own.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pilotfish.runtime.errors import OptionError

LENGTHS = ("short", "long", "context")
KEYS = {"text", "kind", "length", "documents"}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text of some kind. `length` is `short`, `long` (a page), or `context` (the long-context set)."""

    kind: str
    length: str
    text: str

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise OptionError(f"a prompt of the kind {self.kind} is empty; give it a text")
        if self.length not in LENGTHS:
            raise OptionError(f"the length {self.length!r} of a prompt is unknown; use one of {', '.join(LENGTHS)}")

    @property
    def key(self) -> str:
        """The same in every run, and another for another text."""
        return f"{self.kind}/{self.length}/{hashlib.sha256(self.text.encode()).hexdigest()[:8]}"


def shipped_prompts() -> list[Prompt]:
    """The project's own, in the order of the file."""
    text = resources.files("pilotfish.runtime.bench").joinpath("prompts.toml").read_text(encoding="utf-8")
    return parse_prompts(text, "prompts.toml")


def read_prompts(path: Path) -> list[Prompt]:
    """Those of a user's file, `OptionError` if it cannot be read or has none."""
    try:
        return parse_prompts(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the prompts {path} cannot be read: {error}") from error


def parse_prompts(text: str, name: str) -> list[Prompt]:
    """The prompts of a TOML text; `name` is what messages call it."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"{name} is not valid TOML: {error}") from error
    documents, entries = values.get("documents", {}), values.get("prompt", [])
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise OptionError(f'{name} has no prompt; begin each with a line [[prompt]], and then text = "…"')
    return [_prompt(entry, documents, f"prompt {number} of {name}") for number, entry in enumerate(entries, 1)]


def _prompt(entry: Mapping[str, Any], documents: Mapping[str, Any], name: str) -> Prompt:
    unknown = sorted(entry.keys() - KEYS)
    if unknown:
        raise OptionError(f"{name} has {', '.join(unknown)}; known are {', '.join(sorted(KEYS))}")
    wanted = entry.get("documents", [])
    missing = [document for document in wanted if document not in documents]
    if missing:
        raise OptionError(f"{name} names the documents {', '.join(missing)}, which are not in [documents]")
    parts = [entry.get("text", ""), *(documents[document] for document in wanted)]
    if not all(isinstance(part, str) for part in parts):
        raise OptionError(f"{name} has a text that is not a string")
    return Prompt(entry.get("kind", "own"), entry.get("length", "short"), "\n\n".join(part.strip() for part in parts))


def chosen(
    prompts: Sequence[Prompt], kinds: Sequence[str], lengths: Sequence[str], per_group: int | None
) -> list[Prompt]:
    """Those of the kinds and lengths (empty: all), at most the first `per_group` of each kind and length together."""
    for what, wanted, known in (("kind", kinds, {p.kind for p in prompts}), ("length", lengths, set(LENGTHS))):
        unknown = sorted(set(wanted) - known)
        if unknown:
            raise OptionError(f"no prompt has the {what} {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    found: dict[tuple[str, str], list[Prompt]] = {}
    for prompt in prompts:
        if (not kinds or prompt.kind in kinds) and (not lengths or prompt.length in lengths):
            found.setdefault((prompt.kind, prompt.length), []).append(prompt)
    if not found:
        raise OptionError(f"no prompt is both of kind {', '.join(kinds)} and of length {', '.join(lengths)}")
    return [prompt for group in found.values() for prompt in group[:per_group]]
