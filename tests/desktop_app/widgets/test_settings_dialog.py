from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication, QInputDialog, QMessageBox

from pilotfish.desktop_app.devices import find_devices
from pilotfish.desktop_app.settings import LoadOptions, Settings
from pilotfish.desktop_app.widgets.settings_dialog import SettingsDialog
from pilotfish.desktop_app.widgets.theme import apply_theme
from support.walk import check_contrast, check_names, check_not_clipped, check_tab_order


@pytest.fixture
def make(qtbot, qapp):
    apply_theme(qapp, "light")

    def dialog(settings: Settings | None = None, **options) -> SettingsDialog:
        made = SettingsDialog(settings or Settings(), ("cpu", "cuda"), **options)
        qtbot.addWidget(made)
        made.show()
        made.heard = []
        made.changed.connect(made.heard.append)
        return made

    return dialog


def number(page, name: str):
    return next(each for each in page.numbers if each._field.name == name)


def type_into(qtbot, widget, text: str) -> None:
    widget.selectAll()
    qtbot.keyClick(widget, Qt.Key.Key_Delete)
    qtbot.keyClicks(widget, text)


def choose(box, key: str) -> None:
    box.setCurrentIndex(box.findData(key))
    box.activated.emit(box.currentIndex())


def test_each_control_changes_its_setting_at_once(qtbot, make):
    dialog = make()
    for name, text in (("temperature", "0,3"), ("top_k", "40"), ("top_p", "0.9"), ("min_p", "0.1"), ("seed", "5"),
                       ("repetition_penalty", "1.2"), ("max_tokens", ""), ("room", "99")):  # fmt: skip
        type_into(qtbot, number(dialog.replies, name).edit, text)
    qtbot.keyClicks(dialog.replies.prompt, "Sei kurz")
    choose(dialog.replies.overflow, "stop")
    choose(dialog.speculation.drafter, "suffix")
    type_into(qtbot, number(dialog.speculation, "num_draft_tokens").edit, "7")
    dialog.speculation.switch.click()
    assert not dialog.model.cuda_graphs.isEnabled()
    choose(dialog.model.device, "cuda")
    choose(dialog.model.draft_device, "cpu")
    dialog.model.cuda_graphs.click()
    choose(dialog.model.mode, "fast")
    type_into(qtbot, number(dialog.model, "num_threads").edit, "2")
    type_into(qtbot, number(dialog.model, "context_length").edit, "777")
    choose(dialog.look.theme, "dark")
    choose(dialog.look.zoom, "1.25")
    dialog.look.tints.click()
    reply = replace(
        Settings().reply, temperature=0.3, top_k=40, top_p=0.9, min_p=0.1, seed=5, repetition_penalty=1.2,
        max_tokens=None, room=99, overflow="stop", draft="suffix", num_draft_tokens=7,
    )  # fmt: skip
    assert dialog.heard[-1] == dialog.settings
    assert dialog.settings == replace(
        Settings(), reply=reply, system_prompt="Sei kurz", speculates=False,
        loading=LoadOptions("cuda", "cpu", 777, 2, exact=False, cuda_graphs=True), theme="dark", zoom=1.25, tints=True,
    )  # fmt: skip
    shown = make(dialog.settings)
    assert shown.heard == []
    assert number(shown.replies, "temperature").edit.text() == "0.3"
    assert shown.replies.prompt.toPlainText() == "Sei kurz"
    assert shown.model.draft_device.currentData() == "cpu"
    assert not shown.speculation.switch.isChecked()
    assert shown.model.cuda_graphs.isChecked()
    choose(shown.model.device, "cpu")  # on which nothing can be recorded
    assert not shown.settings.loading.cuda_graphs
    assert not shown.model.cuda_graphs.isChecked()
    assert not shown.model.cuda_graphs.isEnabled()


def test_a_wrong_value_is_not_applied_and_the_library_says_why(qtbot, make):
    dialog = make()
    field = number(dialog.replies, "top_p")
    type_into(qtbot, field.edit, "7")
    assert field.message.isVisibleTo(dialog)
    assert field.message.text() == "top_p is 7.0; it must lie between 0 and 1"
    assert field.edit.accessibleDescription() == field.message.text()
    assert dialog.settings.reply.top_p == 0.95
    type_into(qtbot, number(dialog.replies, "top_k").edit, "3")
    assert dialog.settings.reply.top_k == 3
    assert field.edit.text() == "7"
    type_into(qtbot, field.edit, "0.7")
    assert not field.message.isVisibleTo(dialog)
    assert field.edit.accessibleDescription() == ""
    assert dialog.settings.reply.top_p == 0.7


