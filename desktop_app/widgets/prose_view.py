"""A block of a message that is no code."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from pilotfish.desktop_app.origins import Part
from pilotfish.desktop_app.widgets.look import Look
from pilotfish.desktop_app.widgets.prose import render_plain, render_prose
from pilotfish.desktop_app.widgets.text_view import Selecting, TextView
from pilotfish.desktop_app.widgets.tinting import blocks_of, lay_over, tint_ranges


class ProseView(TextView):
    """Shows Markdown, or a text as it was written."""

    def __init__(
        self, look: Look, selecting: Selecting, *, is_plain: bool = False, parent: QWidget | None = None
    ) -> None:
        super().__init__(look, selecting, parent)
        self._is_plain = is_plain

    def show_text(self, text: str, part: Part | None = None) -> None:
        """Renders `text` in place of what was shown; `part` is what it came of, if it is to be tinted."""
        self.keep_selection(lambda: self._render(text))
        if part is not None:
            blocks = blocks_of(self.document())
            texts = [block.text() for block in blocks]
            tints = [
                tint_ranges(rendered, runs, self.look.colours)
                for rendered, runs in zip(texts, part.runs_of(texts), strict=True)
            ]
            lay_over(self.document(), list(zip(blocks, tints, strict=True)))

    def selected_text(self) -> str:
        """Without the empty lines that Qt puts around tables."""
        return super().selected_text().strip("\n")

    def _render(self, text: str) -> None:
        if self._is_plain:
            render_plain(self.document(), text)
            return
        has_links = render_prose(self.document(), text, self.look)
        self.has_quotes = ">" in text
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus if has_links else Qt.FocusPolicy.ClickFocus)
