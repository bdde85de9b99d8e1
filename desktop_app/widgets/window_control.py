"""Ties the window to the desk: hands events on, binds the keys, and closes in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QApplication

from pilotfish.desktop_app.desk import Desk
from pilotfish.desktop_app.drafts import Drafts
from pilotfish.desktop_app.protocol import Event
from pilotfish.desktop_app.remedies import Died
from pilotfish.desktop_app.settings import Settings
from pilotfish.desktop_app.widgets.bridge import Bridge
from pilotfish.desktop_app.widgets.chat_control import ChatControl
from pilotfish.desktop_app.widgets.engine_control import EngineControl
from pilotfish.desktop_app.widgets.main_window import MainWindow
from pilotfish.desktop_app.widgets.reply_control import ReplyControl
from pilotfish.desktop_app.widgets.settings_control import SettingsControl
from pilotfish.desktop_app.widgets.shortcuts import SHORTCUTS, ShortcutSheet


class WindowControl(QObject):
    """What the window does. `bridge` brings the events of the engine's process."""

    def __init__(
        self, app: QApplication, window: MainWindow, desk: Desk, bridge: Bridge, settings: Settings, drafts: Drafts
    ) -> None:
        super().__init__(window)
        self.window, self.desk, self._bridge, self._drafts = window, desk, bridge, drafts
        self.engine = EngineControl(window, desk, self)
        self.replies = ReplyControl(window, desk, self)
        self.chats = ChatControl(window, desk, drafts, self._show_chat, self)
        self.settings = SettingsControl(app, window, desk, settings, self.engine.restart, self)
        self._bind(self._actions())
        window.sidebar.shortcuts_requested.connect(self.show_shortcuts)
        self.replies.begun.connect(self.chats.refresh_list)
        window.composer.text_changed.connect(lambda text: self.keep_draft())
        bridge.arrived.connect(self.handle)
        window.closing.connect(self.close)

    def launch(self, bundle: Path | None = None) -> None:
        """Starts the engine and shows an empty chat."""
        self.chats.open_draft()
        self.engine.launch(bundle)

    def message_changed(self, message_id: str) -> None:
        """A message of the chat that is shown is new or has grown."""
        self.window.transcript.update_message(self.desk.session.conversation, message_id)

    def handle(self, event: Event | Died) -> None:
        """Takes an event of the engine's process."""
        engine, writing = self.desk.engine, self.desk.writing_ids
        self.desk.handle(event)
        self.engine.settle()
        self.replies.take(event)
        if self.desk.engine != engine:
            self.engine.refresh()
        if self.desk.writing_ids != writing:
            self.replies.refresh()
            self.chats.refresh_list()
        elif self.desk.engine != engine:
            self.replies.count()

    def stop(self) -> None:
        """Leaves the search if it has the focus, or stops what runs."""
        if not self.chats.leave_search():
            self.engine.stop()

    def keep_draft(self) -> None:
        """Writes down what was begun in the chat that is shown."""
        self.chats.keep_draft()
        self._drafts.save()

    def show_shortcuts(self) -> None:
        """Opens the sheet of keys."""
        ShortcutSheet(self.window).exec()

    def close(self) -> None:
        """Saves everything and ends the engine."""
        self._bridge.close()
        self.engine.close()
        self.keep_draft()
        self.settings.save()
        self.desk.close()

    def _show_chat(self) -> None:
        self.replies.show_chat()
        self.engine.refresh_page()

    def _bind(self, actions: Mapping[str, Callable[[], object]]) -> None:
        for name, act in actions.items():
            shortcut = SHORTCUTS[name]
            action = QAction(shortcut.shown_what, self.window)
            action.setShortcut(shortcut.sequence)
            action.triggered.connect(lambda _=False, act=act: act())
            self.window.addAction(action)

    def _actions(self) -> dict[str, Callable[[], object]]:
        """By the names of `SHORTCUTS`; the field of the message sees to sending and to new lines itself."""
        chats, replies, settings, window = self.chats, self.replies, self.settings, self.window
        return {
            "new_chat": chats.new, "temporary_chat": lambda: chats.new(True), "search": chats.go_to_search,
            "next_chat": lambda: chats.step(1), "previous_chat": lambda: chats.step(-1),
            "rename_chat": window.sidebar.rename_current, "delete_chat": chats.delete_shown,
            "undo_delete": chats.undo_delete, "import_chat": chats.import_file, "export_chat": chats.export,
            "stop": self.stop, "attach": window.composer.choose_files,
            "focus_composer": window.composer.editor.setFocus, "regenerate": replies.regenerate_last,
            "continue_reply": replies.continue_last, "edit_last": replies.edit_last, "copy_reply": replies.copy_last,
            "previous_branch": lambda: replies.step_version(-1), "next_branch": lambda: replies.step_version(1),
            "zoom_in": lambda: settings.zoom(1), "zoom_out": lambda: settings.zoom(-1),
            "zoom_reset": lambda: settings.zoom(0), "toggle_sidebar": lambda: settings.toggle("shows_sidebar"),
            "toggle_panel": lambda: settings.toggle("shows_panel"), "toggle_tints": lambda: settings.toggle("tints"),
            "full_screen": self._toggle_full_screen, "speculation": lambda: settings.toggle("speculates"),
            "models": self.engine.show_models, "settings": settings.show_dialog, "shortcuts": self.show_shortcuts,
            "quit": window.close,
        }  # fmt: skip

    def _toggle_full_screen(self) -> None:
        self.window.showNormal() if self.window.isFullScreen() else self.window.showFullScreen()
