"""What the pages of the settings have in common: a form, and a change that is applied as soon as it is made."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QVBoxLayout, QWidget

from pilotfish.desktop_app.setting_fields import NumberField
from pilotfish.desktop_app.settings import Settings
from pilotfish.desktop_app.widgets.forms import SPACE, Form, NumberEdit, scrolled


class SettingsPage(QWidget):
    """A page: its form, and the settings it works on."""

    def __init__(self, settings: Callable[[], Settings], apply: Callable[[Settings], None]) -> None:
        """`settings` gives those of now; `apply` takes the new ones."""
        super().__init__()
        self._settings, self._apply = settings, apply
        self.form = Form()
        self.numbers: list[NumberEdit] = []
        self.column = QVBoxLayout()
        self.column.setContentsMargins(SPACE, 2 * SPACE, 2 * SPACE, SPACE)
        self.column.setSpacing(2 * SPACE)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(scrolled(self.column))

    def finish(self) -> None:
        """Puts the form below what the column has already."""
        self.column.addLayout(self.form)
        self.column.addStretch(1)

    def add_number(self, field: NumberField, label: str, hint: str, empty: str = "") -> NumberEdit:
        """A row for a number."""
        edit = NumberEdit(field, self._settings, self._apply, empty)
        self.numbers.append(edit)
        self.form.add(label, edit, hint, beside=True)
        return edit

    def show_settings(self, settings: Settings) -> None:
        """Shows other settings than those that were made here."""
        for each in self.numbers:
            each.show_settings(settings)
