"""A selection as the text that is seen, which Qt gives without the numbers of lists and with marks of its own."""

from __future__ import annotations

from PySide6.QtGui import QTextBlock, QTextCursor

GOES_ON = 1
"""The user state of a block that continues the line of the block before."""


def visible_text(cursor: QTextCursor) -> str:
    """Lines parted by newlines, with the marks of lists; cells of a row by tabs."""
    start, stop = cursor.selectionStart(), cursor.selectionEnd()
    block = cursor.document().findBlock(start)
    parts: list[str] = []
    row = None
    while block.isValid() and block.position() < max(stop, start + 1) and start != stop:
        following_row = _row(block)
        if parts or block.position() > start:
            parts.append(_separator(block, is_same_row=row is not None and row == following_row) if parts else "")
        parts.append(_selected(block, start, stop))
        row = following_row
        block = block.next()
    text = "".join(parts) + ("\n" if block.isValid() and start < stop == block.position() else "")
    return text.replace("\u2028", "\n").replace("\u2029", "\n").replace("\xa0", " ")


def _separator(block: QTextBlock, *, is_same_row: bool) -> str:
    if is_same_row:
        return "\t"
    return "" if block.userState() == GOES_ON else "\n"


def _selected(block: QTextBlock, start: int, stop: int) -> str:
    encoded = block.text().encode("utf-16-le", "surrogatepass")
    first, last = max(start - block.position(), 0), stop - block.position()
    text = encoded[2 * first : 2 * last].decode("utf-16-le", "replace")
    items = block.textList()
    if items is None or start > block.position():
        return text
    return f"{'  ' * (items.format().indent() - 1)}{_mark(block)} {text}"


def _mark(block: QTextBlock) -> str:
    text = block.textList().itemText(block)
    return text if text not in ("", ".") else "•"


def _row(block: QTextBlock) -> tuple[int, int] | None:
    cursor = QTextCursor(block)
    table = cursor.currentTable()
    return (table.firstPosition(), table.cellAt(cursor).row()) if table else None
