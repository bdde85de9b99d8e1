"""Applies a theme to the whole application: Fusion, a palette, one style sheet and the size of the font.

Widgets take part by the property `role`. A QPushButton may be `primary` (the one thing to do), `danger` or `quiet`;
a QLabel `title`, `heading`, `muted`, `keys`, `error`, `warning` or `good`; a QFrame `card`. `set_role` changes it
later.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QFontDatabase, QPalette
from PySide6.QtWidgets import QApplication, QWidget

from pilotfish.desktop_app.errors import DesktopError
from pilotfish.desktop_app.settings import MAX_ZOOM, MIN_ZOOM, THEMES
from pilotfish.desktop_app.themes import DARK, LIGHT, Colours
from pilotfish.desktop_app.widgets.style_sheet import style_sheet

_SCHEMES = {
    "system": Qt.ColorScheme.Unknown,
    "light": Qt.ColorScheme.Light,
    "dark": Qt.ColorScheme.Dark,
}
_ROLES = {
    QPalette.ColorRole.Window: "window",
    QPalette.ColorRole.WindowText: "text",
    QPalette.ColorRole.Base: "surface",
    QPalette.ColorRole.AlternateBase: "window",
    QPalette.ColorRole.Text: "text",
    QPalette.ColorRole.PlaceholderText: "muted",
    QPalette.ColorRole.Button: "raised",
    QPalette.ColorRole.ButtonText: "text",
    QPalette.ColorRole.BrightText: "error",
    QPalette.ColorRole.ToolTipBase: "raised",
    QPalette.ColorRole.ToolTipText: "text",
    QPalette.ColorRole.Highlight: "selection",
    QPalette.ColorRole.HighlightedText: "text",
    QPalette.ColorRole.Accent: "accent",
    QPalette.ColorRole.Link: "accent",
    QPalette.ColorRole.LinkVisited: "accent",
    QPalette.ColorRole.Light: "surface",
    QPalette.ColorRole.Midlight: "raised",
    QPalette.ColorRole.Mid: "border",
    QPalette.ColorRole.Dark: "border",
    QPalette.ColorRole.Shadow: "border",
}
_DISABLED = (QPalette.ColorRole.WindowText, QPalette.ColorRole.Text, QPalette.ColorRole.ButtonText)


def apply_theme(app: QApplication, choice: str, zoom: float = 1.0) -> Colours:
    """Dresses `app` and returns the colours in use. `DesktopError` for a choice that is none of `THEMES`.

    `system` follows the desktop; call again when `app.styleHints().colorSchemeChanged` fires. `zoom` is held
    between `MIN_ZOOM` and `MAX_ZOOM`.
    """
    if choice not in _SCHEMES:
        raise DesktopError(f"the theme is {choice!r}; choose one of {', '.join(THEMES)}")
    app.styleHints().setColorScheme(_SCHEMES[choice])
    is_dark = choice == "dark" or (choice == "system" and app.styleHints().colorScheme() == Qt.ColorScheme.Dark)
    colours = DARK if is_dark else LIGHT
    zoom = min(max(zoom, MIN_ZOOM), MAX_ZOOM)
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    font.setPointSizeF(max(font.pointSizeF(), 10.0) * zoom)
    app.setStyle("Fusion")
    app.setPalette(palette_of(colours))
    app.setFont(font)
    app.setStyleSheet(style_sheet(colours, zoom, _icon_dir(app)))
    return colours


def palette_of(colours: Colours) -> QPalette:
    """The palette for what the style sheet does not reach: check boxes, text documents, native parts."""
    palette = QPalette()
    for role, name in _ROLES.items():
        palette.setColor(role, QColor(getattr(colours, name)))
    for role in _DISABLED:
        palette.setColor(QPalette.ColorGroup.Disabled, role, QColor(colours.muted))
    return palette


def set_role(widget: QWidget, role: str) -> None:
    """Gives `widget` a role of the style sheet; it may already be shown."""
    widget.setProperty("role", role)
    widget.style().unpolish(widget)
    widget.style().polish(widget)


def _icon_dir(app: QApplication) -> Path:
    """A folder for the arrows, since a style sheet takes pictures only from files."""
    known = app.property("pilotfish_icon_dir")
    if not known:
        known = tempfile.mkdtemp(prefix="pilotfish-icons-")
        atexit.register(shutil.rmtree, known, ignore_errors=True)
        app.setProperty("pilotfish_icon_dir", known)
    return Path(known)
