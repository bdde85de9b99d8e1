"""Pictures of the window, to be looked at: of `PILOTFISH_SCREENSHOT_BUNDLE`, into the folder `PILOTFISH_SCREENSHOTS`.

The first answer, a long answer with code and tints, and the panel with speculation on and off, each in both themes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtGui import QColor, QImage

from pilotfish.desktop_app.themes import DARK, LIGHT
from support.application import Application

pytestmark = pytest.mark.real_model

SIZE = (1100, 760)
CODE = """Here is my class:

```python
class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop()
```

Write it again with type hints and docstrings, and a method `peek`. Then show how it is used."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    chosen = Path(os.environ.get("PILOTFISH_SCREENSHOTS") or tmp_path / "screenshots")
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen


@pytest.fixture
def bundle(request: pytest.FixtureRequest) -> Path:
    chosen = os.environ.get("PILOTFISH_SCREENSHOT_BUNDLE")
    return Path(chosen) if chosen else request.getfixturevalue("smollm2_bundle")


@pytest.fixture
def app(tmp_path: Path, qapp, monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    monkeypatch.setenv("PILOTFISH_DATA", str(tmp_path / "data"))
    app = Application(None)
    app.window.resize(*SIZE)
    change(app, theme="light")
    settings = app.control.settings.settings
    change(app, reply=replace(settings.reply, temperature=0.0, max_tokens=320))
    yield app
    app.close()


def change(app: Application, **settings) -> None:
    app.control.settings.apply(replace(app.control.settings.settings, **settings))


def test_screenshots(app: Application, bundle: Path, folder: Path):
    app.launch(bundle)
    shoot(app, folder, "empty")
    app.ask("Name three things that a small submarine needs, each with one sentence of explanation.")
    shoot(app, folder, "first-answer")
    app.control.chats.new()
    change(app, tints=True)
    app.ask(CODE)
    shoot(app, folder, "code-with-tints")
    change(app, tints=False)
    app.panel.expand.setChecked(True)
    shoot(app, folder, "speculation-on")
    app.panel.switch.click()
    app.ask("Thank you!")
    shoot(app, folder, "speculation-off")


def shoot(app: Application, folder: Path, name: str) -> None:
    """One picture in each theme; that it is not empty is seen by its colours."""
    app.wait(lambda: not app.panel._pause.isActive() and "tokens" in app.composer.meter.text)
    for theme, colours in (("light", LIGHT), ("dark", DARK)):
        change(app, theme=theme)
        for _ in range(200):
            app.app.processEvents()
        path = folder / f"{name}-{theme}.png"
        assert app.window.grab().toImage().convertToFormat(QImage.Format.Format_RGB888).save(str(path))
        image = QImage(str(path))
        assert image.size().toTuple() == SIZE
        assert {colours.window, colours.text, colours.accent} <= seen(image)
    change(app, theme="light")


def seen(image: QImage) -> set[str]:
    pixels = {image.pixel(x, y) for x in range(0, image.width(), 2) for y in range(image.height())}
    return {QColor(pixel).name() for pixel in pixels}
