"""The field where a message is written: grows with its text, sends on Enter, hands on files and very large pastes."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QElapsedTimer, QMimeData, QSize, Qt, Signal
from PySide6.QtGui import (
    QDragEnterEvent,
    QDropEvent,
    QFocusEvent,
    QGuiApplication,
    QInputMethodEvent,
    QKeyEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QSizePolicy, QWidget

from pilotfish.desktop_app.attachments import LARGE_PASTE

MAX_LINES = 10
CONFIRM_MS = 100  # nobody presses Enter again so soon after the one that confirmed a candidate
ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)
NEW_LINE = Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.AltModifier


class ComposerEditor(QPlainTextEdit):
    """Emits `submitted` on Enter, `large_paste` instead of taking a very large text, and `files_dropped` with paths."""

    submitted = Signal()
    large_paste = Signal(str)
    files_dropped = Signal(object)
    focused = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._since_confirmed = QElapsedTimer()
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setAccessibleName(self.tr("Message"))
        self.setToolTip(self.tr("Write a message (Enter sends, Shift+Enter begins a new line)"))
        self.setPlaceholderText(self.tr("Ask anything"))
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        self._fit()

    @property
    def is_composing(self) -> bool:
        """Whether an input method has text that is not confirmed yet."""
        return bool(self.textCursor().block().layout().preeditAreaText())

    def sizeHint(self) -> QSize:
        """As high as the text, between one line and `MAX_LINES`."""
        num_lines = min(max(self.document().size().height(), 1), MAX_LINES)
        margins = 2 * self.document().documentMargin() + self.contentsMargins().top() + self.contentsMargins().bottom()
        return QSize(200, round(num_lines * self.fontMetrics().lineSpacing() + margins + 2))

    def minimumSizeHint(self) -> QSize:
        """The same height, so that no layout squeezes it."""
        return QSize(80, self.sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Another width wraps into another number of lines."""
        super().resizeEvent(event)
        self._fit()

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        """Notes when a candidate was confirmed: some platforms deliver that Enter as a key afterwards."""
        was_composing = self.is_composing
        super().inputMethodEvent(event)
        if was_composing and not self.is_composing and event.commitString():
            self._since_confirmed.start()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """For the frame around it."""
        super().focusInEvent(event)
        self.focused.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """For the frame around it."""
        super().focusOutEvent(event)
        self.focused.emit(False)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter sends; with Shift or Alt it begins a line; while a candidate is open it only confirms that."""
        if event.key() not in ENTER:
            super().keyPressEvent(event)
        elif self.is_composing:
            QGuiApplication.inputMethod().commit()
        elif self._since_confirmed.isValid() and not self._since_confirmed.hasExpired(CONFIRM_MS):
            self._since_confirmed.invalidate()
        elif event.modifiers() & NEW_LINE:
            self.textCursor().insertBlock()
            self.ensureCursorVisible()
        elif not event.isAutoRepeat():
            self.submitted.emit()

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        """Text and files."""
        return source.hasUrls() or source.hasText()

    def insertFromMimeData(self, source: QMimeData) -> None:
        """A paste or a drop; the text is looked at once and not laid out if it is very large."""
        paths = [Path(url.toLocalFile()) for url in source.urls() if url.isLocalFile()]
        if paths:
            self.files_dropped.emit(paths)
            return
        text = source.text()
        if len(text) >= LARGE_PASTE:
            self.large_paste.emit(text)
        else:
            self.insertPlainText(text)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Files are welcome."""
        if event.mimeData().hasUrls():
            event.acceptProposedAction()
        else:
            super().dragEnterEvent(event)

    def dropEvent(self, event: QDropEvent) -> None:
        """Files are handed on; text is inserted where it was dropped."""
        if event.mimeData().hasUrls():
            event.acceptProposedAction()
            self.insertFromMimeData(event.mimeData())
        else:
            super().dropEvent(event)

    def _fit(self) -> None:
        is_full = self.document().size().height() > MAX_LINES
        policy = Qt.ScrollBarPolicy
        self.setVerticalScrollBarPolicy(policy.ScrollBarAsNeeded if is_full else policy.ScrollBarAlwaysOff)
        self.updateGeometry()
