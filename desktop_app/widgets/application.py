"""The application: opens what is on disk, asks if that cannot be, and shows the window."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from PySide6.QtWidgets import QApplication, QMessageBox

from pilotfish.desktop_app import places
from pilotfish.desktop_app.desk import Desk
from pilotfish.desktop_app.drafts import Drafts
from pilotfish.desktop_app.engine_process import EngineProcess
from pilotfish.desktop_app.errors import DesktopError, StoreError
from pilotfish.desktop_app.load_record import LoadRecord
from pilotfish.desktop_app.settings import load_settings
from pilotfish.desktop_app.store import Store
from pilotfish.desktop_app.widgets.bridge import Bridge
from pilotfish.desktop_app.widgets.icons import app_icon
from pilotfish.desktop_app.widgets.main_window import MainWindow
from pilotfish.desktop_app.widgets.single_instance import SingleInstance
from pilotfish.desktop_app.widgets.telling import as_sentence
from pilotfish.desktop_app.widgets.theme import apply_theme
from pilotfish.desktop_app.widgets.window_control import WindowControl

KEPT_DELETED_S = 30 * 86400  # after so long a deleted chat is gone for good

_logger = logging.getLogger(__name__)


def run(bundle: Path | None = None, engine_command: Sequence[str] | None = None) -> int:
    """Runs the application until its window is closed; the exit code. `engine_command` as in `EngineProcess`."""
    app = application()
    apply_theme(app, "system")
    try:
        instance = SingleInstance(places.lock_path())
        if not instance.acquire():
            return _yield_to(instance)
    except DesktopError as error:
        QMessageBox.critical(None, "pilotfish", as_sentence(str(error)))
        return 1
    try:
        store = open_store()
    except DesktopError:
        return 1
    control = build(app, store, engine_command)
    instance.shown_again.connect(control.window.show_again)
    sys.excepthook = lambda kind, error, trace: _report(control.window, kind, error, trace)
    control.window.show()
    control.launch(bundle)
    try:
        return app.exec()
    finally:
        control.window.close()
        if store is not None:
            store.close()
        instance.release()


def application() -> QApplication:
    """The one QApplication of this process."""
    app = QApplication.instance()
    if not isinstance(app, QApplication):
        app = QApplication(sys.argv[:1])
    app.setApplicationName("pilotfish")
    app.setDesktopFileName("pilotfish")
    app.setWindowIcon(app_icon())
    return app


def open_store() -> Store | None:
    """The chats; None if they cannot be opened and the user goes on without. `DesktopError` if the user does not."""
    try:
        store = Store(places.chats_path())
    except StoreError as error:
        box = QMessageBox(QMessageBox.Icon.Warning, "pilotfish", as_sentence(str(error)))
        box.setInformativeText(box.tr("You can go on without your chats; what is said then is not kept."))
        go_on = box.addButton(box.tr("Go on without saving"), QMessageBox.ButtonRole.AcceptRole)
        box.addButton(box.tr("Quit"), QMessageBox.ButtonRole.RejectRole)
        box.exec()
        if box.clickedButton() is not go_on:
            raise
        return None
    if store.notice:
        QMessageBox.warning(None, "pilotfish", store.notice)
    store.purge(time.time() - KEPT_DELETED_S)
    return store


def build(app: QApplication, store: Store | None, engine_command: Sequence[str] | None = None) -> WindowControl:
    """The window with all that it works on, not yet shown."""
    settings, faults = load_settings(places.settings_path())
    record = LoadRecord(places.load_record_path())
    bridge = Bridge()
    process = EngineProcess(bridge.deliver, engine_command, record)
    window = MainWindow()
    desk = Desk(store, process, record, changed=lambda message_id: control.message_changed(message_id))
    control = WindowControl(app, window, desk, bridge, settings, Drafts(places.drafts_path()))
    if faults:
        window.banner.say(as_sentence(f"the settings were damaged in part: {'; '.join(faults)}"), "warning")
    return control


def _yield_to(instance: SingleInstance) -> int:
    if not instance.show_other():
        text = instance.tr("pilotfish is running already: {owner}. It does not answer; end it and try again.")
        QMessageBox.warning(None, "pilotfish", text.format(owner=instance.owner))
        return 1
    return 0


def _report(window: MainWindow, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A mistake of the program: told, logged, and the window stays."""
    _logger.error("%s", "".join(traceback.format_exception(kind, error, trace)))
    window.banner.say(f"Something went wrong inside the program ({kind.__name__}: {error}).", "error")
