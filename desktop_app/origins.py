"""Who wrote which characters: from the spans of a message to the characters of rendered Markdown.

Rendering drops marks and changes nothing else but their order is kept, so the rendered text is found again in its
source by a walk over both at once.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pilotfish.desktop_app.conversation import Span

UNKNOWN = -1  # the position of a character that is not in the message
KINDS = ("model", "lookup", "target")

_MARKS = frozenset("*_`~#>|-+=[]()!\\<>:&; \t\r\n")
_HIDDEN = re.compile(
    r"""(?mx)
    ^[ \t>]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*(?:[-+*]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t])?   # list items
    | ^[ \t>]*\#{1,6}[ \t]+                                                                  # headings
    | ^[ \t>]*(?:`{3,}|~{3,})[^\n]*$                                                         # fences
    | ^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?[ \t]*$                        # below the head of a table
    | ^[ ]{0,3}\[[^\[\]\n]+\]:[ \t]*\S[^\n]*$                                                # what labels mean
    | ^[ \t]*>[ \t>]*                                                                        # quotes
    | \]\([^\s()]*(?:\([^\s()]*\)[^\s()]*)*(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)                  # addresses of links
    | \]\[[^\[\]]*\]
    | \\(?=[!-/:-@\[-`{-~])
    """
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|\w{1,31});")
_SURE = ((8, None), (4, 400), (2, 40))  # so many characters alike are looked for so far ahead


@dataclass(frozen=True, slots=True)
class Run:
    """So many characters in a row of one kind of origin, from `start` on."""

    kind: str
    start: int
    length: int


class Origins:
    """Of which kind the origin of each character of a text is."""

    def __init__(self, spans: Iterable[Span]) -> None:
        known = [span for span in spans if span.num_characters]
        self._kinds = [kind_of(span.origin) for span in known]
        self._stops = list(accumulate(span.num_characters for span in known))

    def at(self, position: int) -> str | None:
        """The kind at a position of the text; None if it is not known."""
        index = bisect_right(self._stops, position)
        return self._kinds[index] if position >= 0 and index < len(self._kinds) else None

    def runs(self, positions: Sequence[int]) -> tuple[Run, ...]:
        """The runs of a text whose characters stand at these positions; those that are not known are left out."""
        runs: list[Run] = []
        for index, position in enumerate(positions):
            kind = self.at(position)
            if kind is None:
                continue
            if runs and runs[-1].kind == kind and runs[-1].start + runs[-1].length == index:
                runs[-1] = Run(kind, runs[-1].start, runs[-1].length + 1)
            else:
                runs.append(Run(kind, index, 1))
        return tuple(runs)


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a message that is `text` and begins at `start`, and who wrote the message.

    Rendered with it, before it, was `head`, which is from elsewhere.
    """

    text: str
    start: int
    origins: Origins
    head: str = ""

    def runs_of(self, rendered: Sequence[str]) -> list[tuple[Run, ...]]:
        """The runs of each of the texts that the part was rendered to."""
        start, num_head = self.start, len(self.head)
        return [
            self.origins.runs([start + each - num_head if each >= num_head else UNKNOWN for each in positions])
            for positions in aligned(self.head + self.text, rendered)
        ]


def kind_of(origin: str) -> str:
    """`model` for the draft model, `target`, and `lookup` for all that copy."""
    return origin if origin in ("model", "target") else "lookup"


def aligned(source: str, rendered: Sequence[str]) -> list[list[int]]:
    """The position in `source` of each character of each rendered text, which follow each other in it.

    A character that is not found, as one that was put in by rendering, gets the position that was reached.
    """
    walk = _Walk(source)
    return [walk.positions(text) for text in rendered]


class _Walk:
    """Goes through the source once."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._position = 0
        self._hidden = {match.start(): match.end() for match in _HIDDEN.finditer(source) if match[0]}

    def positions(self, text: str) -> list[int]:
        found = []
        for index, character in enumerate(text):
            self._advance(text, index, character)
            found.append(min(self._position, max(len(self._source) - 1, 0)))
            self._pass(text, index)
        return found

    def _advance(self, text: str, index: int, character: str) -> None:
        """Moves to where `character` stands, if that can be told."""
        source, position = self._source, self._skipped(self._position, text, index)
        if source[position : position + 1] == character or _entity_at(source, position, character):
            self._position = position
            return
        for length, distance in _SURE:
            wanted = text[index : index + length]
            if len(wanted) < length:
                continue
            stop = None if distance is None else position + distance
            if (ahead := source.find(wanted, position, stop)) >= 0:
                self._position = ahead
                return
        while position < len(source) and source[position] in _MARKS:
            position = max(self._hidden.get(position, 0), position + 1)
            # A blank alone proves nothing: what follows it must be alike too.
            wanted = text[index : index + 2] if character == " " else character
            if source.startswith(wanted, position) or _entity_at(source, position, character):
                self._position = position
                return

    def _skipped(self, position: int, text: str, index: int) -> int:
        """Behind what is hidden at `position`, unless the text shows just that."""
        while (stop := self._hidden.get(position)) is not None:
            if text.startswith(self._source[position:stop], index):
                break
            position = stop
        return position

    def _pass(self, text: str, index: int) -> None:
        source, position = self._source, self._position
        entity = _entity_at(source, position, text[index])
        if entity and not text.startswith(entity, index):
            self._position += len(entity)
        elif source[position : position + 1] == text[index]:
            self._position += 1


def _entity_at(source: str, position: int, character: str) -> str:
    """The entity there that stands for `character`; empty if none does."""
    if source[position : position + 1] != "&":
        return ""
    match = _ENTITY.match(source, position)
    return match[0] if match and html.unescape(match[0]) == character else ""
