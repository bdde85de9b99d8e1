from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QFileDialog, QLabel, QMessageBox
from rich.filesize import decimal

from pilotfish.desktop_app.models import list_models
from pilotfish.desktop_app.widgets import model_list
from pilotfish.desktop_app.widgets.draft_picker import DraftPicker
from pilotfish.desktop_app.widgets.models_dialog import ModelsDialog
from pilotfish.desktop_app.widgets.theme import apply_theme
from support.checkpoint_files import METADATA, OPTIONS, write_folder, write_gguf
from support.fake_export import fake_export
from support.tiny_models import CONFIG, tiny_weights
from support.vocabularies import without_texts
from support.walk import check_contrast, check_names, check_not_clipped, check_tab_order

WAIT_MS = 60_000


@pytest.fixture
def bundles(tmp_path: Path, bundle_path: Path, lookup_bundle_path: Path) -> Path:
    folder = tmp_path / "bundles"
    shutil.copytree(bundle_path, folder / "pair")
    shutil.copytree(lookup_bundle_path, folder / "single")
    (folder / "broken").mkdir()
    return folder


@pytest.fixture
def make(qtbot, qapp, bundles):
    apply_theme(qapp, "light")

    def dialog(loaded: Path | None = None, **options) -> ModelsDialog:
        made = ModelsDialog(loaded, bundles=bundles, **options)
        qtbot.addWidget(made)
        made.show()
        return made

    return dialog


def choose(dialog: ModelsDialog, name: str) -> None:
    (item,) = [each for each in items(dialog) if each.text().startswith(f"{name}\n")]
    dialog.list.list.setCurrentItem(item)


def items(dialog: ModelsDialog) -> list:
    return [dialog.list.list.item(row) for row in range(dialog.list.list.count())]


def card_text(dialog: ModelsDialog) -> str:
    QApplication.processEvents()  # new labels are shown by the event loop
    return "\n".join(each.text() for each in dialog.list.findChildren(QLabel) if each.isVisibleTo(dialog))


def test_bundles_are_listed_with_size_and_fit_damaged_ones_with_their_fault(make, bundles, monkeypatch):
    monkeypatch.setattr(model_list, "free_memory", lambda: 8_000_000_000)
    dialog = make(bundles / "single")
    sizes = {entry.name: decimal(entry.num_bytes) for entry in list_models(bundles)}
    summaries = ["broken\ndamaged", f"pair\nfits · {sizes['pair']}", f"single\nloaded · {sizes['single']}"]
    assert [each.text() for each in items(dialog)] == summaries
    choose(dialog, "broken")
    assert "is not a bundle" in card_text(dialog)
    assert "add the model again" in card_text(dialog)
    assert not dialog.list.load.isEnabled()
    choose(dialog, "pair")
    text = card_text(dialog)
    for words in ("tiny (fp32)", "up to 512 tokens", "for 512 tokens", "It fits: it takes about", "8.0 GB are free"):
        assert words in text


@pytest.mark.parametrize(
    ("free", "words"),
    [(1_000_000, "It does not fit now"), (2_500_000, "fits only just"), (None, "is not known here")],
)
def test_the_estimate_says_what_to_do(make, monkeypatch, free, words):
    monkeypatch.setattr(model_list, "free_memory", lambda: free)
    dialog = make()
    choose(dialog, "pair")
    assert words in card_text(dialog)
    if free:
        assert "choose a shorter context" in card_text(dialog)


def test_the_loaded_bundle_would_make_room_and_the_context_counts(make, bundles, monkeypatch):
    monkeypatch.setattr(model_list, "free_memory", lambda: 2_000_000)
    dialog = make(bundles / "single", context_length=512)
    entry = next(each for each in list_models(bundles) if each.name == "pair")
    with_room = dialog.list.fit(entry)
    assert with_room.free_bytes > 2_000_000
    dialog.set_loaded(None, 100)
    assert dialog.list.fit(entry).free_bytes == 2_000_000
    assert dialog.list.fit(entry).cache_bytes < with_room.cache_bytes


