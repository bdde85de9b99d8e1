"""Starts everything once, as a user would, and says whether it works: for a program that was just built."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtWidgets import QApplication

from pilotfish.desktop_app.desk import Desk
from pilotfish.desktop_app.widgets.application import application, build, open_store

PATIENCE_S = 120.0
NUM_TOKENS = 16


def self_test(bundle: Path | None) -> int:
    """Opens the window in a folder of its own, starts the engine, and has `bundle` answer if one is named.

    Prints what came of it; the exit code is 0 if all went well.
    """
    with tempfile.TemporaryDirectory(prefix="pilotfish-self-test-") as folder:
        os.environ["PILOTFISH_DATA"] = folder
        app, store = application(), open_store()
        control = build(app, store)
        settings = control.settings.settings
        control.settings.apply(replace(settings, reply=replace(settings.reply, max_tokens=NUM_TOKENS)))
        control.window.show()
        control.launch(bundle)
        try:
            print(_tried(app, control.desk, bundle))  # noqa: T201
            return 0
        except TimeoutError as error:
            print(f"the self-test failed: {error}")  # noqa: T201
            return 1
        finally:
            control.window.close()
            if store is not None:
                store.close()


def _tried(app: QApplication, desk: Desk, bundle: Path | None) -> str:
    """What was seen to work; `TimeoutError` says what did not."""
    _wait(app, lambda: desk.is_engine_ready, "the engine's process does not answer")
    if bundle is None:
        return "the window opens and the engine's process answers"
    _wait(app, lambda: desk.engine.phase != "loading", "the model is not loaded in time")
    if desk.engine.phase != "ready":
        raise TimeoutError(f"{desk.engine.cause} {desk.engine.remedy}")
    desk.session.send("Say hello.")
    _wait(app, lambda: not desk.session.is_busy, "no answer comes")
    return f"the model answers: {desk.session.conversation.path[-1].text!r}"


def _wait(app: QApplication, until: Callable[[], bool], fault: str) -> None:
    ends_s = time.monotonic() + PATIENCE_S
    while not until():
        if time.monotonic() > ends_s:
            raise TimeoutError(fault)
        app.processEvents()
        time.sleep(0.01)
