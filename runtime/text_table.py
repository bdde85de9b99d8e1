"""Rows of text under headings, in columns as wide as they need: whole lines for a terminal, a pipe and a search."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The lines of a table. A heading that begins with `>` sets its column flush right."""
    is_right = [heading.startswith(">") for heading in headings]
    lines = [[heading.removeprefix(">") for heading in headings], *rows]
    widths = [max(len(line[number]) for line in lines) for number in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_right, strict=True)
        ).rstrip()
        for line in lines
    )


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same as Markdown; `|` in a cell is escaped."""
    lines = [[heading.removeprefix(">") for heading in headings], *rows]
    texts = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    rule = "|" + "|".join("---:" if heading.startswith(">") else "---" for heading in headings) + "|"
    return "\n".join([texts[0], rule, *texts[1:]])
