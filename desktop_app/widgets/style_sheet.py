"""The one style sheet: soft borders, rounded corners, distances in steps of eight pixels, a ring on what has focus."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from string import Template

from pilotfish.desktop_app.themes import Colours

_ARROWS = {
    "down": "M3 5 L7 9 L11 5",
    "up": "M3 9 L7 5 L11 9",
    "right": "M5 3 L9 7 L5 11",
    "tick": "M3 7.5 L6 10.5 L11 4",
}
_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 14 14" width="14" height="14"><path d="{path}" fill="none"'
    ' stroke="{colour}" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round"/></svg>'
)

# A ring of two pixels takes the place of a border of one: the padding gives way, so that nothing moves.
_SHEET = Template("""
QWidget { color: $text; }
QDialog, QMainWindow, QMessageBox { background: $window; }
QToolTip { background: $raised; color: $text; border: 1px solid $border; padding: ${p4}px ${p8}px; }

QLabel { background: transparent; }
QLabel[role="title"] { font-size: ${title}pt; font-weight: 600; }
QLabel[role="heading"] { font-weight: 600; }
QLabel[role="muted"] { color: $muted; }
QLabel[role="error"] { color: $error; }
QLabel[role="warning"] { color: $warning; }
QLabel[role="good"] { color: $good; }
QLabel[role="keys"] {
    background: $raised; border: 1px solid $border; border-radius: ${p4}px; padding: ${p2}px ${p6}px;
}
QFrame[role="card"] { background: $surface; border: 1px solid $border; border-radius: ${p8}px; }

QPushButton, QToolButton {
    background: $raised; color: $text; border: 1px solid $border; border-radius: ${p6}px;
    padding: ${p6}px ${p16}px; min-height: ${p20}px;
}
QToolButton { padding: ${p4}px ${p8}px; }
QPushButton:hover, QToolButton:hover { background: $selection; }
QPushButton:pressed, QToolButton:pressed, QPushButton:checked, QToolButton:checked {
    background: $selection; border-color: $accent;
}
QPushButton:focus { border: 2px solid $accent; padding: ${p6_ring}px ${p16_ring}px; }
QToolButton:focus { border: 2px solid $accent; padding: ${p4_ring}px ${p8_ring}px; }
QPushButton:disabled, QToolButton:disabled { background: $window; color: $muted; border-style: dashed; }
QPushButton[role="primary"] { background: $accent; color: $on_accent; border-color: $accent; font-weight: 600; }
QPushButton[role="primary"]:hover, QPushButton[role="primary"]:pressed { border-color: $text; }
QPushButton[role="primary"]:focus { border: 2px solid $text; }
QPushButton[role="primary"]:disabled { background: $window; color: $muted; border-color: $border; }
QPushButton[role="danger"] { color: $error; }
QPushButton[role="danger"]:disabled { color: $muted; }
QPushButton[role="quiet"], QToolButton { background: transparent; border-color: transparent; }
QPushButton[role="quiet"]:hover, QToolButton:hover { background: $raised; }
QPushButton[role="quiet"]:focus, QToolButton:focus { border-color: $accent; }
QToolButton::menu-indicator { image: none; }

QLineEdit, QPlainTextEdit, QTextEdit, QTextBrowser, QComboBox, QSpinBox, QDoubleSpinBox {
    background: $surface; color: $text; border: 1px solid $border; border-radius: ${p6}px;
    padding: ${p4}px ${p8}px; selection-background-color: $selection; selection-color: $text;
}
QLineEdit, QPlainTextEdit, QTextEdit { placeholder-text-color: $muted; }
QLineEdit, QComboBox, QSpinBox, QDoubleSpinBox { min-height: ${p24}px; }
QLineEdit:focus, QPlainTextEdit:focus, QTextEdit:focus, QTextBrowser:focus, QComboBox:focus, QSpinBox:focus,
QDoubleSpinBox:focus { border: 2px solid $accent; padding: ${p4_ring}px ${p8_ring}px; }
QLineEdit[fault="true"], QPlainTextEdit[fault="true"], QComboBox[fault="true"] { border-color: $error; }
QLineEdit:disabled, QPlainTextEdit:disabled, QComboBox:disabled, QSpinBox:disabled, QDoubleSpinBox:disabled {
    background: $window; color: $muted; border-style: dashed;
}
QComboBox::drop-down { border: none; width: ${p24}px; }
QComboBox::down-arrow { image: url("$down"); width: ${p14}px; height: ${p14}px; }
QComboBox QAbstractItemView {
    background: $surface; color: $text; border: 1px solid $border; padding: ${p4}px; outline: none;
    selection-background-color: $selection; selection-color: $text;
}
QSpinBox::up-button, QDoubleSpinBox::up-button, QSpinBox::down-button, QDoubleSpinBox::down-button {
    border: none; background: transparent; width: ${p24}px;
}
QSpinBox::up-arrow, QDoubleSpinBox::up-arrow { image: url("$up"); width: ${p12}px; height: ${p12}px; }
QSpinBox::down-arrow, QDoubleSpinBox::down-arrow { image: url("$down"); width: ${p12}px; height: ${p12}px; }