def test_presets_are_chosen_saved_renamed_and_deleted(make, monkeypatch):
    dialog = make()
    row = dialog.replies.presets
    assert row.box.currentData() == "Balanced"
    choose(row.box, "Code")
    assert number(dialog.replies, "temperature").edit.text() == "0.2"
    assert "programmer" in dialog.replies.prompt.toPlainText()
    dialog.replies.prompt.setPlainText("mine")
    assert row.box.currentText() == "(own values)"
    assert not row.delete.isEnabled()
    monkeypatch.setattr(QInputDialog, "getText", lambda *_: ("Own", True))
    row.save.click()
    assert row.box.currentData() == "Own"
    monkeypatch.setattr(QInputDialog, "getText", lambda *_: ("Code", True))
    said = []
    monkeypatch.setattr(QMessageBox, "warning", lambda *arguments: said.append(arguments[-1]))
    row.rename.click()
    assert "two presets are named 'Code'" in said[0]
    monkeypatch.setattr(QInputDialog, "getText", lambda *_: ("New", True))
    row.rename.click()
    assert row.box.currentData() == "New"
    answers = [QMessageBox.StandardButton.No, QMessageBox.StandardButton.Yes]
    monkeypatch.setattr(QMessageBox, "question", lambda *_: answers.pop(0))
    row.delete.click()
    assert row.box.currentData() == "New"
    row.delete.click()
    assert [each.name for each in dialog.heard[-1].presets] == [each.name for each in Settings().presets]
    assert dialog.settings.system_prompt == "mine"


def test_reset_asks_and_leaves_the_presets(make, monkeypatch):
    dialog = make(replace(Settings(), presets=(), zoom=1.5, system_prompt="x", loading=LoadOptions(num_threads=1)))
    answers = [QMessageBox.StandardButton.No, QMessageBox.StandardButton.Yes]
    monkeypatch.setattr(QMessageBox, "question", lambda *_: answers.pop(0))
    dialog.reset.click()
    assert dialog.heard == []
    dialog.reset.click()
    assert dialog.heard == [Settings(presets=())]
    assert dialog.look.zoom.currentData() == "1.0"
    assert number(dialog.model, "num_threads").edit.text() == ""


def test_what_needs_a_reload_is_said(make):
    dialog = make(loaded_with=LoadOptions())
    assert not dialog.model.reload.isVisibleTo(dialog.model)
    choose(dialog.look.theme, "dark")
    assert not dialog.model.reload.isVisibleTo(dialog.model)
    choose(dialog.model.mode, "fast")
    assert dialog.model.reload.isVisibleTo(dialog.model)
    assert "does not run with these settings yet" in dialog.model.notice.text()
    asked = []
    dialog.reload_requested.connect(lambda: asked.append(True))
    dialog.model.reload.click()
    assert asked == [True]
    dialog.model.set_loaded_with(dialog.settings.loading)
    assert not dialog.model.reload.isVisibleTo(dialog.model)


def test_a_device_that_is_set_but_not_there_stays_and_is_marked(make):
    dialog = make(replace(Settings(), loading=LoadOptions("tensorrt")))
    assert dialog.model.device.currentText() == "tensorrt (not found)"
    dialog.model.set_devices(("cpu", "tensorrt"))
    assert dialog.model.device.currentText() == "tensorrt"
    assert dialog.settings.loading.device == "tensorrt"
    assert "cpu" in find_devices()


def test_speculation_off_and_on_returns_to_the_drafter(make):
    dialog = make(replace(Settings(), reply=replace(Settings().reply, draft="cascade")))
    page = dialog.speculation
    page.switch.click()
    assert (dialog.settings.speculates, dialog.settings.reply.draft) == (False, "cascade")
    assert not page.drafter.isEnabled()
    page.switch.click()
    assert (dialog.settings.speculates, dialog.settings.reply.draft) == (True, "cascade")
    assert page.k.isEnabled()
    off = make(replace(Settings(), reply=replace(Settings().reply, draft="off")))
    assert not off.speculation.switch.isChecked()
    off.speculation.switch.click()
    assert (off.settings.speculates, off.settings.reply.draft) == (True, "auto")


def test_the_wheel_changes_no_choice(make):
    dialog = make()
    dialog.tabs.setCurrentWidget(dialog.look)
    box = dialog.look.theme
    event = QWheelEvent(
        QPointF(5, 5), QPointF(box.mapToGlobal(QPoint(5, 5))), QPoint(0, -120), QPoint(0, -120),
        Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(box, event)
    assert box.currentData() == "system"


def test_large_text_gets_a_larger_window(make, qapp):
    usual = make().size()
    apply_theme(qapp, "light", 1.5)
    large = make().size().boundedTo(qapp.primaryScreen().availableSize())
    apply_theme(qapp, "light")
    assert large.width() > usual.width()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_page_can_be_used_by_keys_and_read(make, qapp, theme):
    dialog = make(loaded_with=LoadOptions(num_threads=3))
    apply_theme(qapp, theme)
    for index in range(dialog.tabs.count()):
        dialog.tabs.setCurrentIndex(index)
        check_names(dialog)
        check_tab_order(dialog)
        check_contrast(dialog)
        check_not_clipped(dialog)
