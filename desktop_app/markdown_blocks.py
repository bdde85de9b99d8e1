"""Splits a text of Markdown that grows into blocks, each of which can be rendered by itself.

Blocks are read one by one. Where the next one begins depends on the text up to that one's first line and on nothing
later, so a block that was read stays as it is while the text grows, and the blocks of a text that came in pieces are
those of the whole. Only the end of a text is read anew.

No block is much longer than `LIMIT` characters: longer paragraphs, lists, tables and code go on in another block, whose
`continues` is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pilotfish.desktop_app.markdown_lines import TAB_WIDTH, closes_fence, dedented, indent_of, is_blank, opened_fence
from pilotfish.desktop_app.markdown_prose import LIMIT, BlockStart, ProseLines, cut_of
from pilotfish.desktop_app.references import Definitions, definitions_of

INDENTED = " "  # in the place of a fence


@dataclass(frozen=True, slots=True)
class Block:
    """The characters `start` to `stop` of a text. `kind` is `prose` or `code`, `level` how many lists are around it.

    `text` is what to render: Markdown without the indentation of the lists around it, or the code, of which the first
    character stands at `text_start` or, if it was indented, after it. It begins with `head`, which is not from there.
    """

    kind: str
    start: int
    stop: int
    text: str
    text_start: int
    language: str = ""
    level: int = 0
    continues: bool = False
    head: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """The blocks of a text as far as it has come. Of those the first `num_frozen` stay as they are when it grows."""

    blocks: tuple[Block, ...] = ()
    num_frozen: int = 0
    definitions: Definitions = field(default_factory=dict)
    _frozen_definitions: Definitions = field(default_factory=dict, repr=False)
    _resume: BlockStart = field(default_factory=BlockStart, repr=False)


def split(text: str) -> Split:
    """The blocks of a whole text."""
    return grown(Split(), text)


def grown(before: Split, text: str) -> Split:
    """The blocks of `text`, which begins with the text that `before` is of; reads only what is not frozen of it."""
    read: list[Block] = []
    num_frozen, resume = 0, before._resume
    for block, following in _blocks(text, before._resume):
        read.append(block)
        if following.is_within_line or text.find("\n", following.position) >= 0:
            num_frozen, resume = len(read), following
    frozen_definitions = {**definitions_of(_prose(read[:num_frozen])), **before._frozen_definitions}
    definitions = {**definitions_of(_prose(read[num_frozen:])), **frozen_definitions}
    blocks = (*before.blocks[: before.num_frozen], *read)
    return Split(blocks, before.num_frozen + num_frozen, definitions, frozen_definitions, resume)


def _prose(blocks: list[Block]) -> list[str]:
    return [block.text for block in blocks if block.kind == "prose"]


def _blocks(text: str, start: BlockStart) -> Iterator[tuple[Block, BlockStart]]:
    """Each block and the start of the one after it, which is at the end of the text after the last."""
    while True:
        if not start.fence:
            start = _after_blank_lines(text, start)
        if start.position >= len(text):
            return
        read = _read_block(text, start)
        yield read
        start = read[1]


def _after_blank_lines(text: str, start: BlockStart) -> BlockStart:
    position = start.position
    while position < len(text) and is_blank(text[position : (stop := _line_end(text, position))]):
        position = stop
    return start if position == start.position else replace(start, position=position, is_within_line=False)


def _read_block(text: str, start: BlockStart) -> tuple[Block, BlockStart]:
    if start.fence:
        return _read_code(text, start, start.position)
    if start.is_within_line:
        return _read_prose(text, start)
    line = text[start.position : _line_end(text, start.position)].rstrip("\r\n")
    indent = indent_of(line)
    start = replace(start, offsets=tuple(offset for offset in start.offsets if offset <= indent))
    line = dedented(line, start.indent)
    if (fence := opened_fence(line)) is not None:
        begun = replace(start, fence=fence[0], language=fence[1], continues=False, head="")
        return _read_code(text, begun, _line_end(text, start.position))
    if indent_of(line) >= TAB_WIDTH and not start.continues:
        return _read_code(text, replace(start, fence=INDENTED, language=""), start.position)
    return _read_prose(text, start)


def _read_code(text: str, start: BlockStart, position: int) -> tuple[Block, BlockStart]:
    """Code from `position` on to its end, or to as much as one block holds."""
    text_start, code = position, ""
    indent = start.indent + (TAB_WIDTH if start.fence == INDENTED else 0)
    after = replace(start, fence="", language="", continues=False, is_within_line=False)
    is_within_line = start.is_within_line
    while position < len(text):
        stop = _line_end(text, position)
        line = text[position:stop]
        if not is_within_line and not is_blank(line) and indent_of(line) < indent:
            break  # the list item, or the indented code, has ended
        line = line if is_within_line else _without_indent(line, indent)
        if not is_within_line and start.fence != INDENTED and closes_fence(line.rstrip("\n"), start.fence):
            position = stop
            break
        if len(code) + len(line) > LIMIT:
            cut = stop - len(line) + cut_of(line, LIMIT) if not code else position
            piece = code or line[: cut - (stop - len(line))]
            goes_on = replace(start, position=cut, continues=True, is_within_line=not code)
            return _code_block(start, cut, piece, text_start), goes_on
        code, position, is_within_line = code + line, stop, False
    if start.fence == INDENTED:
        code = code.rstrip("\n") + "\n"
    return _code_block(start, position, code, text_start), replace(after, position=position)


def _code_block(start: BlockStart, stop: int, code: str, text_start: int) -> Block:
    level = len(start.offsets)
    return Block("code", start.position, stop, code, text_start, start.language, level, start.continues)


def _without_indent(line: str, indent: int) -> str:
    return line if indent == 0 else dedented(line.rstrip("\n"), indent) + ("\n" if line.endswith("\n") else "")


def _read_prose(text: str, start: BlockStart) -> tuple[Block, BlockStart]:
    """A paragraph, heading, list, quote, table or rule, or as much of one as a block holds."""
    prose = ProseLines(start)
    position, following = start.position, None
    while following is None and position < len(text):
        stop = _line_end(text, position)
        line = text[position:stop].rstrip("\r\n")
        following = prose.taken(line, position)
        if following is None:
            position = stop
    following = following or BlockStart(position, start.offsets)
    block = Block(
        "prose", start.position, following.position, prose.text, start.position, level=len(start.offsets),
        continues=start.continues, head=start.head,
    )  # fmt: skip
    return block, following


def _line_end(text: str, position: int) -> int:
    """Where the next line begins."""
    return text.find("\n", position) + 1 or len(text)


def plain_blocks(before: Split, text: str) -> Split:
    """As `grown`, of a text that is no Markdown: parts of whole lines where it is long, and nothing else is split."""
    start = before.blocks[before.num_frozen - 1].stop if before.num_frozen else 0
    read: list[Block] = []
    while len(text) - start > 2 * LIMIT:
        line_end = text.rfind("\n", start + LIMIT // 2, start + LIMIT) + 1
        stop = line_end or start + cut_of(text[start : start + 2 * LIMIT], LIMIT)
        read.append(_plain(text, start, stop))
        start = stop
    num_frozen = before.num_frozen + len(read)
    if text[start:]:
        read.append(_plain(text, start, len(text)))
    return Split((*before.blocks[: before.num_frozen], *read), num_frozen)


def _plain(text: str, start: int, stop: int) -> Block:
    shown = text[start:stop].replace("\r\n", "\n").removesuffix("\n")
    return Block("prose", start, stop, shown, start, continues=start > 0)