QCheckBox, QRadioButton { spacing: ${p8}px; padding: ${p4}px; border: 2px solid transparent; border-radius: ${p6}px; }
QCheckBox:focus, QRadioButton:focus { border-color: $accent; }
QCheckBox::indicator { width: ${p16}px; height: ${p16}px; border: 1px solid $muted; border-radius: ${p4}px; }
QCheckBox::indicator { background: $surface; }
QCheckBox::indicator:checked { background: $accent; border-color: $accent; image: url("$tick"); }

QListView, QTreeView, QTableView, QListWidget {
    background: $surface; color: $text; border: 1px solid $border; border-radius: ${p8}px; padding: ${p4}px;
    outline: none; alternate-background-color: $window; gridline-color: $border;
}
QListView:focus, QTreeView:focus, QTableView:focus { border: 2px solid $accent; padding: ${p4_ring}px; }
QListView::item, QTreeView::item { padding: ${p6}px ${p8}px; border-radius: ${p6}px; }
QTableView::item { padding: ${p4}px ${p8}px; }
QListView::item:hover, QTreeView::item:hover { background: $raised; }
QListView::item:selected, QTreeView::item:selected, QTableView::item:selected { background: $selection; color: $text; }
QHeaderView::section {
    background: $surface; color: $muted; border: none; border-bottom: 1px solid $border; padding: ${p6}px ${p8}px;
}

QScrollArea { background: transparent; border: 2px solid transparent; border-radius: ${p8}px; }
QScrollArea:focus { border-color: $accent; }
QAbstractScrollArea::corner { background: transparent; border: none; }
QScrollBar:vertical { background: transparent; width: ${p12}px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: ${p12}px; margin: 0; }
QScrollBar::handle { background: $border; border-radius: ${p4}px; margin: ${p2}px; }
QScrollBar::handle:vertical { min-height: ${p32}px; }
QScrollBar::handle:horizontal { min-width: ${p32}px; }
QScrollBar::handle:hover { background: $muted; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QMenuBar { background: $window; }
QMenuBar::item { background: transparent; padding: ${p4}px ${p8}px; border-radius: ${p4}px; }
QMenuBar::item:selected { background: $selection; }
QMenu { background: $surface; border: 1px solid $border; padding: ${p4}px; }
QMenu::item { padding: ${p6}px ${p24}px; border-radius: ${p4}px; }
QMenu::item:selected { background: $selection; }
QMenu::item:disabled { color: $muted; }
QMenu::separator { height: 1px; background: $border; margin: ${p4}px ${p8}px; }

QTabWidget::pane { border: none; border-top: 1px solid $border; }
QTabBar { background: transparent; }
QTabBar::tab {
    background: transparent; color: $muted; padding: ${p8}px ${p16}px; border: 2px solid transparent;
    border-top-left-radius: ${p6}px; border-top-right-radius: ${p6}px;
}
QTabBar::tab:hover { color: $text; background: $raised; }
QTabBar::tab:selected { color: $text; border-bottom-color: $accent; }
QTabBar:focus::tab:selected, QTabBar::tab:selected:focus { border-color: $accent; }

QProgressBar { background: $raised; border: none; border-radius: ${p4}px; height: ${p8}px; text-align: center; }
QProgressBar { min-height: ${p8}px; max-height: ${p8}px; }
QProgressBar::chunk { background: $accent; border-radius: ${p4}px; }
QGroupBox {
    background: transparent; border: 1px solid $border; border-radius: ${p8}px;
    margin-top: ${p12}px; padding: ${p16}px ${p12}px ${p12}px ${p12}px;
}
QGroupBox::title { subcontrol-origin: margin; left: ${p12}px; padding: 0 ${p4}px; color: $muted; }
QSplitter::handle { background: $border; }
QSplitter::handle:horizontal { width: 1px; }
QSplitter::handle:vertical { height: 1px; }
QStatusBar { background: $window; color: $muted; }
""")


def style_sheet(colours: Colours, zoom: float, icon_dir: Path) -> str:
    """The sheet in these colours; its pictures are written into `icon_dir`."""
    sizes = {f"p{step}": round(step * zoom) for step in (2, 4, 6, 8, 12, 14, 16, 20, 24, 32)}
    rings = {f"p{step}_ring": sizes[f"p{step}"] - 1 for step in (4, 6, 8, 16)}
    names = {name: value for name, value in asdict(colours).items() if name != "is_dark"}
    icons = {
        name: _icon(icon_dir, name, colours.on_accent if name == "tick" else colours.muted)
        for name in _ARROWS
    }  # fmt: skip
    return _SHEET.substitute(names, **sizes, **rings, **icons, title=f"{15 * zoom:.1f}")


def _icon(folder: Path, name: str, colour: str) -> str:
    """The path of an arrow in `colour`; its name carries the colour, since Qt keeps pictures by path."""
    path = folder / f"{name}-{colour[1:]}.svg"
    path.write_text(_SVG.format(path=_ARROWS[name], colour=colour), encoding="utf-8")
    return path.as_posix()
