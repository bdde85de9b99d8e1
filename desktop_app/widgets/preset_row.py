"""The row of the presets: choose one, save the values as one, rename and delete."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QHBoxLayout, QInputDialog, QLineEdit, QMessageBox, QWidget

from pilotfish.desktop_app.presets import preset_in_use, renamed, saved_as, with_preset, without_preset
from pilotfish.desktop_app.settings import Settings
from pilotfish.desktop_app.widgets.forms import SPACE, ChoiceBox, button
from pilotfish.runtime import PilotfishError


class PresetRow(QWidget):
    """Shows which preset is in use, by its values."""

    def __init__(self, settings: Callable[[], Settings], apply: Callable[[Settings], None]) -> None:
        """`settings` gives those of now; `apply` takes the new ones."""
        super().__init__()
        self._settings, self._apply = settings, apply
        self.box = ChoiceBox()
        self.box.chosen.connect(lambda name: self._apply(with_preset(settings(), name)) if name else None)
        self.save = button(self.tr("Save as…"), self.tr("Keep the prompt and the sampling under a name"), self._save)
        self.rename = button(self.tr("Rename…"), self.tr("Give the preset another name"), self._rename)
        self.delete = button(self.tr("Delete"), self.tr("Delete the preset; the values stay"), self._delete, "danger")
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(SPACE)
        layout.addWidget(self.box, 1)
        for each in (self.save, self.rename, self.delete):
            layout.addWidget(each)
        self.setFocusProxy(self.box)

    def setAccessibleName(self, name: str) -> None:
        """Names the choice."""
        self.box.setAccessibleName(name)

    def setToolTip(self, tip: str) -> None:
        """That of the choice."""
        self.box.setToolTip(tip)

    def show_settings(self, settings: Settings) -> None:
        """Shows the presets and which one is in use."""
        preset = preset_in_use(settings)
        own = [] if preset else [("", self.tr("(own values)"))]
        self.box.set_choices([*own, *((each.name, each.name) for each in settings.presets)])
        self.box.select(preset.name if preset else "")
        self.rename.setEnabled(preset is not None)
        self.delete.setEnabled(preset is not None)

    def _save(self) -> None:
        name = self._ask_name(self.tr("Save as a preset"), "")
        if name is None:
            return
        taken = any(each.name == name.strip() for each in self._settings().presets)
        if taken and not self._confirm(self.tr("Replace the preset “{}”?").format(name.strip())):
            return
        self._try(lambda settings: saved_as(settings, name))

    def _rename(self) -> None:
        old = self.box.currentData()
        name = self._ask_name(self.tr("Rename the preset"), old)
        if name is not None:
            self._try(lambda settings: renamed(settings, old, name))

    def _delete(self) -> None:
        name = self.box.currentData()
        if self._confirm(self.tr("Delete the preset “{}”?").format(name)):
            self._try(lambda settings: without_preset(settings, name))

    def _try(self, change: Callable[[Settings], Settings]) -> None:
        try:
            self._apply(change(self._settings()))
        except PilotfishError as error:
            QMessageBox.warning(self, self.tr("Presets"), str(error))

    def _ask_name(self, title: str, name: str) -> str | None:
        text, is_given = QInputDialog.getText(self, title, self.tr("Name"), QLineEdit.EchoMode.Normal, name)
        return text if is_given else None

    def _confirm(self, question: str) -> bool:
        return QMessageBox.question(self, self.tr("Presets"), question) == QMessageBox.StandardButton.Yes
