"""Where a message is written, with its files, the context meter, and the button that sends or stops."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from PySide6.QtCore import QSize, QTimer, Signal
from PySide6.QtWidgets import QFileDialog, QFrame, QHBoxLayout, QLabel, QPushButton, QToolButton, QVBoxLayout, QWidget

from pilotfish.desktop_app.attachments import pasted_attachment, read_attachment
from pilotfish.desktop_app.conversation import Message
from pilotfish.desktop_app.drafts import Draft
from pilotfish.desktop_app.errors import AttachmentError
from pilotfish.desktop_app.protocol import Counted
from pilotfish.desktop_app.themes import LIGHT, Colours
from pilotfish.desktop_app.widgets.attachment_chips import AttachmentChips
from pilotfish.desktop_app.widgets.composer_editor import ComposerEditor
from pilotfish.desktop_app.widgets.context_meter import ContextMeter
from pilotfish.desktop_app.widgets.icons import icon
from pilotfish.desktop_app.widgets.shortcuts import tool_tip

COUNT_AFTER_MS = 300  # of quiet; counting a long chat on every key would keep the engine busy
MOST_PASTED = 200_000  # characters that can be put into the field all the same


class Composer(QFrame):
    """`text_changed` comes after a pause, with the message as the model would read it; for the context meter."""

    sent = Signal(str, object)
    stop_requested = Signal()
    text_changed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer")
        self._colours = LIGHT
        self._is_busy, self._obstacle = False, ""
        self._shown_icon = ("", "")
        self.editor = ComposerEditor(self)
        self.chips = AttachmentChips(self)
        self.meter = ContextMeter(self)
        self._attach = QToolButton(self, autoRaise=True)
        self._send = QPushButton(self)
        self._notice = QLabel(self, wordWrap=True)
        self._as_text = QPushButton(self.tr("Paste as text"), self)
        self._pause = QTimer(self, singleShot=True, interval=COUNT_AFTER_MS)
        self._name_controls()
        self._lay_out()
        self._connect()
        self._update_button()

    @property
    def draft(self) -> Draft:
        """What was written so far."""
        return Draft(self.editor.toPlainText(), self.chips.attachments)

    @property
    def prompt_text(self) -> str:
        """The same as the model would read it."""
        draft = self.draft
        return Message("draft", None, "user", draft.text, 0.0, attachments=draft.attachments).prompt_text

    def set_draft(self, draft: Draft) -> None:
        """Puts a message into the field, such as the one that was begun in another chat."""
        self._say("")
        if self.editor.toPlainText() != draft.text:
            self.editor.setPlainText(draft.text)
            self.editor.moveCursor(self.editor.textCursor().MoveOperation.End)
        self.chips.set_attachments(draft.attachments)

    def set_busy(self, is_busy: bool) -> None:
        """While a reply is written the button stops it."""
        self._is_busy = is_busy
        self._update_button()

    def set_obstacle(self, obstacle: str) -> None:
        """Why nothing can be sent now, such as "no model is loaded"; empty if something can."""
        self._obstacle = obstacle
        self._update_button()

    def set_meter(self, counted: Counted | None, policy: str = "drop") -> None:
        """How full the context would be; `policy` is one of `overflow.POLICIES`."""
        self.meter.show_count(counted, policy)

    def set_colours(self, colours: Colours) -> None:
        """Another theme."""
        self._colours = colours
        self.chips.set_colours(colours)
        self.meter.set_colours(colours)
        self._attach.setIcon(icon("attach", colours.muted))
        self._update_button()

    def attach(self, paths: Iterable[Path]) -> None:
        """Attaches text files; says why if one cannot be."""
        faults, read = [], []
        for path in paths:
            try:
                read.append(read_attachment(path))
            except AttachmentError as error:
                faults.append(str(error))
        self.chips.set_attachments((*self.chips.attachments, *read))
        self._say(" ".join(f"{fault}." for fault in faults))

    def choose_files(self) -> None:
        """Asks for files and attaches them."""
        names, _ = QFileDialog.getOpenFileNames(self, self.tr("Attach text files"))
        self.attach(Path(name) for name in names)

    def submit(self) -> None:
        """Sends the message and empties the field, unless there is nothing to send or nobody to answer."""
        draft = self.draft
        if self._is_busy or not (draft.text.strip() or draft.attachments):
            return
        if self._obstacle:
            self._say(self._obstacle)
            return
        self.set_draft(Draft())
        self.sent.emit(draft.text, draft.attachments)

    def _name_controls(self) -> None:
        self._attach.setToolTip(tool_tip(self.tr("Attach text files; they can be dropped here too"), "attach"))
        self._attach.setAccessibleName(self.tr("Attach text files"))
        self._attach.setIconSize(QSize(20, 20))
        self._send.setIconSize(QSize(18, 18))
        self._as_text.setToolTip(self.tr("Put the pasted text into the message instead (Space)"))
        self._as_text.setAccessibleName(self.tr("Paste as text"))
        self._send.setObjectName("send")
        self._notice.setObjectName("notice")
        self._as_text.hide()
        self._notice.hide()
        self.setFocusProxy(self.editor)

    def _lay_out(self) -> None:
        notice = QHBoxLayout()
        notice.addWidget(self._notice, 1)
        notice.addWidget(self._as_text)
        buttons = QHBoxLayout()
        buttons.addWidget(self._attach)
        buttons.addWidget(self.meter)
        buttons.addStretch(1)
        buttons.addWidget(self._send)
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 10, 10, 8)
        column.setSpacing(6)
        column.addWidget(self.chips)
        column.addLayout(notice)
        column.addWidget(self.editor)
        column.addLayout(buttons)

    def _connect(self) -> None:
        self.editor.submitted.connect(self.submit)
        self.editor.focused.connect(self._show_focus)
        self.editor.large_paste.connect(self._attach_paste)
        self.editor.files_dropped.connect(self.attach)
        self.editor.textChanged.connect(self._pause.start)
        self.editor.textChanged.connect(self._update_button)
        self.chips.changed.connect(lambda: self._say(""))
        self.chips.changed.connect(self._pause.start)
        self.chips.changed.connect(self._update_button)
        self._attach.clicked.connect(self.choose_files)
        self._as_text.clicked.connect(self._paste_as_text)
        self._send.clicked.connect(lambda: self.stop_requested.emit() if self._is_busy else self.submit())
        self._pause.timeout.connect(self._tell)

    def _show_focus(self, has_focus: bool) -> None:
        self.setProperty("active", has_focus)
        self.style().unpolish(self)
        self.style().polish(self)

    def _tell(self) -> None:
        self.text_changed.emit(self.prompt_text)

    def _attach_paste(self, text: str) -> None:
        pasted = pasted_attachment(text, frozenset(each.name for each in self.chips.attachments))
        self.chips.set_attachments((*self.chips.attachments, pasted))
        self._say(self.tr("The pasted text is long and was attached as a file."))
        self._as_text.setVisible(len(text) <= MOST_PASTED)

    def _paste_as_text(self) -> None:
        pasted = self.chips.attachments[-1]
        self.chips.remove(pasted)
        self._say("")
        self.editor.insertPlainText(pasted.text)
        self.editor.setFocus()

    def _say(self, text: str) -> None:
        self._notice.setText(text)
        self._notice.setVisible(bool(text))
        self._as_text.hide()

    def _update_button(self) -> None:
        self._send.setProperty("stops", self._is_busy)
        name, words = ("stop", self.tr("Stop")) if self._is_busy else ("send", self.tr("Send"))
        has_message = bool(self.chips.attachments or not self.editor.document().isEmpty())
        self._send.setEnabled(self._is_busy or (has_message and not self._obstacle))
        ink = self._colours.on_accent if self._send.isEnabled() else self._colours.muted
        if (name, ink) != self._shown_icon:  # drawing it takes longer than a key may
            self._shown_icon = (name, ink)
            self._send.setIcon(icon(name, ink))
        self._send.setAccessibleName(words)
        tip = tool_tip(words, "stop" if self._is_busy else "send")
        self._send.setToolTip(self._obstacle if self._obstacle and not self._is_busy else tip)
