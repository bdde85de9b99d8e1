from __future__ import annotations

import pytest
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QLabel, QPushButton

from pilotfish.desktop_app.errors import DesktopError
from pilotfish.desktop_app.settings import MAX_ZOOM, THEMES
from pilotfish.desktop_app.themes import DARK, LIGHT, READABLE, contrast
from pilotfish.desktop_app.widgets.theme import apply_theme, palette_of, set_role


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
