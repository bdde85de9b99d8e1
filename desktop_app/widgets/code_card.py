"""A block of code: its language, a button that copies it, and the code in colours, in lines that are not broken."""

from __future__ import annotations

import math

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QTextBlock, QTextBlockFormat, QTextCursor, QTextOption
from PySide6.QtWidgets import QFrame, QLabel, QToolButton, QWidget

from pilotfish.desktop_app.highlight import Words, by_line, words_of
from pilotfish.desktop_app.origins import Part, Run
from pilotfish.desktop_app.widgets.look import Look
from pilotfish.desktop_app.widgets.prose import displayed
from pilotfish.desktop_app.widgets.text_view import Selecting, TextView
from pilotfish.desktop_app.widgets.tinting import Layer, colour_ranges, lay_over, tint_ranges
from pilotfish.desktop_app.widgets.visible_text import GOES_ON

TAB_CHARACTERS = 4
CODE_LINE_HEIGHT = 118.0  # percent


class CodeCard(QFrame):
    """Code in pieces, of which the last may grow. Each piece is coloured by itself."""

    def __init__(self, look: Look, selecting: Selecting, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "code")
        self._look = look
        self._pieces: list[str] = []
        self._laid_index = 0
        self._laid: list[tuple[str, Words, tuple[Run, ...]]] = []  # what was laid over the lines of that piece
        self.language = QLabel(self)
        self.language.setProperty("role", "small")
        self.copy = QToolButton(self)
        self.copy.setProperty("role", "action")
        self.copy.setText(self.tr("Copy"))
        self.copy.setToolTip(self.tr("Copy this code (Space, when it has the focus)"))
        self.copy.clicked.connect(self.copy_code)
        self.view = TextView(look, selecting, self)
        self.view.setLineWrapMode(TextView.LineWrapMode.NoWrap)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self._style_document()

    @property
    def code(self) -> str:
        """All of the code."""
        return "".join(self._pieces)

    def copy_code(self) -> None:
        """Puts the code on the clipboard, without the end of its last line."""
        QGuiApplication.clipboard().setText(self.code.removesuffix("\n"))

    def show_piece(self, index: int, code: str, language: str, part: Part | None = None) -> None:
        """Shows the piece of that index, the last one or one more; those before stay as they are.

        `part` is what of the message it came of, if it is to be tinted.
        """
        before = self._pieces[index] if index < len(self._pieces) else None
        self._pieces[index:] = [code]
        self.view.keep_selection(lambda: self._write(index, before, code))
        self._lay_over(index, language, part)
        self.language.setText(language or self.tr("code"))
        self.copy.setAccessibleName(self.tr("Copy the code in {}").format(language or self.tr("no language")))

    def remove_pieces(self, index: int) -> None:
        """Takes away the pieces from that one on; not the first."""
        block = self._first_of(index)
        del self._pieces[index:]
        if block.isValid():
            cursor = QTextCursor(block)
            cursor.movePosition(QTextCursor.MoveOperation.PreviousCharacter)
            cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
            cursor.removeSelectedText()

    def lay_out(self, width: int) -> int:
        """Arranges everything over `width` pixels and returns the height."""
        pad = round(self._look.em * 0.5)
        head = max(self.language.sizeHint().height(), self.copy.sizeHint().height())
        button = self.copy.sizeHint().width()
        self.language.setGeometry(2 * pad, pad // 2, max(width - button - 3 * pad, 0), head)
        self.copy.setGeometry(width - button - pad // 2, pad // 2, button, head)
        size = self.view.document().size()
        bar = self.view.horizontalScrollBar().sizeHint().height() if size.width() > width - 4 * pad else 0
        height = math.ceil(size.height()) + bar
        top = pad + head
        self.view.setGeometry(QRect(2 * pad, top, width - 4 * pad, height))
        return top + height + pad

    def _style_document(self) -> None:
        document, font = self.view.document(), self._look.code_font
        self.view.setFont(font)
        option = QTextOption()
        option.setTextDirection(Qt.LayoutDirection.LeftToRight)
        option.setWrapMode(QTextOption.WrapMode.NoWrap)
        option.setTabStopDistance(TAB_CHARACTERS * QFontMetricsF(font).horizontalAdvance(" "))
        document.setDefaultTextOption(option)
        style = QTextBlockFormat()
        style.setLineHeight(CODE_LINE_HEIGHT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value)
        QTextCursor(document).setBlockFormat(style)
        self.view.setAccessibleName(self.tr("Code"))

    def _first_of(self, index: int) -> QTextBlock:
        """The block of the document in which a piece begins, if there is one yet."""
        before = self._pieces[:index]
        number = sum(piece.count("\n") + (not piece.endswith("\n")) for piece in before)
        return self.view.document().findBlockByNumber(number)

    def _write(self, index: int, before: str | None, code: str) -> None:
        """Brings the piece from `before` to `code`. The end of the last line is not shown."""
        shown = _displayed(code)
        cursor = QTextCursor(self.view.document())
        cursor.beginEditBlock()
        if before is not None and shown.startswith(_displayed(before)):
            shown = shown[len(_displayed(before)) :]
            cursor.movePosition(QTextCursor.MoveOperation.End)
        elif (block := self._first_of(index)).isValid():
            self._laid = []
            cursor.setPosition(block.position())
            cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        else:
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertBlock()
            if not self._pieces[index - 1].endswith("\n"):
                cursor.block().setUserState(GOES_ON)
        cursor.insertText(shown)
        cursor.endEditBlock()

    def _lay_over(self, index: int, language: str, part: Part | None) -> None:
        """Colours and tints the lines of a piece that look other than they did."""
        lines = _displayed(self._pieces[index]).split("\n")
        words = by_line("\n".join(lines), words_of("\n".join(lines), language))
        runs = part.runs_of(lines) if part is not None else [()] * len(lines)
        block, colours = self._first_of(index), self._look.colours
        if index != self._laid_index:
            self._laid_index, self._laid = index, []
        layers: list[Layer] = []
        for number, line in enumerate(lines):
            if self._laid[number : number + 1] != [(line, words[number], runs[number])]:
                tints = tint_ranges(line, runs[number], colours)
                layers.append((block, [*tints, *colour_ranges(line, words[number], colours)]))
            block = block.next()
        lay_over(self.view.document(), layers)
        self._laid = list(zip(lines, words, runs, strict=True))


def _displayed(code: str) -> str:
    return displayed(code).replace("\r", "").removesuffix("\n")
