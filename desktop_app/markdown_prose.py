"""One block of Markdown that is no code, taken line by line, and where the next one begins."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from pilotfish.desktop_app.markdown_lines import (
    TAB_WIDTH,
    dedented,
    indent_of,
    interrupts,
    is_blank,
    is_heading,
    is_quote,
    is_rule,
    is_table_rule,
    is_underline,
    item_offset,
    opened_fence,
)

LIMIT = 2000
MAX_QUOTE_MARKS = 40


@dataclass(frozen=True, slots=True)
class BlockStart:
    """Where a block begins, and what of the text before matters there.

    `offsets` are the columns of the contents of the list items around. Inside code `fence` is what began it. `head`
    stands in front of the text: the marks of a quote, or the head of a table. A block may begin within a line.
    """

    position: int = 0
    offsets: tuple[int, ...] = ()
    fence: str = ""
    language: str = ""
    head: str = ""
    continues: bool = False
    is_within_line: bool = False

    @property
    def indent(self) -> int:
        """The columns that are not part of the block."""
        return self.offsets[-1] if self.offsets else 0


class ProseLines:
    """Takes the lines of one block of prose."""

    def __init__(self, start: BlockStart) -> None:
        self._start = start
        self._lines: list[str] = []
        self._items: list[int] = []  # columns of the contents of the list items that are open, without the indent
        self._form = ""
        self._size = 0
        self._is_after_blank = False

    @property
    def text(self) -> str:
        """The Markdown of the lines."""
        while self._lines and is_blank(self._lines[-1]):
            self._lines.pop()
        return self._start.head + "\n".join(self._lines)

    def taken(self, line: str, position: int) -> BlockStart | None:
        """None if the line at `position` belongs to the block, wholly; else where the next block begins."""
        is_first = not self._lines
        column = 0 if is_first and self._start.is_within_line else indent_of(line)
        within = line.lstrip(" \t") if is_first and self._start.is_within_line else dedented(line, self._start.indent)
        if not is_first and not is_blank(line) and self._ends_before(within, column):
            return BlockStart(position, self._offsets_at(column))
        if self._size + len(within) > LIMIT:
            if not is_first and (self._is_good_cut(within) or self._size + len(within) > 2 * LIMIT):
                return self._going_on(position, column)
            if is_first and len(within) > 2 * LIMIT:
                return self._cut_within(within, position + len(line) - len(within))
        self._take(within, is_first)
        return None

    def _take(self, line: str, is_first: bool) -> None:
        if is_first:
            begun = self._start.head + line
            self._form = "quote" if is_quote(begun) else "list" if item_offset(begun) is not None else "text"
            if is_heading(line) or is_rule(line):
                self._form = "line"
        elif self._form == "text" and not self._is_after_blank and is_underline(line):
            self._form = "line"
        if self._form == "list" and (offset := item_offset(line)) is not None:
            self._items = [*(each for each in self._items if each <= indent_of(line)), offset]
        self._is_after_blank = is_blank(line)
        self._lines.append(line)
        self._size += len(line) + 1

    def _ends_before(self, line: str, column: int) -> bool:
        """Whether `line`, which is not blank, begins another block."""
        if self._form == "line":
            return True
        if self._is_after_blank and self._start.offsets and column < self._start.indent:
            return True
        if self._form == "list":
            if self._is_within_item(line):
                return opened_fence(dedented(line, self._item_offset(indent_of(line)))) is not None
            if item_offset(line) is not None and indent_of(line) < TAB_WIDTH:
                return column < self._start.indent
            return self._is_after_blank or interrupts(line)
        if self._is_after_blank or (column < self._start.indent and item_offset(line) is not None):
            return True
        if self._form == "quote":
            return interrupts(line) and not is_quote(line)
        return interrupts(line) and not is_underline(line)

    def _is_within_item(self, line: str) -> bool:
        return bool(self._items) and indent_of(line) >= self._items[0]

    def _item_offset(self, indent: int) -> int:
        return max((offset for offset in self._items if offset <= indent), default=0)

    def _offsets_at(self, column: int) -> tuple[int, ...]:
        indent = self._start.indent
        offsets = (*self._start.offsets, *(indent + offset for offset in self._items))
        return tuple(offset for offset in offsets if offset <= column)

    def _is_good_cut(self, line: str) -> bool:
        """Whether a list that is too long may be parted before this line; all else may be anywhere."""
        return self._form != "list" or (item_offset(line) is not None and not self._is_within_item(line))

    def _going_on(self, position: int, column: int) -> BlockStart:
        head = self._start.head if self._is_table(self._start.head) else ""
        if len(self._lines) > 1 and is_table_rule(self._lines[1]):
            head = f"{self._lines[0]}\n{self._lines[1]}\n"
        return BlockStart(position, self._offsets_at(column), head=head, continues=True)

    def _cut_within(self, line: str, position: int) -> BlockStart:
        """The block ends within its first line."""
        cut = cut_of(line, LIMIT)
        self._take(line[:cut], is_first=True)
        begun = (self._start.head + line)[:MAX_QUOTE_MARKS]
        head = begun[: len(begun) - len(begun.lstrip(" \t>"))] if self._form == "quote" else ""
        if unicodedata.category(line[cut])[0] in "PS":
            head += "\\"  # what begins a line must not begin a list there
        offsets = self._offsets_at(self._start.indent + LIMIT) if self._form == "list" else self._start.offsets
        return BlockStart(position + cut, offsets, head=head, continues=True, is_within_line=True)

    @staticmethod
    def _is_table(head: str) -> bool:
        return head.endswith("\n")


def cut_of(line: str, limit: int) -> int:
    """Where to part a line that is longer than `limit`: after a blank if there is one, and within no character."""
    blank = line.rfind(" ", limit * 3 // 4, limit)
    if blank >= 0:
        return blank + 1
    cut = limit
    while cut > limit // 2 and _joins(line[cut - 1], line[cut]):
        cut -= 1
    return cut


def _joins(before: str, after: str) -> bool:
    """Whether the two may be shown as one character."""
    joiner = "\u200d"
    is_flag = "\U0001f1e6" <= after <= "\U0001f1ff"
    is_skin = "\U0001f3fb" <= after <= "\U0001f3ff"
    return is_flag or is_skin or joiner in (before, after) or unicodedata.category(after)[0] == "M"
