from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PySide6.QtWidgets import QLabel

from pilotfish.desktop_app.models import estimate_fit, list_models
from pilotfish.desktop_app.widgets import welcome as module
from pilotfish.desktop_app.widgets.theme import apply_theme
from pilotfish.desktop_app.widgets.welcome import Welcome
from pilotfish.runtime.catalog import bundles_dir, downloads_dir, load_catalog
from pilotfish.runtime.engine import DEFAULT_CONTEXT_LENGTH
from support.fake_export import fake_export
from support.walk import check_contrast, check_names, check_not_clipped, check_tab_order

WAIT_MS = 60_000


@pytest.fixture
def make(qtbot, qapp, tmp_path: Path, bundle_path: Path):
    apply_theme(qapp, "light")

    def page(ending: str = "copy") -> Welcome:
        made = Welcome(bundles=tmp_path / "bundles", command=fake_export(bundle_path, ending))
        qtbot.addWidget(made)
        made.resize(900, 700)
        made.show()
        return made

    return page


def shown(page: Welcome) -> str:
    return "\n".join(each.text() for each in page.findChildren(QLabel) if each.isVisibleTo(page))


def test_it_says_what_the_default_pair_takes(make, monkeypatch):
    monkeypatch.setattr(module, "free_memory", lambda: 100_000_000)
    text = shown(make())
    for words in ("SmolLM2 135M", "98.4 MB", "285.2 MB", "383.7 MB", "only 100.0 MB free: make room first"):
        assert words in text
    monkeypatch.setattr(module, "free_memory", lambda: None)
    assert "make room" not in shown(make())


def test_one_press_gets_to_a_bundle_that_is_ready(make, tmp_path, qtbot):
    page = make()
    with qtbot.waitSignal(page.ready, timeout=WAIT_MS) as heard:
        page.start_button.click()
        assert not page.start_button.isEnabled()
    (entry,) = list_models(tmp_path / "bundles")
    assert heard.args == [entry.path]
    assert entry.fault == ""
    with qtbot.waitSignal(page.ready) as heard:  # it is there already
        page.start()
    assert heard.args == [entry.path]


@pytest.mark.real_model
def test_the_real_pair_is_made_from_what_was_downloaded(tmp_path, monkeypatch, qtbot, smollm2):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path))
    downloads_dir().mkdir()
    shutil.copy(smollm2, downloads_dir() / smollm2.name)
    page = Welcome()
    qtbot.addWidget(page)
    with qtbot.waitSignal(page.ready, timeout=10 * WAIT_MS) as heard:
        page.start_button.click()
    assert heard.args == [bundles_dir() / "smollm2-135m"]
    (entry,) = list_models()
    pair = load_catalog().default_pair
    assert entry.num_bytes == pytest.approx(pair.bundle_bytes, rel=0.02)
    fit = estimate_fit(entry.manifest, DEFAULT_CONTEXT_LENGTH, None)
    assert fit.num_bytes == pytest.approx(pair.memory_bytes, rel=0.02)


def test_it_can_be_cancelled_and_resumed(make, bundle_path, qtbot):
    page = make("wait")
    page.start_button.click()
    qtbot.waitUntil(lambda: len(page.view._bars) == 2, timeout=WAIT_MS)
    assert page.view.cancel_button.hasFocus()
    check_contrast(page)
    check_not_clipped(page)
    with qtbot.waitSignal(page.view.running, timeout=WAIT_MS):
        page.view.cancel_button.click()
    assert page.view.again_button.text() == "Resume"
    assert not page.start_button.isVisibleTo(page)
    page.view._command = fake_export(bundle_path)
    with qtbot.waitSignal(page.ready, timeout=WAIT_MS):
        page.view.again_button.click()


def test_a_failure_shows_what_to_do(make, qtbot):
    page = make("smollm2-135m cannot be fetched; check the network, then try again")
    with qtbot.waitSignals([page.view.running, page.view.running], timeout=WAIT_MS):
        page.start_button.click()
    assert "smollm2-135m cannot be fetched" in shown(page)
    assert "Check the network, then try again" in shown(page)
    assert page.view.again_button.text() == "Try again"


def test_another_model_can_be_chosen(make, qtbot):
    page = make()
    with qtbot.waitSignal(page.other_requested):
        page.other_button.click()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_it_can_be_used_by_keys_and_read(make, qapp, theme, zoom):
    page = make()
    apply_theme(qapp, theme, zoom)
    check_names(page)
    check_tab_order(page)
    check_contrast(page)
    check_not_clipped(page)
    apply_theme(qapp, "light")
