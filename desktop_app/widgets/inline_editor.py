"""Edits a message where it stands: Ctrl+Enter takes the new text, Escape gives it up."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from pilotfish.desktop_app.widgets.look import Look

MAX_LINES = 16


class _Field(QPlainTextEdit):
    accepted = Signal()
    cancelled = Signal()

    def event(self, event: QEvent) -> bool:
        # Its own keys come here, not to the shortcuts of the window.
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.ShortcutOverride and _is_own(event):
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if _is_ctrl_enter(event):
            self.accepted.emit()
        elif event.key() == Qt.Key.Key_Escape:
            self.cancelled.emit()
        else:
            super().keyPressEvent(event)


def _is_own(event: QKeyEvent) -> bool:
    return _is_ctrl_enter(event) or event.key() == Qt.Key.Key_Escape


def _is_ctrl_enter(event: QKeyEvent) -> bool:
    is_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
    return is_enter and bool(event.modifiers() & Qt.KeyboardModifier.ControlModifier)


class InlineEditor(QWidget):
    """`finished` has the new text; `cancelled` leaves the old one."""

    finished = Signal(str)
    cancelled = Signal()
    resized = Signal()

    def __init__(self, text: str, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self.field = _Field(self)
        self.field.setPlainText(text)
        self.field.setFont(look.font)
        self.field.setTabChangesFocus(True)
        self.field.setAccessibleName(self.tr("Text of your message"))
        self.field.setToolTip(self.tr("Ctrl+Enter sends the new text, Escape keeps the old one"))
        self._send = self._button(self.tr("Send"), self.tr("Send the new text (Ctrl+Enter)"), "primary")
        cancel = self._button(self.tr("Cancel"), self.tr("Keep the old text (Escape)"), "quiet")
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        buttons.addWidget(cancel)
        buttons.addWidget(self._send)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.field)
        layout.addLayout(buttons)
        self.field.accepted.connect(self._accept)
        self.field.cancelled.connect(self.cancelled)
        self._send.clicked.connect(self._accept)
        cancel.clicked.connect(self.cancelled)
        self.field.textChanged.connect(self._check)
        self.field.document().documentLayout().documentSizeChanged.connect(lambda _: self.resized.emit())

    @property
    def text(self) -> str:
        """The text as it stands."""
        return self.field.toPlainText()

    def sizeHint(self) -> QSize:
        """As high as the text, up to `MAX_LINES` lines."""
        line = self.field.fontMetrics().lineSpacing()
        num_lines = min(max(round(self.field.document().size().height()), 2), MAX_LINES)
        rest = super().sizeHint().height() - self.field.sizeHint().height()
        return QSize(super().sizeHint().width(), num_lines * line + 2 * line + rest)

    def _check(self) -> None:
        self._send.setEnabled(bool(self.text.strip()))

    def _accept(self) -> None:
        if self.text.strip():
            self.finished.emit(self.text)

    def _button(self, text: str, tip: str, role: str) -> QPushButton:
        button = QPushButton(text, self)
        button.setProperty("role", role)
        button.setToolTip(tip)
        button.setFont(self._look.small_font)
        button.setAccessibleName(text)
        return button
