"""Messages and replies in the window: sending, stopping, other versions, the context meter and the live figures."""

from __future__ import annotations

from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QMessageBox

from pilotfish.desktop_app.conversation import Attachment, Message
from pilotfish.desktop_app.desk import Desk
from pilotfish.desktop_app.drafts import Draft
from pilotfish.desktop_app.protocol import Counted, Event, Piece
from pilotfish.desktop_app.remedies import Died
from pilotfish.desktop_app.widgets.main_window import MainWindow
from pilotfish.desktop_app.widgets.telling import as_sentence, telling

LINKS = ("http", "https", "mailto")


class ReplyControl(QObject):
    """Works on the chat that is shown; `begun` is emitted when a reply is asked for."""

    begun = Signal()

    def __init__(self, window: MainWindow, desk: Desk, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._window, self._desk = window, desk
        self._fault = ""
        window.composer.sent.connect(self.send)
        window.composer.text_changed.connect(desk.count)
        window.empty.suggested.connect(lambda text: window.composer.set_draft(Draft(text)))
        window.empty.suggested.connect(lambda text: window.composer.submit())
        transcript = window.transcript
        transcript.edit_requested.connect(self.edit)
        transcript.regenerate_requested.connect(self.regenerate)
        transcript.continue_requested.connect(self.continue_reply)
        transcript.chosen.connect(self.choose)
        transcript.link_opened.connect(self.open_link)

    def send(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Sends a message; what cannot be saved goes back into the field."""
        self._window.composer.set_draft(Draft(text, attachments))
        with telling(self._window.banner):
            self._desk.session.send(text, attachments)
            self._window.composer.set_draft(Draft())
            self._begun()

    def edit(self, message_id: str, text: str) -> None:
        """Asks anew with another text."""
        with telling(self._window.banner):
            self._desk.session.edit(message_id, text)
            self._begun()

    def regenerate(self, message_id: str) -> None:
        """Asks for another reply."""
        with telling(self._window.banner):
            self._desk.session.regenerate(message_id)
            self._begun()

    def continue_reply(self, message_id: str) -> None:
        """Asks for the rest of a reply."""
        with telling(self._window.banner):
            self._desk.session.continue_reply(message_id)
            self._begun()

    def choose(self, message_id: str) -> None:
        """Shows another version."""
        with telling(self._window.banner):
            self._desk.session.choose(message_id)
            self._window.transcript.show_conversation(self._desk.session.conversation)
            self.count()

    def regenerate_last(self) -> None:
        """Another reply in place of the last one."""
        if (message := self._last("assistant")) is not None:
            self.regenerate(message.id)

    def continue_last(self) -> None:
        """The rest of the last reply, or sends the message if one is written."""
        if not self._window.composer.draft.is_empty:
            self._window.composer.submit()
        elif (message := self._last("assistant")) is not None:
            self.continue_reply(message.id)

    def edit_last(self) -> None:
        """Opens the last message of the user for editing."""
        if (message := self._last("user")) is not None:
            self._window.transcript.begin_edit(message.id)

    def copy_last(self) -> None:
        """Copies the last reply as it is stored."""
        if (message := self._last("assistant")) is not None:
            QGuiApplication.clipboard().setText(message.text)

    def step_version(self, number: int) -> None:
        """The version so many places beside, of the last message that has several."""
        conversation = self._desk.session.conversation
        for message in reversed(conversation.path):
            siblings = conversation.siblings(message.id)
            if len(siblings) > 1:
                place = siblings.index(message) + number
                if 0 <= place < len(siblings):
                    self.choose(siblings[place].id)
                return

    def count(self) -> None:
        """Asks anew how full the context is."""
        self._desk.count(self._window.composer.prompt_text)

    def take(self, event: Event | Died) -> None:
        """Shows what an event has changed in the chat that is shown; the desk has it already."""
        session = self._desk.session
        if isinstance(event, Piece) and session.progress is event.progress:
            self._window.panel.add(event)
            self._tell_fault()
        elif isinstance(event, Counted) and session.meter is event:
            self._window.composer.set_meter(event, session.options.overflow)

    def refresh(self) -> None:
        """Shows whether a reply is being written, and what the disk says to it."""
        session = self._desk.session
        self._window.composer.set_busy(session.is_busy)
        self._tell_fault()
        if not session.is_busy:
            self.count()

    def show_chat(self) -> None:
        """Another chat is shown."""
        session = self._desk.session
        self._window.transcript.show_conversation(session.conversation)
        self._window.composer.set_meter(None)
        self._window.panel.begin()
        self.refresh()

    def open_link(self, address: str) -> None:
        """Asks, and then opens a web or mail address; no other kind is ever opened."""
        url = QUrl(address)
        if url.scheme().lower() not in LINKS:
            text = self.tr("This link is neither a web nor a mail address and was not opened:")
            self._window.banner.say(f"{text} {address[:200]}", "warning")
            return
        question = self.tr("Open this address in another program?\n\n{address}").format(address=address[:1000])
        if QMessageBox.question(self._window, self.tr("Open a link"), question) == QMessageBox.StandardButton.Yes:
            QDesktopServices.openUrl(url)

    def _begun(self) -> None:
        self._window.panel.begin()
        self._window.show_page(self._window.transcript)
        self._window.transcript.show_conversation(self._desk.session.conversation)
        self.refresh()
        self.begun.emit()

    def _tell_fault(self) -> None:
        """Says once that the disk refuses, and takes it back when it no longer does."""
        fault = self._desk.session.store_fault
        if fault != self._fault:
            self._fault = fault
            self._window.banner.say(as_sentence(fault), "error") if fault else self._window.banner.hide()

    def _last(self, role: str) -> Message | None:
        return next((each for each in reversed(self._desk.session.conversation.path) if each.role == role), None)
