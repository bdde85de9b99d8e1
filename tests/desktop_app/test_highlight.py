from __future__ import annotations

import pytest

from pilotfish.desktop_app.highlight import GROUNDS, by_line, inks, readable, words_of
from pilotfish.desktop_app.themes import DARK, LIGHT, READABLE, Colours, contrast

CODE = "\n\ndef f(x):\n    return 'a'  # why\n"


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_code_can_be_read_on_every_ground(colours: Colours):
    found = set(inks(colours).values())
    assert len({ink.colour for ink in found}) > 5
    assert min(contrast(ink.colour, getattr(colours, ground)) for ink in found for ground in GROUNDS) >= READABLE


def test_what_cannot_be_read_is_moved_towards_the_text():
    assert readable("#f0f0f0", LIGHT) != "#f0f0f0"
    assert readable(LIGHT.text, LIGHT) == LIGHT.text


def test_words_stand_where_they_are_in_the_code():
    words = {CODE[start : start + length]: str(kind) for start, length, kind in words_of(CODE, "Python")}
    assert words["def"] == "Token.Keyword"
    assert words["# why"].startswith("Token.Comment")


@pytest.mark.parametrize("language", ["", "no-such-language", "<script>"])
def test_an_unknown_language_has_no_words(language: str):
    assert words_of(CODE, language) == ()


def test_a_word_of_several_lines_is_parted():
    code = "x = '''a\n\nbc'''\ny"
    lines = [[line[start : start + length] for start, length, _ in words] for line, words in zip(
        code.split("\n"), by_line(code, words_of(code, "python")), strict=True)]  # fmt: skip
    assert ["".join(words) for words in lines] == ["x='''a", "", "bc'''", "y"]
