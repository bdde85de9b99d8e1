"""The command that starts the application. Qt is imported only when it is called."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from pilotfish.desktop_app.errors import DesktopError

INSTALL = "run `pip install 'pilotfish[app]'`"


def register(app: typer.Typer) -> None:
    """Adds `app` to the program."""
    app.command("app")(app_command)


def app_command(
    bundle: Annotated[Path | None, typer.Option(help="Bundle to load. Default: the one that was loaded last.")] = None,
) -> int:
    """Opens the chat window."""
    if find_spec("PySide6") is None:
        raise DesktopError(f"the chat window needs PySide6, which is not installed; {INSTALL}")
    if bundle is not None and not bundle.is_dir():
        raise DesktopError(f"{bundle} is no folder; name a bundle, as `pilotfish export` writes it")
    try:
        from pilotfish.desktop_app.widgets.application import run
    except ImportError as error:
        raise DesktopError(
            f"the chat window cannot be loaded ({error}); {INSTALL}, and the libraries it names"
        ) from error
    return run(bundle.absolute() if bundle else None)
