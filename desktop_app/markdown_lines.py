"""What a line of Markdown begins or ends, as far as one line can tell (CommonMark 0.31, and tables as GitHub's)."""

from __future__ import annotations

import re

TAB_WIDTH = 4

_MARKER = re.compile(r"(?P<marker>[-+*]|\d{1,9}[.)])(?P<space> *)(?P<content>.*)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}(?=[^`]*$)|~{3,})[ \t]*(?P<language>[^\s`{]*)")
_TABLE_RULE = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")


def indent_of(line: str) -> int:
    """The column of the first character that is no blank; tabs go to every fourth column."""
    column = 0
    for character in line:
        if character == " ":
            column += 1
        elif character == "\t":
            column += TAB_WIDTH - column % TAB_WIDTH
        else:
            break
    return column


def dedented(line: str, columns: int) -> str:
    """The line without its first `columns` blank columns, or as many as there are."""
    if not line[:1].isspace():
        return line
    return " " * max(indent_of(line) - columns, 0) + line.lstrip(" \t")


def is_blank(line: str) -> bool:
    """Whether the line ends a paragraph."""
    return not line.strip(" \t\r\n")


def is_heading(line: str) -> bool:
    """Whether the line is a heading with number signs."""
    return _HEADING.match(line) is not None


def is_rule(line: str) -> bool:
    """Whether the line is a thematic break, if it does not stand below a paragraph."""
    return _RULE.match(line) is not None


def is_underline(line: str) -> bool:
    """Whether the line makes the paragraph above it a heading."""
    return _UNDERLINE.match(line) is not None


def is_table_rule(line: str) -> bool:
    """Whether the line may part the head of a table from its rows."""
    return "|" in line and _TABLE_RULE.match(line) is not None


def is_quote(line: str) -> bool:
    """Whether the line begins with a quotation mark of Markdown."""
    return indent_of(line) < TAB_WIDTH and line.lstrip(" \t").startswith(">")


def item_offset(line: str) -> int | None:
    """The column at which the content of the list item that begins here begins; None if none does."""
    if is_rule(line):
        return None
    indent = indent_of(line)
    match = _MARKER.match(line.strip(" \t"))
    if match is None or (match["content"] and not match["space"]):
        return None
    num_blanks = len(match["space"])
    # With five blanks or more the item begins with indented code; an item may also begin with a blank line.
    return indent + len(match["marker"]) + (num_blanks if match["content"] and num_blanks <= TAB_WIDTH else 1)


def interrupts(line: str) -> bool:
    """Whether the line ends a paragraph that it stands directly below."""
    if indent_of(line) >= TAB_WIDTH:
        return False
    if is_heading(line) or is_rule(line) or is_quote(line) or opened_fence(line) is not None:
        return True
    match = _MARKER.match(line.strip(" \t"))
    if match is None or not (match["space"] and match["content"]):
        return False
    return match["marker"] in ("-", "+", "*", "1.", "1)")


def opened_fence(line: str) -> tuple[str, str] | None:
    """The marks and the language of the code block that begins here; None if none does."""
    match = _FENCE.match(line)
    return (match["marks"], match["language"]) if match else None


def closes_fence(line: str, marks: str) -> bool:
    """Whether the line ends the code block that `marks` began."""
    stripped = line.strip(" \t\r")
    return indent_of(line) < TAB_WIDTH and len(stripped) >= len(marks) and not stripped.strip(marks[0])
