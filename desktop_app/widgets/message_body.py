"""The text of a message: a column of views, one for each block, of which only those that change are rendered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from PySide6.QtCore import QRect, Signal
from PySide6.QtWidgets import QWidget

from pilotfish.desktop_app.conversation import Span, as_unicode
from pilotfish.desktop_app.markdown_blocks import Block, Split, grown, plain_blocks
from pilotfish.desktop_app.origins import Origins, Part
from pilotfish.desktop_app.references import with_definitions
from pilotfish.desktop_app.widgets.code_card import CodeCard
from pilotfish.desktop_app.widgets.look import Look
from pilotfish.desktop_app.widgets.prose_view import ProseView
from pilotfish.desktop_app.widgets.selection import Selection
from pilotfish.desktop_app.widgets.text_view import TextView

BUDGET = 3000  # what may be rendered in one frame, in characters
COST_OF_VIEW = 300  # what a view costs beside its characters
COST_OF_CELL = 10  # and a cell of a table


@dataclass(slots=True)
class _Shown:
    """A block and where it is shown: in a view of its own, or as a piece of a card of code.

    `height` is that of the view at `width`, or of none if it has changed since.
    """

    block: Block
    text: str
    view: ProseView | CodeCard
    piece: int = 0
    width: int = -1
    height: int = 0


class MessageBody(QWidget):
    """Shows a text that may grow. `advance` renders a part of what is new; `lay_out` arranges what is rendered."""

    link_opened = Signal(str)

    def __init__(
        self, look: Look, selection: Selection, *, is_plain: bool = False, parent: QWidget | None = None
    ) -> None:  # fmt: skip
        super().__init__(parent)
        self._look, self._selection, self._is_plain = look, selection, is_plain
        self._width = 0
        self._source = ""  # what is to be shown
        self._origins = Origins(())
        self._read = ""  # as far as it was split
        self._split = Split()
        self._shown: list[_Shown] = []
        self._num_settled = 0  # blocks that are shown as they will stay

    @property
    def views(self) -> list[TextView]:
        """All texts, from the first to the last."""
        found: list[TextView] = []
        for each in self._shown:
            view = each.view.view if isinstance(each.view, CodeCard) else each.view
            if not found or found[-1] is not view:
                found.append(view)
        return found

    @property
    def is_behind(self) -> bool:
        """Whether something is yet to be rendered."""
        num_wanted = max(len(self._split.blocks), len(self._shown))
        return len(self._read) < len(self._source) or self._num_settled < num_wanted

    def set_source(self, text: str, spans: Iterable[Span] = ()) -> None:
        """Takes the text, which in most cases goes on from the one before, and who wrote it."""
        text = as_unicode(text)
        if not text.startswith(self._read):
            self._read, self._split, self._num_settled = "", Split(), 0
        self._source = text
        self._origins = Origins(spans)

    def advance(self, width: int, budget: int = BUDGET) -> int:
        """Renders about `budget` characters of what is new, or one block; returns what is left of the budget.

        `width` is that at which the lines will be broken; a text need not be laid out twice then.
        """
        self._width = width
        if len(self._read) < len(self._source):
            self._read = self._source[: len(self._read) + max(budget, 1)]
            before = self._split
            self._split = plain_blocks(before, self._read) if self._is_plain else grown(before, self._read)
            is_new = before.definitions != self._split.definitions
            self._num_settled = 0 if is_new else min(self._num_settled, before.num_frozen)
        index, blocks = self._num_settled, self._split.blocks
        while index < len(blocks) and budget > 0:
            budget -= self._show(index, blocks[index])
            index += 1
        if index == len(blocks):
            self._remove_from(index)
        self._num_settled = index
        return budget

    def lay_out(self, width: int) -> int:
        """Arranges the views over `width` pixels and returns the height."""
        self._width, top = width, 0
        for each in self._shown:
            if each.piece:
                continue
            if top and not each.block.continues:
                top += round(self._look.em * 0.6)
            indent, wide = self._indented(each.block)
            if each.width != width:
                is_empty = not each.text.strip() and not isinstance(each.view, CodeCard)
                each.width, each.height = width, 0 if is_empty else each.view.lay_out(wide)
            if (geometry := QRect(indent, top, wide, each.height)) != each.view.geometry():
                each.view.setGeometry(geometry)
            top += each.height
        return top

    def ideal_width(self) -> int:
        """How wide the widest line is, as the lines are broken now."""
        return max((round(view.document().idealWidth() + 1) for view in self.views), default=0)

    def _show(self, index: int, block: Block) -> int:
        """Shows a block as the one of that index; returns what it cost."""
        text = block.text if block.kind == "code" else with_definitions(block.text, self._split.definitions)
        if index < len(self._shown):
            before = self._shown[index]
            is_same = before.text == text and replace(before.block, stop=block.stop) == block
            if is_same and not self._look.has_tints:
                return 0
            if not _fits(before, block):
                self._remove_from(index)
        if index == len(self._shown):
            self._shown.append(self._new(index, block))
        shown = self._shown[index]
        shown.block, shown.text = block, text
        self._shown[index - shown.piece].width = -1
        part = None
        if self._look.has_tints:
            part = Part(self._read[block.text_start : block.stop], block.text_start, self._origins, block.head)
        if isinstance(shown.view, CodeCard):
            shown.view.show_piece(shown.piece, text, block.language, part)
        else:
            shown.view.show_text(text, part)
        return len(text) + COST_OF_VIEW + COST_OF_CELL * (text.count("|") if block.kind == "prose" else 0)

    def _new(self, index: int, block: Block) -> _Shown:
        if block.kind == "code":
            before = self._shown[index - 1] if index else None
            if block.continues and before is not None and isinstance(before.view, CodeCard):
                return _Shown(block, "", before.view, before.piece + 1)
            card = CodeCard(self._look, self._selection, self)
            card.show()
            return _Shown(block, "", card)
        view = ProseView(self._look, self._selection, is_plain=self._is_plain, parent=self)
        view.link_opened.connect(self.link_opened)
        view.lay_out(self._indented(block)[1])
        view.show()
        return _Shown(block, "", view)

    def _indented(self, block: Block) -> tuple[int, int]:
        """Where a block begins, and how wide it is."""
        indent = min(round(block.level * self._look.em * 1.3), self._width // 2)
        return indent, self._width - indent

    def _remove_from(self, index: int) -> None:
        for each in self._shown[index:]:
            if each.piece == 0:
                each.view.hide()
                each.view.deleteLater()
        if index < len(self._shown) and self._shown[index].piece:
            card = self._shown[index].view
            if isinstance(card, CodeCard):
                card.remove_pieces(self._shown[index].piece)
        del self._shown[index:]


def _fits(shown: _Shown, block: Block) -> bool:
    """Whether what shows one block can show this one."""
    is_piece = block.kind == "code" and block.continues
    return isinstance(shown.view, CodeCard) == (block.kind == "code") and bool(shown.piece) == is_piece
