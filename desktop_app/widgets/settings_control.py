"""The settings in the window: applied at once, kept on disk a moment later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication

from pilotfish.desktop_app.desk import Desk
from pilotfish.desktop_app.devices import find_devices
from pilotfish.desktop_app.places import settings_path
from pilotfish.desktop_app.settings import MAX_ZOOM, MIN_ZOOM, Settings, save_settings
from pilotfish.desktop_app.widgets.bridge import Bridge
from pilotfish.desktop_app.widgets.main_window import MainWindow
from pilotfish.desktop_app.widgets.settings_dialog import SettingsDialog
from pilotfish.desktop_app.widgets.telling import telling
from pilotfish.desktop_app.widgets.theme import apply_theme

SAVE_AFTER_MS = 500
ZOOM_STEP = 0.1


class SettingsControl(QObject):
    """`settings` are those in use; `reload` loads the model again."""

    def __init__(
        self, app: QApplication, window: MainWindow, desk: Desk, settings: Settings, reload: Callable[[], None],
        parent: QObject | None = None,
    ) -> None:  # fmt: skip
        super().__init__(parent)
        self._app, self._window, self._desk, self._reload = app, window, desk, reload
        self.settings = settings
        self._devices: tuple[str, ...] = ("cpu",)
        self._has_looked = False
        self._found = Bridge(self)
        self._found.arrived.connect(self._keep_devices)
        self._pause = QTimer(self, singleShot=True, interval=SAVE_AFTER_MS)
        self._pause.timeout.connect(self.save)
        self._show(settings, None)
        window.panel.tints.toggled.connect(lambda is_on: self.apply(replace(self.settings, tints=is_on)))
        window.panel.switched.connect(lambda is_on: self.apply(replace(self.settings, speculates=is_on)))
        window.header.settings_requested.connect(self.show_dialog)
        window.header.sidebar_toggled.connect(lambda: self.toggle("shows_sidebar"))
        app.styleHints().colorSchemeChanged.connect(self._follow_desktop)

    def apply(self, settings: Settings) -> None:
        """Uses these from now on."""
        if settings == self.settings:
            return
        before, self.settings = self.settings, settings
        self._show(settings, before)
        self._pause.start()

    def save(self) -> None:
        """Writes the file now."""
        self._pause.stop()
        with telling(self._window.banner):
            save_settings(self.settings, settings_path())

    def show_dialog(self) -> None:
        """Opens the settings."""
        loaded_with = self._desk.loaded_with if self._desk.engine.phase == "ready" else None
        dialog = SettingsDialog(self.settings, self._devices, self._window, loaded_with)
        self._found.arrived.connect(dialog.model.set_devices)
        if not self._has_looked:
            self._has_looked = True
            self._find_devices()
        dialog.changed.connect(self.apply)
        dialog.reload_requested.connect(self._reload)
        dialog.exec()

    def zoom(self, step: int) -> None:
        """Larger or smaller text; 0 is as at first."""
        zoom = 1.0 if step == 0 else self.settings.zoom + step * ZOOM_STEP
        self.apply(replace(self.settings, zoom=round(min(max(zoom, MIN_ZOOM), MAX_ZOOM), 2)))

    def toggle(self, name: str) -> None:
        """The other way round: `tints`, `shows_sidebar`, `shows_panel` or `speculates`."""
        changed = {name: not getattr(self.settings, name)}
        self.apply(replace(self.settings, **changed))  # type: ignore[arg-type]

    def _show(self, settings: Settings, before: Settings | None) -> None:
        window, desk = self._window, self._desk
        desk.set_options(settings.reply_options)
        desk.load_options, desk.system_prompt = settings.loading, settings.system_prompt
        window.panel.set_wanted(settings.speculates)
        window.show_panel(settings.shows_panel)
        window.sidebar.setVisible(settings.shows_sidebar)
        if before is None or (before.theme, before.zoom) != (settings.theme, settings.zoom):
            window.set_colours(apply_theme(self._app, settings.theme, settings.zoom))
            window.transcript.set_zoom(settings.zoom)
        window.transcript.set_tints(settings.tints)
        window.panel.tints.setChecked(settings.tints)

    def _find_devices(self) -> None:
        """In a thread, since that imports ONNX Runtime."""
        work = threading.Thread(target=lambda: self._found.deliver(find_devices()), name="devices", daemon=True)
        work.start()

    def _keep_devices(self, devices: tuple[str, ...]) -> None:
        self._devices = devices

    def _follow_desktop(self) -> None:
        if self.settings.theme == "system":
            self._window.set_colours(apply_theme(self._app, "system", self.settings.zoom))
