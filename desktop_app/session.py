"""One open chat: ties conversation, store and engine together, without a window.

Everything here runs in one thread, the window's. What the engine's process delivers in its own thread must be handed
over to this one, and then given to `handle`. The window shows `conversation`; `changed` tells it what is new there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from pilotfish.desktop_app.conversation import (
    Attachment,
    Conversation,
    Message,
    as_unicode,
    new_id,
    prompt_of,
    title_from,
)
from pilotfish.desktop_app.engine_process import EngineProcess
from pilotfish.desktop_app.errors import ConversationError, EngineGoneError, SessionBusyError, StoreError
from pilotfish.desktop_app.protocol import Counted, Done, Event, Failed, Piece, Progress, Stopped
from pilotfish.desktop_app.remedies import Died
from pilotfish.desktop_app.reply import Checkpoint, StreamingReply, reply_stats
from pilotfish.desktop_app.reply_options import ReplyOptions
from pilotfish.desktop_app.store import Store


class ChatSession:
    """A chat that can be talked in.

    `progress` has the figures of the reply that is written, `meter` the latest count. `store_fault` says why the last
    save failed, and is empty if it did not; writing a reply goes on meanwhile.
    """

    def __init__(
        self, conversation: Conversation, engine: EngineProcess, store: Store | None, *, is_stored: bool = False,
        options: ReplyOptions | None = None, changed: Callable[[str], None] = lambda message_id: None,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`store` None makes a temporary chat, of which nothing is written; `is_stored` if the chat is there already.

        `changed` is called with the id of a message that is new or has grown. `clock` gives seconds since the epoch.
        """
        self.conversation = conversation
        self.options = options or ReplyOptions()
        self.model = ""  # the name of the loaded bundle, for the footer
        self.progress: Progress | None = None
        self.meter: Counted | None = None
        self.store_fault = ""
        self._engine, self._store, self._is_stored = engine, store, is_stored
        self._changed, self._clock = changed, clock
        self._reply: StreamingReply | None = None
        self._checkpoint = Checkpoint(0.0)
        self._reply_id: int | None = None
        self._count_id: int | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a reply is being written."""
        return self._reply is not None

    @property
    def request_id(self) -> int | None:
        """The engine's id of the reply that is being written."""
        return self._reply_id

    def send(self, text: str, attachments: tuple[Attachment, ...] = ()) -> str:
        """Adds the user's message below what is shown, saves it, and asks for a reply. Returns the message's id.

        `SessionBusyError` while a reply is written; `StoreError` if the message cannot be saved, and then it is not
        added. Without an engine the message is saved and its reply says what is wrong.
        """
        path = self.conversation.path
        return self._ask(path[-1].id if path else None, text, attachments)

    def edit(self, message_id: str, text: str) -> str:
        """Asks anew with another text, beside the old message, which stays; otherwise as `send`."""
        message = self.conversation.message(message_id)
        if message.role != "user":
            raise ConversationError("only messages of the user can be edited; regenerate a reply instead")
        return self._ask(message.parent_id, text, message.attachments)

    def regenerate(self, message_id: str) -> None:
        """Asks for another reply beside this one, which stays."""
        self._require_idle()
        message = self._reply_of(message_id)
        self._begin(StreamingReply(self._new_message(message.parent_id, "assistant", "", state="streaming")))

    def continue_reply(self, message_id: str) -> None:
        """Asks for the rest of a reply that was cut short; it grows in place."""
        self._require_idle()
        message = self._reply_of(message_id)
        self._begin(StreamingReply(replace(message, state="streaming", error="")))

    def choose(self, message_id: str) -> None:
        """Shows this one among its siblings. Not while a reply is written: `SessionBusyError`."""
        self._require_idle()
        self.conversation = self.conversation.choosing(message_id)
        if self._store is not None and self._is_stored:
            self._store.save_settings(self.conversation)

    def stop(self) -> None:
        """Gives up the reply that is written; what is there of it stays, `interrupted`."""
        if self._reply_id is not None:
            self._engine.stop(self._reply_id)

    def count(self, text: str) -> None:
        """Asks how full the context would be if `text` were sent; the answer comes as `meter`. Not on every key."""
        draft = self._new_message(None, "user", as_unicode(text))
        messages = prompt_of((*self.conversation.path, draft), self.conversation.system_prompt)
        self._count_id = self._engine.count(messages, self.options)

    def handle(self, event: Event | Died) -> None:
        """Takes an event of the engine's process; those for others change nothing."""
        if isinstance(event, Counted):
            self.meter = event if event.request_id == self._count_id else self.meter
        elif self._reply is None:
            return
        elif isinstance(event, Died):
            self._finish(self._reply.failed("interrupted", f"{event.cause} {event.remedy}"))
        elif getattr(event, "request_id", None) == self._reply_id:
            self._answer(self._reply, event)

    def close(self) -> None:
        """Gives up the reply that is written and saves what is there of it."""
        if self._reply is not None:
            self.stop()
            self._finish(self._reply.failed("interrupted"))

    def _answer(self, reply: StreamingReply, event: Event) -> None:
        if isinstance(event, Piece):
            reply.append(event)
            self.progress = event.progress
            self._show(reply.message)
            if self._checkpoint.is_due(now_s := self._clock()):
                self._checkpoint = Checkpoint(now_s)
                self._try_to_save(reply.id)
        elif isinstance(event, Done):
            stats = reply_stats(self.model, event.finish_reason, event.stats, event.num_dropped)
            self._finish(reply.ended(event.finish_reason, stats))
        elif isinstance(event, Stopped):
            self._finish(reply.failed("interrupted"))
        elif isinstance(event, Failed):
            self._finish(reply.failed("error", f"{event.message}; {event.remedy}"))

    def _ask(self, parent_id: str | None, text: str, attachments: tuple[Attachment, ...]) -> str:
        self._require_idle()
        message = self._new_message(parent_id, "user", as_unicode(text), attachments=attachments)
        before = self.conversation
        title = before.title or title_from(message.text)
        self.conversation = replace(before.with_message(message), title=title)
        try:
            self._save(message.id)
        except StoreError:
            self.conversation = before
            raise
        self._changed(message.id)
        self._begin(StreamingReply(self._new_message(message.id, "assistant", "", state="streaming")))
        return message.id

    def _begin(self, reply: StreamingReply) -> None:
        """Shows and saves the reply as far as it is, and asks the engine for the rest."""
        message = reply.message
        known = {each.id for each in self.conversation.messages}
        self.conversation = self.conversation if message.id in known else self.conversation.with_message(message)
        self._reply, self.progress = reply, None
        self._checkpoint = Checkpoint(self._clock())
        self._show(message)
        self._try_to_save(message.id)
        messages = prompt_of(self.conversation.path_to(message.parent_id), self.conversation.system_prompt)
        try:
            self._reply_id = self._engine.generate(messages, message.text, self.options)
        except EngineGoneError as error:
            self._finish(reply.failed("error", str(error)))

    def _finish(self, message: Message) -> None:
        self._reply, self._reply_id = None, None
        self._show(message)
        self._try_to_save(message.id)

    def _show(self, message: Message) -> None:
        self.conversation = self.conversation.with_replaced(message)
        self._changed(message.id)

    def _save(self, message_id: str) -> None:
        if self._store is None:
            return
        if self._is_stored:
            self._store.save_message(self.conversation, message_id, self._clock())
        else:
            self._store.add(self.conversation, self._clock())
            self._is_stored = True

    def _try_to_save(self, message_id: str) -> None:
        try:
            self._save(message_id)
            self.store_fault = ""
        except StoreError as error:
            self.store_fault = str(error)

    def _require_idle(self) -> None:
        if self._reply is not None:
            raise SessionBusyError("a reply is being written; stop it first, or wait for its end")

    def _reply_of(self, message_id: str) -> Message:
        message = self.conversation.message(message_id)
        if message.role != "assistant" or message.state == "unreadable":
            raise ConversationError("this is no reply; choose one of the assistant's messages that can be read")
        return message

    def _new_message(
        self, parent_id: str | None, role: str, text: str, *, state: str = "complete",
        attachments: tuple[Attachment, ...] = (),
    ) -> Message:  # fmt: skip
        return Message(new_id(), parent_id, role, text, self._clock(), state, attachments=attachments)
