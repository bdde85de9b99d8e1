"""Links whose address stands elsewhere in the text: `[words][label]` here, `[label]: address` there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Definitions = Mapping[str, str]
"""The line that defines a label, by the label in the form of `label_of`."""

MAX_LABEL = 200

_DEFINITION = re.compile(rf"^ {{0,3}}\[(?P<label>[^\[\]\n]{{1,{MAX_LABEL}}})\]:[ \t]*\S.*$", re.MULTILINE)
_USE = re.compile(rf"\[([^\[\]]{{1,{MAX_LABEL}}})\]")


def label_of(words: str) -> str:
    """The same for all spellings of a label that mean the same."""
    return " ".join(words.split()).casefold()


def definitions_of(texts: Iterable[str]) -> dict[str, str]:
    """What the texts define. Of several definitions of a label the first one holds."""
    found: dict[str, str] = {}
    for text in texts:
        if "]:" in text:
            for match in _DEFINITION.finditer(text):
                found.setdefault(label_of(match["label"]), match[0].strip())
    return found


def with_definitions(text: str, definitions: Definitions) -> str:
    """`text` and below it what it needs of `definitions`."""
    if not definitions or "[" not in text:
        return text
    used = dict.fromkeys(label_of(words) for words in _USE.findall(text))
    lines = [definitions[label] for label in used if label in definitions]
    return "\n".join([text, "", *lines]) if lines else text
