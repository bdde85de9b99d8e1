"""The settings, applied as soon as they are changed."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QMessageBox, QTabWidget, QVBoxLayout, QWidget

from pilotfish.desktop_app.settings import LoadOptions, Settings
from pilotfish.desktop_app.widgets.forms import SPACE, button, resize_for_text
from pilotfish.desktop_app.widgets.replies_page import RepliesPage
from pilotfish.desktop_app.widgets.settings_page import SettingsPage
from pilotfish.desktop_app.widgets.settings_pages import LookPage, ModelPage, SpeculationPage


class SettingsDialog(QDialog):
    """Emits `changed` with the new `Settings` at each change, also while a text is typed: gather before you save.

    A value that the library refuses is not applied; its message stands below the field.
    """

    changed = Signal(object)
    reload_requested = Signal()

    def __init__(
        self, settings: Settings, devices: Sequence[str], parent: QWidget | None = None,
        loaded_with: LoadOptions | None = None,
    ) -> None:  # fmt: skip
        """`devices` as `find_devices` gives them; `loaded_with` are the options of the model that is loaded."""
        super().__init__(parent)
        self.setWindowTitle(self.tr("Settings"))
        self.settings = settings
        self.replies = RepliesPage(self._now, self._apply)
        self.speculation = SpeculationPage(self._now, self._apply)
        self.model = ModelPage(self._now, self._apply, devices, loaded_with, self.reload_requested.emit)
        self.look = LookPage(self._now, self._apply)
        self._pages: tuple[SettingsPage, ...] = (self.replies, self.speculation, self.model, self.look)
        self.tabs = QTabWidget()
        self.tabs.setDocumentMode(True)
        self.tabs.tabBar().setDrawBase(False)
        titles = (self.tr("Replies"), self.tr("Speculation"), self.tr("Model"), self.tr("Appearance"))
        for page, title in zip(self._pages, titles, strict=True):
            self.tabs.addTab(page, title)
        self.tabs.tabBar().setAccessibleName(self.tr("Pages of the settings"))
        self.tabs.tabBar().setToolTip(self.tr("Pages of the settings (arrow keys)"))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * SPACE, SPACE, 2 * SPACE, 2 * SPACE)
        layout.setSpacing(2 * SPACE)
        layout.addWidget(self.tabs, 1)
        layout.addLayout(self._buttons())
        resize_for_text(self, 700, 720)
        self.show_settings(settings)

    def show_settings(self, settings: Settings) -> None:
        """Shows settings that were changed elsewhere, such as by the switch in the window."""
        self.settings = settings
        for page in self._pages:
            page.show_settings(settings)

    def _buttons(self) -> QHBoxLayout:
        self.reset = button(
            self.tr("Reset to defaults"), self.tr("Set everything but the presets to what it was at first"), self._reset
        )
        self.close_button = button(self.tr("Close"), self.tr("Close the settings (Esc)"), self.reject)
        row = QHBoxLayout()
        row.addWidget(self.reset)
        row.addStretch(1)
        row.addWidget(self.close_button)
        return row

    def _now(self) -> Settings:
        return self.settings

    def _apply(self, settings: Settings) -> None:
        if settings == self.settings:
            return
        self.settings = settings
        self.replies.presets.show_settings(settings)
        self.model.show_notice(settings)
        self.changed.emit(settings)

    def _reset(self) -> None:
        question = self.tr("Set everything but the presets to what it was at first?")
        if QMessageBox.question(self, self.tr("Settings"), question) != QMessageBox.StandardButton.Yes:
            return
        settings = Settings(presets=self.settings.presets)
        self._apply(settings)
        self.show_settings(settings)
