"""Says what the tints of tokens mean, in the looks that they have."""

from __future__ import annotations

from PySide6.QtGui import QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QWidget

from pilotfish.desktop_app.origins import KINDS
from pilotfish.desktop_app.widgets.look import Look
from pilotfish.desktop_app.widgets.prose_view import ProseView
from pilotfish.desktop_app.widgets.text_view import Selecting
from pilotfish.desktop_app.widgets.tinting import tint


class Legend(ProseView):
    """One line, or as many as it takes."""

    def __init__(self, look: Look, selecting: Selecting, parent: QWidget | None = None) -> None:
        super().__init__(look, selecting, parent=parent)
        words = {
            "model": self.tr("drafted by the draft model (dotted)"),
            "lookup": self.tr("copied from earlier text (dashed)"),
            "target": self.tr("written by the target (no line)"),
        }
        self.setFont(look.small_font)
        self.setAccessibleName(self.tr("What the tints mean"))
        cursor = QTextCursor(self.document())
        for kind in KINDS:
            cursor.insertText(f"\u2002{words[kind]}\u2002", tint(kind, look.colours))
            cursor.insertText("   ", QTextCharFormat())
