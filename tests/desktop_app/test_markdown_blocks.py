from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.desktop_app.markdown_blocks import Split, grown, plain_blocks, split
from pilotfish.desktop_app.markdown_prose import LIMIT
from support.nasty_markdown import LONG, NASTY, long_document

LINES = (
    "", " ", "a", "- a", "  - b", "1. c", "> d", "```", "````", "~~~ py", "   ```", "    e", "\tf", "---", "===", "# g",
    "| a | b |", "|---|---|", "[x]: y", "$$", "* * *", "-", "  h", "   i",
)  # fmt: skip


def shapes(text: str) -> list[tuple]:
    return [(block.kind, block.text, block.level) for block in split(text).blocks]


@pytest.mark.parametrize("name", NASTY)
def test_every_prefix_grows_to_what_a_whole_text_is(name: str):
    growing, text = Split(), NASTY[name]
    step = 1 if len(text) < 2000 else 97
    for length in [*range(0, len(text), step), len(text)]:
        frozen = growing.blocks[: growing.num_frozen]
        growing = grown(growing, text[:length])
        assert growing.blocks[: len(frozen)] == frozen
        whole = split(text[:length])
        assert (growing.blocks, growing.definitions) == (whole.blocks, whole.definitions)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=14), st.integers(1, 9))
def test_any_lines_in_pieces_are_the_same_as_at_once(lines: list[str], step: int):
    growing, text = Split(), "\n".join(lines)
    for length in range(0, len(text) + step, step):
        growing = grown(growing, text[:length])
    assert growing.blocks == split(text).blocks
    assert growing.definitions == split(text).definitions


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=14))
def test_blocks_cover_all_that_is_not_blank(lines: list[str]):
    text, position = "\n".join(lines), 0
    for block in split(text).blocks:
        assert not text[position : block.start].strip()
        assert block.start < block.stop
        position = block.stop
    assert not text[position:].strip()


@pytest.mark.parametrize("name", LONG)
def test_no_block_is_long_and_little_is_read_anew(name: str):
    text, growing = long_document(name), Split()
    for length in range(0, len(text) + 1000, 1000):
        growing = grown(growing, text[:length])
        open_start = growing.blocks[growing.num_frozen].start if growing.num_frozen < len(growing.blocks) else length
        assert min(length, len(text)) - open_start <= 3 * LIMIT + 1000
    assert max(len(block.text) for block in growing.blocks) <= 2 * LIMIT + 100
    assert sum(block.stop - block.start for block in growing.blocks) > 0.99 * len(text)


def test_a_list_and_the_code_in_it():
    assert shapes(NASTY["fence in a list"]) == [
        ("prose", "1. First:", 0),
        ("code", "pip install x\n\nls\n", 1),
        ("prose", "then", 1),
        ("prose", "2. Second\n   - deeper", 0),
        ("code", "let a = `${b}`;\n", 2),
        ("prose", "- last", 1),
        ("prose", "End.", 0),
    ]


def test_fences_within_longer_fences():
    assert shapes(NASTY["nested fences"]) == [
        ("code", "```python\nprint(1)\n```\n", 0),
        ("prose", "after", 0),
        ("code", "```\n", 0),
    ]


def test_an_underline_makes_a_heading_of_the_paragraph_above():
    assert shapes(NASTY["setext"])[:4] == [
        ("prose", "A title\nof two lines\n===", 0),
        ("prose", "Another\n---", 0),
        ("prose", "no title", 0),
        ("prose", "---", 0),
    ]


def test_long_code_goes_on_without_a_loss():
    text = long_document("code")
    blocks = split(text).blocks
    assert [block.continues for block in blocks] == [False] + [True] * (len(blocks) - 1)
    assert {block.language for block in blocks} == {"python"}
    assert "".join(block.text for block in blocks) == text.removeprefix("```python\n")


def test_a_long_line_of_code_goes_on_without_a_loss():
    text = NASTY["long code line"]
    assert "".join(block.text for block in split(text).blocks) == "z" * 9000 + "\nshort\n"


def test_a_long_table_has_its_head_in_each_part():
    blocks = split(long_document("table")).blocks
    assert len(blocks) > 10
    assert all(block.text.startswith("| a | b | c |\n|---|:-:|--:|\n| a cell") for block in blocks)


def test_a_cut_parts_no_character_that_is_shown_as_one():
    family = "👨‍👩‍👧‍👦"
    for shift in range(len(family)):
        text = "x" * shift + family * 1200
        parts = [block.text for block in split(text).blocks]
        assert len(parts) > 2
        assert all(not part.startswith("\u200d") and not part.endswith("\u200d") for part in parts)


def test_the_first_definition_of_a_label_holds():
    assert split(NASTY["reference links"]).definitions["1"] == "[1]: https://example.org/a"


def test_a_plain_text_is_split_without_a_loss_and_grows():
    for text in ("", "a\n\n# b\n", "line\r\n" * 3000, "x" * 9000, "y" * 3000 + "\n" + "z " * 4000):
        growing = Split()
        for length in [*range(0, len(text), 777), len(text)]:
            growing = plain_blocks(growing, text[:length])
        assert growing.blocks == plain_blocks(Split(), text).blocks
        assert "".join(text[block.start : block.stop] for block in growing.blocks) == text
        assert all(len(block.text) <= 2 * LIMIT for block in growing.blocks)
