from __future__ import annotations

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from pilotfish.desktop_app.errors import DesktopError
from pilotfish.desktop_app.settings import MAX_ZOOM, THEMES
from pilotfish.desktop_app.themes import DARK, LIGHT, READABLE, contrast
from pilotfish.desktop_app.widgets.theme import apply_theme, palette_of, set_role
from support.walk import check_contrast, check_names, check_tab_order


@pytest.mark.parametrize(("choice", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_the_theme_reaches_widgets_and_grows_with_the_zoom(qtbot, qapp, choice, colours):
    assert apply_theme(qapp, choice) == colours
    button = QPushButton("Send")
    qtbot.addWidget(button)
    button.show()
    small = button.sizeHint()
    assert button.palette().color(QPalette.ColorRole.ButtonText).name() == colours.text
    assert apply_theme(qapp, choice, 1.5) == colours
    assert button.sizeHint().height() > small.height()
    apply_theme(qapp, choice, 1.0)
    assert button.sizeHint() == small


def test_zoom_is_held_within_its_range_and_an_unknown_choice_refused(qapp):
    apply_theme(qapp, "light", 50.0)
    size = qapp.font().pointSizeF()
    apply_theme(qapp, "light", MAX_ZOOM)
    assert qapp.font().pointSizeF() == size
    with pytest.raises(DesktopError, match="'sepia'; choose one of system, light, dark"):
        apply_theme(qapp, "sepia")
    assert apply_theme(qapp, "system") in (LIGHT, DARK)
    assert THEMES[0] == "system"


def test_a_role_can_change_while_shown(qtbot, qapp):
    apply_theme(qapp, "dark")
    label = QLabel("x")
    qtbot.addWidget(label)
    label.show()
    for role in ("error", "good", "muted"):
        set_role(label, role)
        assert label.palette().color(QPalette.ColorRole.WindowText).name() == getattr(DARK, role)


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_the_palette_can_be_read_in_each_state(colours):
    palette = palette_of(colours)
    role = QPalette.ColorRole
    pairs = [(role.WindowText, role.Window), (role.Text, role.Base), (role.PlaceholderText, role.Base),
             (role.ButtonText, role.Button), (role.ToolTipText, role.ToolTipBase),
             (role.HighlightedText, role.Highlight), (role.Link, role.Base)]  # fmt: skip
    for group in (QPalette.ColorGroup.Active, QPalette.ColorGroup.Inactive, QPalette.ColorGroup.Disabled):
        for ink, ground in pairs:
            assert contrast(palette.color(group, ink).name(), palette.color(group, ground).name()) >= READABLE


def test_the_walk_finds_what_is_faint_nameless_or_out_of_reach(qtbot, qapp):
    apply_theme(qapp, "light")
    window = QWidget()
    qtbot.addWidget(window)
    layout = QVBoxLayout(window)
    label, field, trap, button = QLabel("Faint but there"), QLineEdit(), _Trap(), QPushButton("Press")
    trap.setEnabled(False)
    for each in (label, field, trap, button):
        layout.addWidget(each)
    window.show()
    check_contrast(window)
    label.setStyleSheet("color: #b8bcc4")
    with pytest.raises(AssertionError, match="Faint but there"):
        check_contrast(window)
    with pytest.raises(AssertionError, match="QLineEdit"):
        check_names(window)
    check_tab_order(window)
    trap.setEnabled(True)
    with pytest.raises(AssertionError, match="Press"):
        check_tab_order(window)


class _Trap(QLineEdit):
    """Keeps the focus."""

    def event(self, event: QEvent) -> bool:
        return event.type() == QEvent.Type.KeyPress or super().event(event)
