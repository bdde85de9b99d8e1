"""All that is open at once, without a window: the chats, the engine, and what the two are at.

One chat is shown. Those that were left while a reply was written go on until it has ended. As a `ChatSession`, a desk
lives in one thread, and what the engine's process delivers is handed over to that one before it comes to `handle`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from pilotfish.desktop_app.conversation import Conversation, new_id
from pilotfish.desktop_app.engine_process import EngineProcess
from pilotfish.desktop_app.engine_state import EngineState, after, crashed_before, loading, no_process
from pilotfish.desktop_app.errors import EngineGoneError, StoreError
from pilotfish.desktop_app.load_record import LoadRecord
from pilotfish.desktop_app.protocol import Event, Ready
from pilotfish.desktop_app.remedies import Died
from pilotfish.desktop_app.reply_options import ReplyOptions
from pilotfish.desktop_app.session import ChatSession
from pilotfish.desktop_app.settings import LoadOptions
from pilotfish.desktop_app.store import ChatEntry, Store


class Desk:
    """`session` is the chat that is shown, `engine` what the engine is at.

    `load_options` are for the next load, `loaded_with` those of the last; `system_prompt` is that of new chats.
    """

    def __init__(
        self, store: Store | None, process: EngineProcess, record: LoadRecord | None = None, *,
        changed: Callable[[str], None] = lambda message_id: None, clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`store` None keeps every chat in memory. `changed` gets the ids of messages of the chat that is shown."""
        self.store, self.engine = store, EngineState()
        self.load_options = self.loaded_with = LoadOptions()
        self.system_prompt = ""
        self._is_engine_ready = self._is_replaced = False
        self._process, self._record = process, record
        self._changed, self._clock = changed, clock
        self._options = ReplyOptions()
        self._left: list[ChatSession] = []  # not shown, and still writing
        self._temporary_ids: set[str] = set()
        self.session = self._new_session(is_temporary=False)

    @property
    def is_temporary(self) -> bool:
        """Whether the chat that is shown is never written."""
        return self.session.conversation.id in self._temporary_ids

    @property
    def writing_ids(self) -> frozenset[str]:
        """The chats in which a reply is being written."""
        return frozenset(each.conversation.id for each in self._sessions if each.is_busy)

    @property
    def _sessions(self) -> tuple[ChatSession, ...]:
        return (self.session, *self._left)

    @property
    def is_engine_ready(self) -> bool:
        """Whether the engine's process has said that it takes requests."""
        return self._is_engine_ready and self._process.is_running

    def set_options(self, options: ReplyOptions) -> None:
        """How the next replies are written."""
        self._options = options
        for session in self._sessions:
            session.options = options

    def chats(self) -> tuple[ChatEntry, ...]:
        """All chats that are stored, the last changed first; `StoreError` as the store."""
        return self.store.chats() if self.store is not None else ()

    def new_chat(self, *, is_temporary: bool = False) -> None:
        """Shows an empty chat. It is stored with its first message, or never if `is_temporary`."""
        self._show(self._new_session(is_temporary))

    def open_chat(self, chat_id: str) -> None:
        """Shows a chat; `StoreError` if it cannot be read, and then nothing changes."""
        known = self._open_session(chat_id)
        if known is None and self.store is not None:
            conversation = self.store.load(chat_id)
            known = self._session(conversation, self.store, is_stored=True)
        if known is not None:
            self._show(known)

    def import_chat(self, conversation: Conversation) -> None:
        """Stores a chat and shows it."""
        if self.store is None:
            self._temporary_ids.add(conversation.id)
        else:
            self.store.add(conversation, self._clock())
        self._show(self._session(conversation, self.store, is_stored=True))

    def rename(self, chat_id: str, title: str) -> None:
        """Gives a chat another title."""
        session = self._open_session(chat_id)
        conversation = self.conversation(chat_id)
        renamed = replace(conversation, title=title)
        if self.store is not None and chat_id in {each.id for each in self.store.chats()}:
            self.store.save_settings(renamed)
        if session is not None:
            session.conversation = renamed

    def conversation(self, chat_id: str) -> Conversation:
        """A chat that is open or stored; `StoreError` if it is neither."""
        if (session := self._open_session(chat_id)) is not None:
            return session.conversation
        if self.store is None:
            raise StoreError(f"there is no chat {chat_id!r}; nothing is stored here")
        return self.store.load(chat_id)

    def delete(self, chat_id: str) -> None:
        """Hides a chat until `restore`; if it is shown, an empty one takes its place."""
        if (session := self._open_session(chat_id)) is not None:
            session.close()
            self._left = [each for each in self._left if each is not session]
        if self.store is not None and chat_id not in self._temporary_ids:
            self.store.delete(chat_id, self._clock())
        if session is self.session:
            self.session = self._new_session(is_temporary=False)

    def restore(self, chat_id: str) -> None:
        """Undoes `delete` and shows the chat."""
        if self.store is not None:
            self.store.restore(chat_id)
            self.open_chat(chat_id)

    def launch(self, bundle: Path | None = None) -> None:
        """Starts the engine and loads `bundle`, or else what was loaded last, unless that crashed it."""
        recorded = self._record.bundle_for_launch if self._record else None
        crashed = self._record.crashed if self._record else ()
        if bundle is not None:
            self.load(bundle)
        elif recorded is not None and Path(recorded).is_dir():
            self.load(Path(recorded))
        else:
            self._start()
            if crashed and recorded is None and self.engine.phase == "empty":
                self.engine = crashed_before(crashed[-1])

    def load(self, bundle: Path) -> None:
        """Loads a bundle in place of the one that is loaded; starts the engine if it does not run."""
        self._start(str(bundle))
        self.loaded_with = self.load_options
        if self.engine.phase == "dead":
            return
        try:
            self.engine = loading(str(bundle), self._process.load(bundle, **asdict(self.load_options)))
        except EngineGoneError as error:
            self.engine = no_process(self.engine, error)

    def restart(self) -> None:
        """Starts the engine again and loads what was loaded; for the button that says so."""
        if self.engine.bundle:
            self.load(Path(self.engine.bundle))
        else:
            self._start()

    def unload(self) -> None:
        """Frees the memory of the model."""
        with suppress(EngineGoneError):
            self._process.unload()

    def stop(self) -> int | None:
        """Gives up the load that runs, or the reply of the chat that is shown; the engine's id of it, if any."""
        request_id = self.session.request_id if self.engine.load_id is None else self.engine.load_id
        if request_id is not None:
            self._process.stop(request_id)
        return request_id

    def awaits(self, request_id: int) -> bool:
        """Whether a load or a reply of that id has not ended yet."""
        return request_id in (self.engine.load_id, *(each.request_id for each in self._sessions))

    def replace_engine(self) -> None:
        """Ends an engine that no longer answers and starts another, with the model that was loaded.

        What was being written stays as far as it came, `interrupted`.
        """
        self._is_replaced = True
        self._process.kill()

    def count(self, text: str) -> None:
        """Asks for the context meter of the chat that is shown, if a model is loaded."""
        if self.engine.phase == "ready":
            with suppress(EngineGoneError):
                self.session.count(text)

    def handle(self, event: Event | Died) -> None:
        """Takes an event of the engine's process."""
        loaded = self.engine.bundle if self.engine.phase == "ready" else ""
        self.engine = after(self.engine, event)
        self._is_engine_ready = not isinstance(event, Died) and (self._is_engine_ready or isinstance(event, Ready))
        for session in self._sessions:
            session.model = self.engine.facts.name if self.engine.facts else session.model
            session.handle(event)
        self._left = [each for each in self._left if each.is_busy]
        if isinstance(event, Died) and self._is_replaced:
            self._is_replaced = False
            self.engine = EngineState(bundle=loaded)
            self.restart()

    def close(self) -> None:
        """Saves what is being written and ends the engine."""
        for session in self._sessions:
            session.close()
        self._process.close()

    def _start(self, bundle: str = "") -> None:
        if self._process.is_running:
            return
        self.engine = EngineState(bundle=bundle)
        try:
            self._process.start()
        except EngineGoneError as error:
            self.engine = no_process(self.engine, error)

    def _show(self, session: ChatSession) -> None:
        if self.session.is_busy and self.session is not session:
            self._left.append(self.session)
        self._left = [each for each in self._left if each is not session]
        self.session = session

    def _open_session(self, chat_id: str) -> ChatSession | None:
        return next((each for each in self._sessions if each.conversation.id == chat_id), None)

    def _new_session(self, is_temporary: bool) -> ChatSession:
        conversation = Conversation(new_id(), self._clock(), system_prompt=self.system_prompt)
        if is_temporary or self.store is None:
            self._temporary_ids.add(conversation.id)
            return self._session(conversation, None, is_stored=False)
        return self._session(conversation, self.store, is_stored=False)

    def _session(self, conversation: Conversation, store: Store | None, *, is_stored: bool) -> ChatSession:
        def changed(message_id: str) -> None:
            if self.session is session:
                self._changed(message_id)

        session = ChatSession(
            conversation, self._process, store, is_stored=is_stored, options=self._options, changed=changed,
            clock=self._clock,
        )  # fmt: skip
        session.model = self.engine.facts.name if self.engine.facts else ""
        return session
