"""The messages of a chat, as the window shows them."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QToolButton, QWidget

from pilotfish.desktop_app.conversation import Conversation, Message
from pilotfish.desktop_app.themes import Colours
from pilotfish.desktop_app.widgets.legend import Legend
from pilotfish.desktop_app.widgets.look import Look
from pilotfish.desktop_app.widgets.message_body import MessageBody
from pilotfish.desktop_app.widgets.message_list import MessageList
from pilotfish.desktop_app.widgets.message_row import MessageRow
from pilotfish.desktop_app.widgets.selection import Selection
from pilotfish.desktop_app.widgets.text_view import TextView
from pilotfish.desktop_app.widgets.transcript_sheet import transcript_sheet

FRAME_MS = 33
FIRST_FRAMES = 6  # of a chat that is opened, at once


class Transcript(QWidget):
    """Shows what it is told and changes nothing: its signals say what the user wants done.

    Whatever changes is rendered in frames, about thirty in a second and none while nothing changes.
    """

    edit_requested = Signal(str, str)
    regenerate_requested = Signal(str)
    continue_requested = Signal(str)
    chosen = Signal(str)
    link_opened = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._conversation: Conversation | None = None
        self._look = Look()
        self._changed_ids: set[str] = set()
        self._is_busy = False
        self._edits: dict[str, str] = {}  # texts of editors whose rows are made anew
        self._selection = Selection(_views_beside)
        self.list = MessageList(self._new_row, self)
        self.legend = self._new_legend()
        self.jump = QToolButton(self)
        self.jump.setProperty("role", "jump")
        self.jump.setText(self.tr("↓ Jump to the end"))
        self.jump.setAccessibleName(self.tr("Jump to the end"))
        self.jump.setToolTip(self.tr("Show the end of the chat (Ctrl+End)"))
        self.jump.clicked.connect(self.scroll_to_end)
        shortcut = QShortcut(QKeySequence("Ctrl+End"), self, context=Qt.ShortcutContext.WidgetWithChildrenShortcut)
        shortcut.activated.connect(self.scroll_to_end)
        self._timer = QTimer(self, interval=FRAME_MS)
        self._timer.timeout.connect(self.draw_frame)
        self.list.work_arrived.connect(self._wake)
        self._dress()

    def show_conversation(self, conversation: Conversation) -> None:
        """Shows the path of a chat: another one from its end, the same one where it was."""
        before, self._conversation = self._conversation, conversation
        self._changed_ids.clear()
        is_other = before is None or before.id != conversation.id
        if is_other:
            self._changed_ids.clear()
            self.list.set_messages((), self._look.em)
        self._show_path()
        if is_other or before is None or len(conversation.messages) > len(before.messages):
            self.list.advance(0)
            self.list.scroll_to_end()
        for _ in range(FIRST_FRAMES):
            if not self.list.advance():
                break
        self._show_jump()

    def update_message(self, conversation: Conversation, message_id: str) -> None:
        """Takes a message that is new or has grown; cheap, as it may come with every token."""
        if self._conversation is None or _tree(self._conversation) != _tree(conversation):
            self.show_conversation(conversation)
        else:
            self._conversation = conversation
            self._changed_ids.add(message_id)
            self._wake()

    def set_colours(self, colours: Colours) -> None:
        """Colours everything anew."""
        self._set_look(replace(self._look, colours=colours))

    def set_tints(self, has_tints: bool) -> None:
        """Whether tokens are tinted by who wrote them."""
        self._set_look(replace(self._look, has_tints=has_tints))

    def set_zoom(self, zoom: float) -> None:
        """How large everything is; 1 is normal, whatever the size of the application's font."""
        self._set_look(replace(self._look, zoom=zoom))

    def scroll_to_end(self) -> None:
        """Shows the end, and what comes there as it comes."""
        self.list.scroll_to_end()
        self.list.advance()
        self.list.scroll_to_end()

    def scroll_to(self, message_id: str) -> None:
        """Shows a message from its beginning, such as one that was found."""
        self.list.scroll_to(message_id)

    def show_widget(self, widget: QWidget) -> None:
        """Scrolls to a widget of a message, if it is one."""
        if self.list.isAncestorOf(widget):
            self.list.ensureWidgetVisible(widget)

    def begin_edit(self, message_id: str) -> None:
        """Opens the editor of a message of the user, for the keyboard."""
        if (row := self.list.scroll_to(message_id)) is not None:
            row.edit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Arranges the parts."""
        super().resizeEvent(event)
        self._arrange()

    def _wake(self) -> None:
        if not self._timer.isActive():
            self._timer.start()

    @property
    def is_idle(self) -> bool:
        """Whether everything is shown as it is, and no frames are drawn."""
        return not self._timer.isActive()

    def draw_frame(self) -> None:
        """One frame: what has changed, and a part of what is not rendered yet."""
        if self._conversation is not None:
            for message_id in self._changed_ids:
                self._show_changed(self._conversation, self._conversation.message(message_id))
        self._changed_ids.clear()
        if not self.list.advance():
            self._timer.stop()
        self._show_jump()

    def _show_changed(self, conversation: Conversation, message: Message) -> None:
        row = self.list.set_message(message)
        if self.list.ids[-1:] == [message.id] and (message.state == "streaming") != self._is_busy:
            self._show_path()
        elif row is not None:
            row.show_message(message, conversation.siblings(message.id), is_busy=self._is_busy)

    def _show_path(self) -> None:
        if self._conversation is None:
            return
        path = self._conversation.path
        self._is_busy = bool(path) and path[-1].state == "streaming"
        self.list.set_messages(path, self._look.em)
        for row in self.list.rows:
            message = self._conversation.message(row.message.id)
            row.show_message(message, self._conversation.siblings(message.id), is_busy=self._is_busy)
            self.list.set_message(message)

    def _set_look(self, look: Look) -> None:
        if look == self._look:
            return
        scale = look.em / self._look.em
        self._look = look
        self._edits = {row.message.id: row.editor.text for row in self.list.rows if row.editor is not None}
        self.list.discard_rows(scale)
        self._dress()
        for _ in range(FIRST_FRAMES):
            if not self.list.advance():
                break

    def _dress(self) -> None:
        self.setStyleSheet(transcript_sheet(self._look))
        self.legend.hide()
        self.legend.deleteLater()
        self.legend = self._new_legend()
        self.jump.setFont(self._look.small_font)
        self._arrange()

    def _new_legend(self) -> Legend:
        legend = Legend(self._look, self._selection, self)
        legend.setVisible(self._look.has_tints)
        return legend

    def _new_row(self, message: Message, parent: QWidget) -> MessageRow:
        row = MessageRow(message, self._look, self._selection, parent)
        row.edited.connect(self.edit_requested)
        row.regenerate_clicked.connect(self.regenerate_requested)
        row.continue_clicked.connect(self.continue_requested)
        row.chosen.connect(self.chosen)
        row.link_opened.connect(self.link_opened)
        siblings = self._conversation.siblings(message.id) if self._conversation else (message,)
        row.show_message(message, siblings, is_busy=self._is_busy)
        row.show()
        if message.id in self._edits:
            row.edit(self._edits.pop(message.id))
        return row

    def _arrange(self) -> None:
        pad, top = round(self._look.em * 0.5), 0
        if self._look.has_tints:
            width = max(self.width() - 2 * pad, 1)
            height = self.legend.lay_out(width)
            self.legend.setGeometry(pad, pad, width, height)
            top = height + 2 * pad
        self.list.setGeometry(0, top, self.width(), max(self.height() - top, 0))
        size = self.jump.sizeHint()
        self.jump.setGeometry((self.width() - size.width()) // 2, self.height() - size.height() - pad, *size.toTuple())
        self.jump.raise_()
        self._show_jump()

    def _show_jump(self) -> None:
        self.jump.setVisible(not self.list.is_at_end)


def _tree(conversation: Conversation) -> tuple[str, int, tuple[str, ...]]:
    """What the shown path depends on."""
    return conversation.id, len(conversation.messages), conversation.chosen_ids


def _views_beside(view: TextView) -> list[TextView]:
    """All views of the message that `view` belongs to."""
    parent = view.parentWidget()
    while parent is not None and not isinstance(parent, MessageBody):
        parent = parent.parentWidget()
    return parent.views if parent is not None else [view]
