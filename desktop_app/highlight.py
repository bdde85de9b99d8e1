"""Colours of code: Pygments tells what the words are, the theme how they look, always well readable on its grounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.styles import get_style_by_name
from pygments.token import Token, _TokenType
from pygments.util import ClassNotFound

from pilotfish.desktop_app.themes import READABLE, Colours, contrast

STYLES = {False: "friendly", True: "github-dark"}
GROUNDS = ("code", "by_model", "by_lookup", "by_target", "selection")

Words = tuple[tuple[int, int, _TokenType], ...]
"""Start, length and Pygments' type of each word that has a colour of its own."""


@dataclass(frozen=True, slots=True)
class Ink:
    """How a word looks. `colour` is "#rrggbb"."""

    colour: str
    is_bold: bool = False
    is_italic: bool = False


def words_of(code: str, language: str) -> Words:
    """The words of `code`; none if the language is not known."""
    lexer = _lexer(language.lower())
    if lexer is None:
        return ()
    return tuple(
        (start, len(value), kind)
        for start, kind, value in lexer.get_tokens_unprocessed(code)
        if kind not in (Token.Text, Token.Text.Whitespace) and value
    )


def by_line(code: str, words: Words) -> list[Words]:
    """The words of each line, from its own beginning; a word that goes over several lines is parted."""
    lines: list[Words] = []
    start, index = 0, 0
    for line in code.split("\n"):
        stop = start + len(line)
        while index < len(words) and words[index][0] + words[index][1] <= start:
            index += 1
        here = []
        for begin, length, kind in islice(words, index, None):
            if begin >= stop:
                break
            first, last = max(begin, start), min(begin + length, stop)
            if first < last:
                here.append((first - start, last - first, kind))
        lines.append(tuple(here))
        start = stop + 1
    return lines


def inks(colours: Colours) -> Mapping[_TokenType, Ink]:
    """The ink of each type of word, of a contrast of at least `READABLE` on each of `GROUNDS`."""
    return _inks(colours)


@lru_cache(maxsize=4)
def _inks(colours: Colours) -> Mapping[_TokenType, Ink]:
    style = get_style_by_name(STYLES[colours.is_dark])
    return {
        kind: Ink(readable(f"#{look['color']}", colours), bool(look["bold"]), bool(look["italic"]))
        for kind, look in style
        if look["color"]
    }


def readable(colour: str, colours: Colours) -> str:
    """`colour`, if it can be read on all grounds; else the nearest to it on the way to that of text that can."""
    for parts in range(11):
        mixed = _mixed(colour, colours.text, parts / 10)
        if all(contrast(mixed, getattr(colours, ground)) >= READABLE for ground in GROUNDS):
            return mixed
    return colours.text


def _mixed(a: str, b: str, share: float) -> str:
    """`share` of `b` in `a`."""
    pairs = ((int(a[i : i + 2], 16), int(b[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in pairs)


@lru_cache(maxsize=32)
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False) if language else None
    except ClassNotFound:
        return None
