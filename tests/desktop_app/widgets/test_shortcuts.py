from __future__ import annotations

import pytest
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QLabel

from pilotfish.desktop_app.widgets.shortcuts import SHORTCUTS, ShortcutSheet, tool_tip
from pilotfish.desktop_app.widgets.theme import apply_theme
from support.walk import check_contrast, check_names, check_not_clipped, check_tab_order


def test_each_shortcut_is_one_key_and_no_two_are_the_same(qapp):
    for shortcut in SHORTCUTS.values():
        assert shortcut.sequence.count() == 1, shortcut
        assert shortcut.shown_keys, shortcut
    assert len({shortcut.sequence.toString() for shortcut in SHORTCUTS.values()}) == len(SHORTCUTS)


def test_no_shortcut_takes_a_key_from_text_fields(qapp):
    standard = QKeySequence.StandardKey
    editing = (standard.Copy, standard.Cut, standard.Paste, standard.Undo, standard.Redo, standard.SelectAll,
               standard.DeleteStartOfWord, standard.DeleteEndOfWord, standard.MoveToNextWord,
               standard.MoveToPreviousWord, standard.SelectNextWord, standard.SelectPreviousWord)  # fmt: skip
    taken = {sequence.toString() for key in editing for sequence in QKeySequence.keyBindings(key)}
    assert taken
    assert taken.isdisjoint(shortcut.sequence.toString() for shortcut in SHORTCUTS.values())


def test_tooltips_name_the_keys(qapp):
    assert tool_tip("New chat", "new_chat") == f"New chat ({QKeySequence('Ctrl+N').toString()})"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_sheet_shows_all_and_can_be_read(qtbot, qapp, theme):
    apply_theme(qapp, theme)
    sheet = ShortcutSheet()
    qtbot.addWidget(sheet)
    sheet.show()
    shown = {label.text() for label in sheet.findChildren(QLabel)}
    for shortcut in SHORTCUTS.values():
        assert {shortcut.shown_keys, shortcut.shown_what, shortcut.shown_group} <= shown
    check_names(sheet)
    check_tab_order(sheet)
    check_contrast(sheet)
    check_not_clipped(sheet)
