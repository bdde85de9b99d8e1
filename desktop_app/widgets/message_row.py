"""One message: attachments, text, what is wrong with it, what it cost, and what can be done with it."""

from __future__ import annotations

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtGui import QColor, QFocusEvent, QGuiApplication, QKeyEvent, QKeySequence, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QFrame, QLabel, QWidget

from pilotfish.desktop_app.conversation import Attachment, Message
from pilotfish.desktop_app.widgets.inline_editor import InlineEditor
from pilotfish.desktop_app.widgets.look import Look
from pilotfish.desktop_app.widgets.message_actions import MessageActions
from pilotfish.desktop_app.widgets.message_body import BUDGET, MessageBody
from pilotfish.desktop_app.widgets.message_footer import footer_text, notice_text
from pilotfish.desktop_app.widgets.selection import Selection
from pilotfish.desktop_app.widgets.theme import set_role

LINE_CHARACTERS = 40  # the widest line, in heights of the font
NAMED_CHARACTERS = 300
PAD = 0.6  # around a message, in heights of the font


class MessageRow(QWidget):
    """Shows a message of the user in a bubble, a reply over the whole width."""

    edited = Signal(str, str)
    regenerate_clicked = Signal(str)
    continue_clicked = Signal(str)
    chosen = Signal(str)
    link_opened = Signal(str)
    changed_height = Signal()

    def __init__(self, message: Message, look: Look, selection: Selection, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message = message
        self._look = look
        self._is_mine = message.role == "user"
        self._has_keyboard = False
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._bubble = QFrame(self)
        self._bubble.setProperty("role", "bubble" if self._is_mine else "")
        self.body = MessageBody(look, selection, is_plain=self._is_mine, parent=self._bubble)
        self.chips: list[QLabel] = []
        self.notice = self._label("error", self.tr("What is wrong with the message"))
        self.footer = self._label("small", self.tr("What the reply cost"))
        self.action_bar = MessageActions(look, self)
        self.editor: InlineEditor | None = None
        self.body.link_opened.connect(self.link_opened)
        self.action_bar.copy_clicked.connect(self.copy)
        self.action_bar.edit_clicked.connect(self.edit)
        self.action_bar.regenerate_clicked.connect(lambda: self.regenerate_clicked.emit(self.message.id))
        self.action_bar.continue_clicked.connect(lambda: self.continue_clicked.emit(self.message.id))
        self.action_bar.chosen.connect(self.chosen)

    def show_message(self, message: Message, siblings: tuple[Message, ...], *, is_busy: bool) -> None:
        """Takes what is new of the message; the text is rendered by `advance`."""
        if message.attachments != self.message.attachments or (message.attachments and not self.chips):
            self._show_chips(message.attachments)
        self.message = message
        self.body.set_source(message.text, message.spans)
        self.notice.setText(notice_text(message))
        self.notice.setVisible(bool(self.notice.text()))
        set_role(self.notice, "warning" if message.state == "interrupted" else "error")
        is_waiting = message.state == "streaming" and not message.text
        self.footer.setText(
            self.tr("Thinking …") if is_waiting else footer_text(message.stats) if message.stats else ""
        )
        self.footer.setVisible(bool(self.footer.text()) and (is_waiting or message.state != "streaming"))
        self.action_bar.show_for(message, siblings, is_busy=is_busy)
        who = self.tr("Your message") if self._is_mine else self.tr("Reply")
        self.setAccessibleName(f"{who}: {message.text[:NAMED_CHARACTERS]}")
        self.setAccessibleDescription(self.tr("Ctrl+C copies the message, Enter goes into its text"))

    def advance(self, width: int, budget: int = BUDGET) -> int:
        """As of `MessageBody`; `width` is that of the row."""
        return self.body.advance(self._text_width(self._line(width)), budget)

    def lay_out(self, width: int) -> int:
        """Arranges everything over `width` pixels and returns the height."""
        em = self._look.em
        pad = round(em * PAD)
        line = self._line(width)
        left = (width - line) // 2
        top = self._lay_out_chips(left, pad, line)
        if self.editor is not None:
            self._bubble.hide()
            self.editor.setGeometry(left, top, line, self.editor.sizeHint().height())
            return top + self.editor.height() + pad
        top = self._lay_out_bubble(left, top, line)
        for label in (self.notice, self.footer):
            if label.isVisibleTo(self):
                height = label.heightForWidth(line)
                label.setGeometry(left, top + pad // 3, line, height)
                top += height + pad // 3
        size = self.action_bar.sizeHint()
        # The words of the first button, not its frame, are in line with the text.
        x = left + line - size.width() if self._is_mine else left - pad // 2
        self.action_bar.setGeometry(QRect(x, top + pad // 4, max(size.width(), 1), size.height()))
        return top + pad // 4 + size.height() + pad // 2

    def copy(self) -> None:
        """Puts the text on the clipboard as it is stored."""
        QGuiApplication.clipboard().setText(self.message.text)

    def edit(self, text: str | None = None) -> None:
        """Opens the editor, with `text` if it is not that of the message."""
        if self.editor is not None or not self._is_mine:
            return
        self.editor = InlineEditor(self.message.text if text is None else text, self._look, self)
        self.editor.finished.connect(self._finish_edit)
        self.editor.cancelled.connect(self.end_edit)
        self.editor.resized.connect(self.changed_height)
        self.editor.show()
        self.action_bar.hide()
        self.changed_height.emit()
        self.editor.field.setFocus()
        self.editor.field.selectAll()

    def end_edit(self) -> None:
        """Closes the editor."""
        if self.editor is not None:
            self.editor.hide()
            self.editor.deleteLater()
            self.editor = None
            self._bubble.show()
            self.action_bar.show()
            self.setFocus()
            self.changed_height.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Copies the message; Enter goes into its text, to select a part of it by keyboard."""
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.body.views:
            self.body.views[0].enter()
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """A ring is drawn if one came here by keyboard."""
        self._has_keyboard = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:  # noqa: ARG002
        """And goes away."""
        self._has_keyboard = False
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: ARG002
        """The ring."""
        if self._has_keyboard:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(QColor(self._look.colours.accent), 2))
            painter.drawRoundedRect(self.rect().adjusted(2, 2, -2, -2), 8, 8)

    def _finish_edit(self, text: str) -> None:
        self.end_edit()
        self.edited.emit(self.message.id, text)

    def _line(self, width: int) -> int:
        """How wide a message is in a row of that width."""
        return max(min(width - 2 * round(self._look.em * PAD), round(self._look.em * LINE_CHARACTERS)), 40)

    def _text_width(self, line: int) -> int:
        return round(line * 0.85) - 2 * round(self._look.em * PAD) if self._is_mine else line

    def _lay_out_bubble(self, left: int, top: int, line: int) -> int:
        if not self._is_mine:
            height = self.body.lay_out(line)
            self.body.setGeometry(0, 0, line, height)
            self._bubble.setGeometry(left, top, line, height)
            return top + height
        pad, widest = round(self._look.em * PAD), self._text_width(line)
        self.body.lay_out(widest)
        width = min(max(self.body.ideal_width(), 8), widest)
        height = self.body.lay_out(width)
        # Qt puts what a line is higher than its font below the words.
        self._bubble.setGeometry(left + line - width - 2 * pad, top, width + 2 * pad, height + round(1.2 * pad))
        self.body.setGeometry(pad, round(0.8 * pad), width, height)
        return top + self._bubble.height()

    def _lay_out_chips(self, left: int, top: int, line: int) -> int:
        """From the right for the user's own, in as many lines as it takes."""
        x, gap = left + line, round(self._look.em * 0.3)
        height = max((chip.sizeHint().height() for chip in self.chips), default=0)
        for chip in self.chips:
            width = min(chip.sizeHint().width(), line)
            if x - width < left:
                x, top = left + line, top + height + gap
            chip.setGeometry(x - width, top, width, height)
            x -= width + gap
        return top + (height + gap if self.chips else 0)

    def _show_chips(self, attachments: tuple[Attachment, ...]) -> None:
        for chip in self.chips:
            chip.deleteLater()
        self.chips = []
        for attachment in attachments:
            chip = self._label("chip", self.tr("Attachment {}").format(attachment.name))
            chip.setWordWrap(False)
            size = len(attachment.text)
            words = self.tr("1 character") if size == 1 else self.tr("{} characters").format(f"{size:,}")
            chip.setText(f"{attachment.name} · {words}")
            chip.setToolTip(attachment.text[:NAMED_CHARACTERS])
            chip.show()
            self.chips.append(chip)

    def _label(self, role: str, name: str) -> QLabel:
        label = QLabel(self)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        label.setProperty("role", role)
        label.setAccessibleName(name)
        label.setFont(self._look.small_font)
        label.setWordWrap(True)
        return label
