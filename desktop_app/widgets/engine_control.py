"""The engine and its models in the window: loading, stopping, what went wrong, and starting again."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, QTimer

from pilotfish.desktop_app.desk import Desk
from pilotfish.desktop_app.engine_state import EngineState
from pilotfish.desktop_app.models import list_models
from pilotfish.desktop_app.widgets.main_window import MainWindow
from pilotfish.desktop_app.widgets.models_dialog import ModelsDialog

PATIENCE_MS = 5000  # a pass over a long prompt may take seconds on a slow computer, and cannot be broken off everywhere


class EngineControl(QObject):
    """Shows `desk.engine`; `refresh` after each change of it, `settle` after each event."""

    def __init__(self, window: MainWindow, desk: Desk, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._window, self._desk = window, desk
        self._shown = EngineState()
        window.header.load_requested.connect(self.load)
        window.header.models_requested.connect(self.show_models)
        window.header.stop_requested.connect(self.stop)
        window.composer.stop_requested.connect(self.stop)
        window.welcome.ready.connect(self.load)
        window.welcome.other_requested.connect(lambda: self.show_models(adds=True))
        self._overdue_id: int | None = None  # what was stopped and has not ended for long
        self._models: ModelsDialog | None = None  # what is being added goes on while it is hidden

    def launch(self, bundle: Path | None) -> None:
        """Starts the engine, and loads what is to be loaded at launch."""
        self._desk.launch(bundle)
        self.refresh()

    def load(self, bundle: object) -> None:
        """Loads a bundle folder."""
        self._desk.load(Path(str(bundle)))
        self.refresh()

    def restart(self) -> None:
        """Starts the engine anew, with the model that was loaded."""
        self._desk.restart()
        self.refresh()

    def stop(self) -> None:
        """Stops what runs. If it has not ended a while later, offers to start the engine anew."""
        request_id = self._desk.stop()
        if request_id is not None:
            QTimer.singleShot(PATIENCE_MS, self, lambda: self._offer_another(request_id))

    def settle(self) -> None:
        """Takes that offer back once what was stopped has ended."""
        if self._overdue_id is not None and not self._desk.awaits(self._overdue_id):
            self._overdue_id = None
            self._window.banner.hide()

    def close(self) -> None:
        """Gives up what is being added; what was downloaded stays for the next time."""
        self._window.welcome.view.close_export()
        if self._models is not None:
            self._models.add.view.close_export()

    def show_models(self, *, adds: bool = False) -> None:
        """Opens the list of models, or the page that adds one."""
        if self._models is None:
            self._models = ModelsDialog(None, self._window)
            self._models.load_requested.connect(self.load)
            self._models.unload_requested.connect(self._desk.unload)
            self._models.finished.connect(self.refresh_page)
        self._tell_models()
        if adds:
            self._models.show_add_page()
        self._models.show()
        self._models.raise_()

    def refresh(self) -> None:
        """Shows what the engine is at now."""
        state = self._desk.engine
        self._window.header.show_engine(state)
        self._window.composer.set_obstacle(self._obstacle(state))
        if state.phase not in ("ready", self._shown.phase) or state.facts != self._shown.facts:
            self._window.panel.set_facts(state.facts)
        if state.phase in ("failed", "dead"):
            words = self.tr("Restart") if state.phase == "dead" else self.tr("Try again")
            self._window.banner.say(f"{state.cause} {state.remedy}", "error", words, self.restart)
            self._window.banner.setToolTip(state.details)
        elif self._shown.phase in ("failed", "dead"):
            self._window.banner.hide()
        self._shown = state
        self._tell_models()
        self.refresh_page()

    def _offer_another(self, request_id: int) -> None:
        if self._overdue_id is None and self._desk.awaits(request_id):
            self._overdue_id = request_id
            text = self.tr("The engine has not stopped yet. Wait, or restart it; what is written so far stays.")
            self._window.banner.say(text, "warning", self.tr("Restart the engine"), self._desk.replace_engine)

    def _tell_models(self) -> None:
        if self._models is not None:
            facts = self._desk.engine.facts
            context_length = facts.context_length if facts else self._desk.load_options.context_length
            self._models.set_loaded(Path(facts.path) if facts else None, context_length)

    def refresh_page(self) -> None:
        """The welcome while there is no model at all, else the chat."""
        window = self._window
        if self._desk.session.conversation.path:
            window.show_page(window.transcript)
        elif self._desk.engine.phase == "empty" and not list_models():
            window.show_page(window.welcome)
        else:
            window.empty.set_temporary(self._desk.is_temporary)
            window.show_page(window.empty)

    def _obstacle(self, state: EngineState) -> str:
        return {
            "empty": self.tr("Choose a model first."), "loading": self.tr("The model is still being loaded."),
            "failed": self.tr("No model is loaded; choose one."), "ready": "",
            "dead": self.tr("The engine has stopped; restart it."),
        }[state.phase]  # fmt: skip
