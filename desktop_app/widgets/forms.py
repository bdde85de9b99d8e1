"""What the forms of the dialogs are made of: rows with a label and a hint, fields for numbers, choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from PySide6.QtCore import QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QComboBox,
    QGridLayout,
    QLabel,
    QLayout,
    QLineEdit,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from pilotfish.desktop_app.setting_fields import NumberField
from pilotfish.desktop_app.settings import Settings
from pilotfish.desktop_app.widgets.theme import set_role
from pilotfish.runtime import PilotfishError

SPACE = 8
USUAL_LINE = 16  # pixels of a line of text of ten points


def named(widget: QWidget, name: str, tip: str) -> QWidget:
    """Gives a control what screen readers say of it, and its tooltip."""
    widget.setAccessibleName(name)
    widget.setToolTip(tip)
    return widget


def button(text: str, tip: str, pressed: Callable[[], object], role: str = "") -> QPushButton:
    """A button that calls `pressed`."""
    made = QPushButton(text)
    named(made, text, tip)
    made.setAutoDefault(False)
    if role:
        made.setProperty("role", role)
    made.clicked.connect(lambda: pressed())
    return made


def note(text: str = "", role: str = "muted") -> QLabel:
    """A text that wraps and can be selected with the mouse; never read as HTML."""
    made = QLabel(text)
    made.setTextFormat(Qt.TextFormat.PlainText)
    made.setWordWrap(True)
    made.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    made.setProperty("role", role)
    return made


def clear_layout(layout: QLayout) -> None:
    """Takes all widgets out of a layout, at once for the eye."""
    while item := layout.takeAt(0):
        if widget := item.widget():
            widget.hide()
            widget.deleteLater()


class Form(QGridLayout):
    """Rows of a label and a control, with a muted hint."""

    def __init__(self) -> None:
        super().__init__()
        self.setHorizontalSpacing(2 * SPACE)
        self.setVerticalSpacing(SPACE)
        self.setColumnMinimumWidth(0, 18 * SPACE)
        self.setColumnStretch(1, 2)
        self.setColumnStretch(2, 3)

    def add(self, text: str, control: QWidget, hint: str, *, beside: bool = False) -> None:
        """A row; the hint is the control's tooltip too, and stands below it or `beside` it."""
        row = self.rowCount()
        label = QLabel(text)
        label.setBuddy(control)
        label.setContentsMargins(0, SPACE, 0, 0)
        named(control, text, hint)
        shown = note(hint)
        self.addWidget(label, row, 0, Qt.AlignmentFlag.AlignTop)
        if beside:
            shown.setContentsMargins(0, SPACE, 0, 0)
            self.addWidget(control, row, 1, Qt.AlignmentFlag.AlignTop)
            self.addWidget(shown, row, 2, Qt.AlignmentFlag.AlignTop)
            return
        self.addWidget(control, row, 1, 1, 2)
        if not isinstance(control, QAbstractButton):
            self.addWidget(shown, row + 1, 1, 1, 2)
            self.setRowMinimumHeight(row + 2, SPACE // 2)


class ChoiceBox(QComboBox):
    """A choice of keys, each shown as a text. `chosen` tells what the user took. The wheel scrolls the page, not it."""

    chosen = Signal(str)

    def __init__(self, choices: Iterable[tuple[str, str]] = ()) -> None:
        super().__init__()
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(12)
        self.set_choices(choices)
        self.activated.connect(lambda index: self.chosen.emit(self.itemData(index)))

    def set_choices(self, choices: Iterable[tuple[str, str]]) -> None:
        """Shows other choices."""
        with QSignalBlocker(self):
            self.clear()
            for key, text in choices:
                self.addItem(text, key)

    def select(self, key: str) -> None:
        """Shows that choice without telling it."""
        with QSignalBlocker(self):
            self.setCurrentIndex(self.findData(key))

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leaves the wheel to what lies behind."""
        event.ignore()


class NumberEdit(QWidget):
    """A field for a number of the settings; what the library says of a wrong one stands below it."""

    def __init__(
        self, field: NumberField, settings: Callable[[], Settings], apply: Callable[[Settings], None], empty: str = ""
    ) -> None:
        """`empty` says what no text stands for."""
        super().__init__()
        self._field, self._settings, self._apply = field, settings, apply
        self.edit = QLineEdit()
        self.edit.setPlaceholderText(empty)
        self.message = note(role="error")
        self.message.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(SPACE // 2)
        layout.addWidget(self.edit)
        layout.addWidget(self.message)
        self.setFocusProxy(self.edit)
        self.edit.textEdited.connect(self._take)

    def setAccessibleName(self, name: str) -> None:
        """Names the field itself."""
        self.edit.setAccessibleName(name)

    def setToolTip(self, tip: str) -> None:
        """That of the field itself."""
        self.edit.setToolTip(tip)

    def show_settings(self, settings: Settings) -> None:
        """Shows the value."""
        self.edit.setText(self._field.shown(settings))
        self._show_message("")

    def _take(self, text: str) -> None:
        try:
            settings = self._field.changed(self._settings(), text)
        except PilotfishError as error:
            self._show_message(str(error))
            return
        self._show_message("")
        self._apply(settings)

    def _show_message(self, text: str) -> None:
        self.message.setText(text)
        self.message.setVisible(bool(text))
        self.edit.setAccessibleDescription(text)
        if self.edit.property("fault") != bool(text):
            self.edit.setProperty("fault", bool(text))
            set_role(self.edit, "")


def resize_for_text(window: QWidget, width: int, height: int) -> None:
    """That size for text of the usual size, more for larger text, but no more than the screen has."""
    scale = max(window.fontMetrics().height() / USUAL_LINE, 1.0)
    wanted = QSize(round(width * scale), round(height * scale))
    window.resize(wanted.boundedTo(window.screen().availableSize()))


def scrolled(layout: QVBoxLayout) -> QScrollArea:
    """A page that scrolls if the window is too low for it; only what is in it takes focus."""
    page = QWidget()
    page.setLayout(layout)
    area = QScrollArea()
    area.setWidgetResizable(True)
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    area.setWidget(page)
    for part in (page, area.viewport()):
        part.setAutoFillBackground(False)  # what lies behind shows through
    return area
