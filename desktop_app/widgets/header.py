"""The top of the window: the list's button, the model, the name of the chat, and the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QMenu, QPushButton, QSizePolicy, QToolButton, QWidget

from pilotfish.desktop_app.engine_state import EngineState
from pilotfish.desktop_app.models import ModelEntry
from pilotfish.desktop_app.themes import LIGHT, Colours
from pilotfish.desktop_app.widgets.icons import icon
from pilotfish.desktop_app.widgets.shortcuts import tool_tip

TITLE_WIDTH = 420


class Header(QFrame):
    """`models` is asked for the bundles each time the menu of the model opens."""

    sidebar_toggled = Signal()
    load_requested = Signal(object)
    models_requested = Signal()
    stop_requested = Signal()
    settings_requested = Signal()

    def __init__(self, models: Callable[[], Iterable[ModelEntry]], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("header")
        self._models = models
        self._state = EngineState()
        self._sidebar = QToolButton(self)
        self.model = QToolButton(self)
        self.stop = QPushButton(self.tr("Stop"), self)
        self._title = QLabel(self, textFormat=Qt.TextFormat.PlainText)
        self._settings = QToolButton(self)
        self._menu = QMenu(self)
        self._name_controls()
        self._lay_out()
        self._connect()
        self.show_engine(EngineState())
        self.set_colours(LIGHT)

    def show_engine(self, state: EngineState) -> None:
        """What the model's button says."""
        self._state = state
        words = {
            "loading": self.tr("Loading {name} …"), "ready": "{name}", "failed": self.tr("{name} (not loaded)"),
            "dead": self.tr("Engine stopped"), "empty": self.tr("Choose a model"),
        }[state.phase]  # fmt: skip
        text = words.format(name=state.name)
        self.model.setText(self.fontMetrics().elidedText(text, Qt.TextElideMode.ElideMiddle, 320))
        self.model.setAccessibleName(self.tr("Model: {text}").format(text=text))
        self.stop.setVisible(state.phase == "loading")

    def show_title(self, title: str, is_temporary: bool) -> None:
        """The name of the chat that is shown."""
        shown = self.tr("Temporary chat") if is_temporary else title
        self._title.setText(self.fontMetrics().elidedText(shown, Qt.TextElideMode.ElideRight, TITLE_WIDTH))
        self._title.setToolTip(shown)

    def set_colours(self, colours: Colours) -> None:
        """Another theme."""
        self._sidebar.setIcon(icon("sidebar", colours.muted))
        self._settings.setIcon(icon("settings", colours.muted))
        self.model.setIcon(icon("down", colours.muted))

    def _name_controls(self) -> None:
        self._sidebar.setAccessibleName(self.tr("Show or hide the list of chats"))
        self._sidebar.setToolTip(tool_tip(self.tr("Show or hide the list of chats"), "toggle_sidebar"))
        self._settings.setAccessibleName(self.tr("Settings"))
        self._settings.setToolTip(tool_tip(self.tr("Settings"), "settings"))
        self.model.setToolTip(tool_tip(self.tr("Choose the model; all about models:"), "models"))
        self.model.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.model.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.model.setLayoutDirection(Qt.LayoutDirection.RightToLeft)  # the arrow goes behind the name
        self.model.setMenu(self._menu)
        self.model.setObjectName("model")
        self.stop.hide()
        self.stop.setAccessibleName(self.tr("Stop loading"))
        self.stop.setToolTip(tool_tip(self.tr("Stop loading"), "stop"))
        self._title.setProperty("role", "muted")
        self._title.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._title.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # the window may be narrow
        for button in (self._sidebar, self._settings, self.model):
            button.setIconSize(QSize(18, 18))

    def _lay_out(self) -> None:
        row = QHBoxLayout(self)
        row.setContentsMargins(8, 6, 10, 6)
        row.addWidget(self._sidebar)
        row.addWidget(self.model)
        row.addWidget(self.stop)
        row.addWidget(self._title, 1)
        row.addWidget(self._settings)

    def _connect(self) -> None:
        self._sidebar.clicked.connect(self.sidebar_toggled)
        self._settings.clicked.connect(self.settings_requested)
        self.stop.clicked.connect(self.stop_requested)
        self._menu.aboutToShow.connect(self._fill_menu)

    def _fill_menu(self) -> None:
        self._menu.clear()
        for entry in self._models():
            action = self._menu.addAction(entry.name, partial(self.load_requested.emit, entry.path))
            action.setCheckable(True)
            is_this = self._state.phase == "ready" and Path(self._state.bundle) == entry.path
            action.setChecked(is_this)
            action.setEnabled(entry.manifest is not None and not is_this)
            action.setToolTip(entry.fault)
        self._menu.addSeparator()
        self._menu.addAction(self.tr("Models …"), self.models_requested.emit)
