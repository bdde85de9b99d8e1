"""The tints of tokens and the colours of code, laid over a document that stays as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pygments.token import _TokenType
from PySide6.QtGui import QColor, QFont, QTextBlock, QTextCharFormat, QTextDocument, QTextLayout

from pilotfish.desktop_app.highlight import Words, inks
from pilotfish.desktop_app.origins import Run
from pilotfish.desktop_app.themes import Colours

UNDERLINES = {
    "model": QTextCharFormat.UnderlineStyle.DotLine,
    "lookup": QTextCharFormat.UnderlineStyle.DashUnderline,
    "target": QTextCharFormat.UnderlineStyle.NoUnderline,
}
"""What tells the kinds of origins apart for those who do not see the colours."""


def tint(kind: str, colours: Colours) -> QTextCharFormat:
    """How the tokens of one kind of origin look."""
    style = QTextCharFormat()
    style.setBackground(QColor(getattr(colours, f"by_{kind}")))
    style.setUnderlineStyle(UNDERLINES[kind])
    style.setUnderlineColor(QColor(colours.text))
    return style


def tint_ranges(text: str, runs: Iterable[Run], colours: Colours) -> list[QTextLayout.FormatRange]:
    """The tints of `runs` over the characters of `text`."""
    offsets = offsets_of(text)
    return [
        _range(offsets[run.start], offsets[run.start + run.length], tint(run.kind, colours))
        for run in runs
    ]  # fmt: skip


def colour_ranges(text: str, words: Words, colours: Colours) -> list[QTextLayout.FormatRange]:
    """The colours of the words of `text`, which is a line of code."""
    offsets, looks = offsets_of(text), inks(colours)
    ranges = []
    for start, length, kind in words:
        known: _TokenType | None = kind
        while known is not None and known not in looks:
            known = known.parent
        if known is not None:
            ink, style = looks[known], QTextCharFormat()
            style.setForeground(QColor(ink.colour))
            if ink.is_bold:
                style.setFontWeight(QFont.Weight.Bold)
            style.setFontItalic(ink.is_italic)
            ranges.append(_range(offsets[start], offsets[start + length], style))
    return ranges


Layer = tuple[QTextBlock, Sequence[QTextLayout.FormatRange]]


def lay_over(document: QTextDocument, layers: Sequence[Layer]) -> None:
    """Lays formats over blocks, which follow each other, in place of those that were there; laid out once."""
    for block, ranges in layers:
        block.layout().setFormats(list(ranges))
    if layers:
        start, last = layers[0][0].position(), layers[-1][0]
        document.markContentsDirty(start, last.position() + last.length() - start)


def blocks_of(document: QTextDocument) -> list[QTextBlock]:
    """The blocks of a document, in order."""
    found, block = [], document.begin()
    while block.isValid():
        found.append(block)
        block = block.next()
    return found


def offsets_of(text: str) -> Sequence[int]:
    """Where each character of `text` and its end are in UTF-16, which Qt counts in."""
    if text.isascii() or max(text) < "\U00010000":
        return range(len(text) + 1)
    offsets = [0]
    for character in text:
        offsets.append(offsets[-1] + (2 if character >= "\U00010000" else 1))
    return offsets


def _range(start: int, stop: int, style: QTextCharFormat) -> QTextLayout.FormatRange:
    found = QTextLayout.FormatRange()
    found.start, found.length, found.format = start, stop - start, style
    return found