def test_load_and_unload_are_asked_for(make, bundles, qtbot):
    dialog = make(bundles / "single")
    choose(dialog, "pair")
    with qtbot.waitSignal(dialog.load_requested) as heard:
        dialog.list.load.click()
    assert heard.args == [bundles / "pair"]
    with qtbot.waitSignal(dialog.load_requested):
        qtbot.keyClick(dialog.list.list, Qt.Key.Key_Return)
    choose(dialog, "broken")
    with qtbot.assertNotEmitted(dialog.load_requested):
        qtbot.keyClick(dialog.list.list, Qt.Key.Key_Return)
    choose(dialog, "single")
    assert not dialog.list.load.isVisibleTo(dialog)
    with qtbot.waitSignal(dialog.unload_requested):
        dialog.list.unload.click()


def test_a_bundle_is_deleted_after_a_question_but_never_the_loaded_one(make, bundles, monkeypatch):
    answers = [QMessageBox.StandardButton.No, QMessageBox.StandardButton.Yes]
    monkeypatch.setattr(QMessageBox, "question", lambda *_: answers.pop(0))
    dialog = make(bundles / "single")
    choose(dialog, "single")
    assert not dialog.list.delete.isEnabled()
    assert dialog.list.delete.toolTip() == "Unload this model first"
    dialog.list._delete()
    assert (bundles / "single").is_dir()
    choose(dialog, "pair")
    dialog.list.delete.click()
    assert (bundles / "pair").is_dir()
    dialog.list.delete.click()
    assert not (bundles / "pair").exists()
    assert len(items(dialog)) == 2
    choose(dialog, "single")
    dialog.set_loaded(None)
    assert dialog.list.delete.isEnabled()
    answers.append(QMessageBox.StandardButton.Yes)
    shutil.rmtree(bundles / "single")
    said = []
    monkeypatch.setattr(QMessageBox, "warning", lambda *arguments: said.append(arguments[-1]))
    dialog.list.delete.click()
    assert "cannot be deleted" in said[0]


def test_an_empty_folder_says_what_to_do(qtbot, tmp_path):
    dialog = ModelsDialog(None, bundles=tmp_path / "none")
    qtbot.addWidget(dialog)
    assert "add one" in dialog.list.title.text()
    assert not dialog.list.load.isEnabled()
    assert not dialog.list.delete.isEnabled()


def test_a_folder_is_exported_and_the_new_bundle_chosen(make, bundles, tmp_path, qtbot, monkeypatch):
    source = write_folder(tmp_path / "my-model")
    dialog = make()
    dialog.show_add_page()
    dialog.add.kind.select("folder")
    dialog.add.kind.chosen.emit("folder")
    assert not dialog.add.add.isEnabled()
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(source))
    dialog.add.source.button.click()
    dialog.add.draft.edit.setText(str(source))
    with qtbot.waitSignal(dialog.add.added, timeout=WAIT_MS) as heard:
        dialog.add.add.click()
        assert not dialog.add.kind.isEnabled()
    assert heard.args == [bundles / "my-model"]
    assert dialog.tabs.currentWidget() is dialog.list
    assert dialog.list.entry.name == "my-model"
    assert dialog.list.entry.manifest.draft is not None
    assert dialog.add.kind.isEnabled()


def test_orders_are_what_the_form_says(make, bundles):
    add = make().add
    order = add.order()
    assert (order.target, order.output, order.recipe) == ("smollm2-135m", bundles / "smollm2-135m", "int8-b16")
    (bundles / "smollm2-135m").mkdir()
    assert add.order().output == bundles / "smollm2-135m-2"
    add.kind.select("hub")
    add.kind.chosen.emit("hub")
    add.source.edit.setText(" owner/name ")
    add.recipe.select("int4")
    order = add.order()
    assert (order.target, order.output, order.recipe, order.draft) == ("owner/name", bundles / "name", "int4", None)


def test_an_export_can_be_cancelled_and_resumed(make, bundles, bundle_path, qtbot):
    dialog = make(command=fake_export(bundle_path, "wait"))
    dialog.show_add_page()
    view = dialog.add.view
    dialog.add.add.click()
    qtbot.waitUntil(lambda: len(view._bars) == 2, timeout=WAIT_MS)
    bar, figure = view._bars["fetching model"]
    assert (bar.value(), figure.text()) == (500, "5.0 GB / 10.0 GB")
    assert view._bars["exporting target"][1].text() == "75%"
    check_names(dialog)
    check_tab_order(dialog)
    with qtbot.waitSignal(view.running, timeout=WAIT_MS):
        view.cancel_button.click()
    assert "What was downloaded is kept" in view.message.text()
    assert not (bundles / "smollm2-135m").exists()
    view._command = fake_export(bundle_path)
    with qtbot.waitSignal(dialog.add.added, timeout=WAIT_MS) as heard:
        view.again_button.click()
    assert heard.args == [bundles / "smollm2-135m"]
    assert len(view._bars) == 2


