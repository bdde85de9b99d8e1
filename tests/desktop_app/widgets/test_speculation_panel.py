"""The panel of speculation: its line, its switch and its details."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel

from pilotfish.desktop_app.protocol import BundleFacts, Part, Piece, Progress
from pilotfish.desktop_app.themes import DARK, LIGHT
from pilotfish.desktop_app.widgets import speculation_panel
from pilotfish.desktop_app.widgets.speculation_panel import SpeculationPanel
from pilotfish.desktop_app.widgets.speculation_plot import SpeculationPlot

FACTS = BundleFacts("/b", "b", "Big", "int8", "Small", "int4", 4096, 8192, 1, 1.0)


@pytest.fixture
def panel(qtbot) -> SpeculationPanel:
    panel = SpeculationPanel()
    qtbot.addWidget(panel)
    panel.set_facts(FACTS)
    panel.resize(800, 300)
    panel.show()
    return panel


def piece(number: int, speculation: str = "on: model in 5 rounds") -> Piece:
    progress = Progress(40 * number, 10 * number, 40 * number, 20 * number, 40.0, 1.8, speculation)
    return Piece(1, (Part("model", "x", 30), Part("target", "y", 10)), progress)


def test_the_line_follows_the_reply(panel: SpeculationPanel, qtbot):
    assert panel.line == "Speculation ready: Small drafts"
    panel.begin()
    panel.add(piece(1))
    qtbot.waitUntil(lambda: panel.line == "Speculation on · 1.8× · 50 % accepted", timeout=10_000)
    panel.add(piece(2, "off: the draft costs too much"))
    qtbot.waitUntil(lambda: panel.line == "Speculation off because the draft costs too much", timeout=10_000)
    panel.set_facts(None)
    assert panel.line == "Speculation no model is loaded"


def test_the_line_is_not_written_for_each_piece(panel: SpeculationPanel, qtbot, monkeypatch: pytest.MonkeyPatch):
    calls = []
    real = speculation_panel.line
    monkeypatch.setattr(speculation_panel, "line", lambda *arguments: calls.append(1) or real(*arguments))
    for number in range(1, 500):
        panel.add(piece(number))
    qtbot.waitUntil(lambda: calls != [], timeout=10_000)
    assert len(calls) == 1


def test_the_switch_stays_where_it_was_put(panel: SpeculationPanel, qtbot):
    told = []
    panel.switched.connect(told.append)
    panel.switch.setFocus()
    QTest.keyClick(panel.switch, Qt.Key.Key_Space)
    assert told == [False]
    assert panel.line == "Speculation off because you switched it off"
    panel.set_facts(FACTS)
    panel.begin()
    panel.add(piece(1, "off: it is switched off"))
    qtbot.wait(2 * speculation_panel.REFRESH_MS)
    assert not panel.is_wanted
    assert panel.line == "Speculation off because you switched it off"
    QTest.mouseClick(panel.switch, Qt.MouseButton.LeftButton, pos=panel.switch.rect().center())
    assert told == [False, True]
    panel.set_wanted(True)
    assert told == [False, True]


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_the_details_show_the_pair_the_drafter_and_a_plot(
    panel: SpeculationPanel, colours, monkeypatch: pytest.MonkeyPatch
):
    panel.set_colours(colours)
    plot = panel.findChild(SpeculationPlot)
    assert not plot.isVisible()
    panel.expand.click()
    assert plot.isVisible()
    empty = plot.grab().toImage()
    clock = iter(range(100))
    monkeypatch.setattr(speculation_panel.time, "monotonic", lambda: float(next(clock)))
    for number in range(1, 30):
        panel.add(piece(number))
    panel._refresh()
    texts = {label.text() for label in panel.findChildren(QLabel) if label.isVisible()}
    assert {
        "Big · int8",
        "Small · int4",
        "the draft model, 4.0 tokens a round",
        "22.2 tokens/s, measured here",
    } <= texts
    assert "model in 5 rounds" in texts
    assert plot.grab().toImage() != empty
    drawn = {plot.grab().toImage().pixelColor(x, y).name() for x in range(0, 200, 3) for y in range(150)}
    assert {colours.accent, colours.good} <= drawn
    assert "40.0 tokens per second" in plot.accessibleName()
    panel.expand.click()
    assert not plot.isVisible()
