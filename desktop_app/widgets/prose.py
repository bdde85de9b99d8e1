"""Renders Markdown that is no code into a document, in the looks of the theme. No HTML, no pictures, no local links."""

from __future__ import annotations

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import (
    QColor,
    QFont,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextFrame,
    QTextFrameFormat,
    QTextLength,
    QTextOption,
    QTextTable,
)

from pilotfish.desktop_app.highlight import readable
from pilotfish.desktop_app.maths import with_plain_maths
from pilotfish.desktop_app.widgets.look import LINE_HEIGHT, Look
from pilotfish.desktop_app.widgets.text_view import QUOTE_LEVELS, SCHEMES
from pilotfish.desktop_app.widgets.tinting import blocks_of

FEATURES = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML
HEADING_STEPS = {1: 2, 2: 1}  # of the sizes that HTML knows, above that of the text
LONG_WORD = 300  # characters; Qt takes very long to look for a better place to break them than any
_WRAP = {True: QTextOption.WrapMode.WrapAnywhere, False: QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere}
_ONLY_SPECIFIED = QTextCharFormat.FontPropertiesInheritanceBehavior.FontPropertiesSpecifiedOnly
# What Qt takes for the ends of paragraphs and frames, or for pictures, is shown as a replacement.
_DISPLAYED = str.maketrans(dict.fromkeys("\0\u2029\ufdd0\ufdd1\ufffc", "\ufffd"))


def displayed(text: str) -> str:
    """`text` without what means something else to Qt; as many characters as before."""
    return text.translate(_DISPLAYED)


def render_prose(document: QTextDocument, markdown: str, look: Look) -> bool:
    """Replaces what is in `document`, whose default font is that of `look`. Whether there are links in it."""
    option = document.defaultTextOption()
    has_long_words = any(len(word) > LONG_WORD for word in markdown.split())
    if option.wrapMode() != _WRAP[has_long_words]:
        option.setWrapMode(_WRAP[has_long_words])
        document.setDefaultTextOption(option)
    document.setMarkdown(with_plain_maths(displayed(markdown)), FEATURES)
    cursor = QTextCursor(document)
    cursor.beginEditBlock()
    for block in blocks_of(document):
        _style_block(block, look)
    changes = _changes(document, look)
    for start, length, text, change in reversed(changes):
        cursor.setPosition(start)
        cursor.setPosition(start + length, QTextCursor.MoveMode.KeepAnchor)
        if text:
            cursor.insertText(text, change)
        else:
            cursor.setCharFormat(change)
    for frame in document.rootFrame().childFrames():
        _style_table(frame, look)
    cursor.endEditBlock()
    return any(change.isAnchor() for *_, change in changes)


def render_plain(document: QTextDocument, text: str) -> None:
    """As `render_prose`, but as it was written."""
    document.setPlainText(displayed(text))
    cursor = QTextCursor(document)
    cursor.select(QTextCursor.SelectionType.Document)
    cursor.mergeBlockFormat(_spaced(QTextBlockFormat()))


def _spaced(look: QTextBlockFormat) -> QTextBlockFormat:
    look.setLineHeight(LINE_HEIGHT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
    return look


def _style_block(block: QTextBlock, look: Look) -> None:
    style, cursor = block.blockFormat(), QTextCursor(block)
    if cursor.currentTable() is not None:
        return
    is_last = not block.next().isValid()
    is_code = style.hasProperty(QTextFormat.Property.BlockCodeFence)
    space = 0.0 if is_last or is_code else look.em * (0.25 if block.textList() else 0.5)
    style.setTopMargin(0)
    style.setBottomMargin(space)
    if quotes := style.intProperty(QTextFormat.Property.BlockQuoteLevel):
        style.setLeftMargin(min(quotes, QUOTE_LEVELS) * look.em)
    if is_code:
        style.setBackground(QColor(look.colours.code))
        style.setNonBreakableLines(False)
    elif style.hasProperty(QTextFormat.Property.BlockTrailingHorizontalRulerWidth):
        style.setBackground(QColor(look.colours.border))
        style.setLineHeight(look.em * 0.5, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
    elif block.length() == 1 and block.textList() is None:  # Qt puts one before and behind a table
        style.setLineHeight(1, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
        style.setBottomMargin(0)
    else:
        _spaced(style)
    cursor.setBlockFormat(style)
    if level := style.headingLevel():
        heading = QTextCharFormat()
        heading.setProperty(QTextFormat.Property.FontSizeAdjustment, HEADING_STEPS.get(level, 0))
        heading.setFontWeight(QFont.Weight.DemiBold)
        cursor.select(QTextCursor.SelectionType.BlockUnderCursor)
        cursor.mergeCharFormat(heading)
    if quotes:
        muted = QTextCharFormat()
        muted.setForeground(QColor(look.colours.muted))
        cursor.select(QTextCursor.SelectionType.BlockUnderCursor)
        cursor.mergeCharFormat(muted)


def _changes(document: QTextDocument, look: Look) -> list[tuple[int, int, str, QTextCharFormat]]:
    """Position, length, text in its place if any, and format of what looks or is other than Qt makes it."""
    found = []
    for block in blocks_of(document):
        pieces = block.begin()
        while not pieces.atEnd():
            fragment = pieces.fragment()
            style = fragment.charFormat()
            if style.isImageFormat():
                text, style = _instead_of_image(style, look)
                found.append((fragment.position(), fragment.length(), text, style))
            elif style.isAnchor():
                found.append((fragment.position(), fragment.length(), "", _link(style, style.anchorHref(), look)))
            elif style.fontFixedPitch() or style.hasProperty(QTextFormat.Property.FontFamilies):
                style.setFont(look.code_font, _ONLY_SPECIFIED)
                style.setBackground(QColor(look.colours.raised))
                found.append((fragment.position(), fragment.length(), "", style))
            pieces += 1
    return found


def _instead_of_image(style: QTextCharFormat, look: Look) -> tuple[str, QTextCharFormat]:
    """The description of a picture, as a link to it: it is looked at in a browser, if at all."""
    image = style.toImageFormat()
    words = image.stringProperty(QTextFormat.Property.ImageAltText) or image.name() or "…"
    return f"[{words}]", _link(QTextCharFormat(), image.name(), look)


def _link(style: QTextCharFormat, address: str, look: Look) -> QTextCharFormat:
    """The format of a link, or of plain words if the address is one that must not be opened."""
    is_open = QUrl(address).scheme().lower() in SCHEMES
    style.setAnchor(is_open)
    style.setAnchorHref(address if is_open else "")
    style.setToolTip(address)
    style.setFontUnderline(is_open)
    if is_open:
        accent = look.colours.accent
        style.setForeground(QColor(readable(accent, look.colours) if look.has_tints else accent))
    else:
        style.clearForeground()
    return style


def _style_table(frame: QTextFrame, look: Look) -> None:
    if not isinstance(frame, QTextTable):
        return
    style = frame.format()
    style.setBorder(1)
    style.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
    style.setBorderBrush(QColor(look.colours.border))
    style.setBorderCollapse(True)
    style.setCellSpacing(0)
    style.setCellPadding(look.em * 0.35)
    style.setTopMargin(look.em * 0.1)
    style.setBottomMargin(look.em * 0.3)
    style.setWidth(QTextLength())
    style.setAlignment(Qt.AlignmentFlag.AlignLeft)
    frame.setFormat(style)
    for column in range(frame.columns()):
        cell = frame.cellAt(0, column)
        head = cell.format()
        head.setFontWeight(QFont.Weight.DemiBold)
        head.setBackground(QColor(look.colours.raised))
        cell.setFormat(head)