def test_a_failure_shows_cause_and_remedy(make, bundle_path, qtbot, tmp_path):
    dialog = make(command=fake_export(bundle_path, "the hub cannot be reached; check the network, then try again"))
    view = dialog.add.view
    dialog.show_add_page()
    with qtbot.waitSignals([view.running, view.running], timeout=WAIT_MS):
        dialog.add.add.click()
    assert (view.message.text(), view.remedy.text()) == (
        "the hub cannot be reached",
        "Check the network, then try again",
    )
    assert view.again_button.isVisibleTo(dialog)
    check_contrast(dialog)
    view._command = lambda arguments: [str(tmp_path / "no-program")]
    view.again_button.click()
    assert "cannot be started" in view.message.text()
    assert not view.is_running


def test_an_export_that_runs_is_ended_with_the_program(make, bundle_path, qtbot):
    view = make(command=fake_export(bundle_path, "wait")).add.view
    view._order = None
    view.start(make().add.order())
    qtbot.waitUntil(lambda: len(view._bars) == 2, timeout=WAIT_MS)
    process = view._export._process
    view.close_export()
    assert process.poll() is not None


@pytest.fixture
def drafts(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    write_gguf(folder / "target.gguf", METADATA | {"block_count": 2}, tiny_weights(CONFIG))
    write_folder(folder / "small", OPTIONS | {"num_hidden_layers": 1}, tiny_weights(replace(CONFIG, num_layers=1)))
    other = write_folder(folder / "other") / "tokenizer.json"
    other.write_text(without_texts(other.read_text(encoding="utf-8"), 40), encoding="utf-8")
    return folder


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_draft_picker_explains_each_refusal(qtbot, qapp, drafts, theme):
    apply_theme(qapp, theme)
    picker = DraftPicker(str(drafts / "target.gguf"))
    qtbot.addWidget(picker)
    picker.show()
    qtbot.waitUntil(lambda: picker.list.count() > 0, timeout=WAIT_MS)
    assert picker.list.item(0).text().startswith("✓ small")
    assert picker.use.isEnabled()
    assert "of the target's parameters" in picker.explanation.text()
    rows = {picker.list.item(row).text().split()[1]: row for row in range(picker.list.count())}
    picker.list.setCurrentRow(rows["other"])
    assert "have no text of their own" in picker.explanation.text()
    assert not picker.use.isEnabled()
    check_names(picker)
    check_tab_order(picker)
    check_contrast(picker)
    check_not_clipped(picker)
    picker.list.setCurrentRow(rows["small"])
    picker.use.click()
    assert picker.chosen == str(drafts / "small")


def test_a_search_that_fails_says_why(qtbot, tmp_path):
    fails = [sys.executable, "-c", "import sys; sys.exit('pilotfish: there is no such model; choose another')"]
    picker = DraftPicker("x", command=lambda arguments: fails)
    qtbot.addWidget(picker)
    qtbot.waitUntil(lambda: "there is no such model" in picker.status.text(), timeout=WAIT_MS)
    assert picker.look.isEnabled()
    assert not picker.use.isEnabled()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_page_can_be_used_by_keys_and_read(make, qapp, bundles, theme):
    dialog = make(bundles / "single")
    apply_theme(qapp, theme)
    for name in ("broken", "pair", "single"):
        choose(dialog, name)
        check_names(dialog)
        check_contrast(dialog)
        check_not_clipped(dialog)
    check_tab_order(dialog)
    dialog.show_add_page()
    for kind in ("catalog", "gguf", "folder", "hub"):
        dialog.add.kind.select(kind)
        dialog.add.kind.chosen.emit(kind)
        dialog.add.source.edit.setText("x")
        check_names(dialog)
        check_tab_order(dialog)
        check_contrast(dialog)
        check_not_clipped(dialog)
