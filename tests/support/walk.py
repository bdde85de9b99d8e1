"""A walk over all widgets of a window: names, the order of Tab, and whether its text can be read in a theme."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QPalette
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QApplication, QComboBox, QGroupBox, QLabel, QWidget

from pilotfish.desktop_app.themes import READABLE, contrast


def focusable(window: QWidget) -> list[QWidget]:
    """What a user reaches by Tab now."""
    return [
        each
        for each in window.findChildren(QWidget)
        if each.focusPolicy() & Qt.FocusPolicy.TabFocus and each.isVisibleTo(window) and each.isEnabled()
        and each.focusProxy() is None and not _is_part(each)
    ]  # fmt: skip


def check_names(window: QWidget) -> None:
    """Each control has an accessible name and a tooltip."""
    controls = focusable(window)
    assert controls
    assert [describe(each) for each in controls if not each.accessibleName()] == []
    assert [describe(each) for each in controls if not each.toolTip()] == []


def check_tab_order(window: QWidget) -> None:
    """Tab goes round and comes to each control."""
    window.show()
    window.activateWindow()
    assert QTest.qWaitForWindowActive(window)
    wanted = focusable(window)
    wanted[0].setFocus(Qt.FocusReason.TabFocusReason)
    reached = {QApplication.focusWidget()}
    for _ in range(3 * len(wanted) + 10):
        at = QApplication.focusWidget()
        # A field that takes Tab as a character, or a list, is left by Ctrl+Tab.
        QTest.keyClick(at or window, Qt.Key.Key_Tab)
        reached.add(QApplication.focusWidget())
    assert [describe(each) for each in wanted if each not in reached] == []


def check_contrast(window: QWidget) -> None:
    """Labels and buttons can be read on what lies behind them, as the style sheet paints them."""
    for each in window.findChildren(QWidget):
        if isinstance(each, (QLabel, QAbstractButton, QComboBox, QAbstractItemView)) and each.isVisibleTo(window):
            ink = each.palette().color(each.foregroundRole()).name()
            ground = _ground(each)
            assert contrast(ink, ground) >= READABLE, f"{describe(each)}: {ink} on {ground}"


def describe(widget: QWidget) -> str:
    text = getattr(widget, "text", lambda: "")()
    return f"{type(widget).__name__} {widget.objectName()} {text!r}"


def _ground(widget: QWidget) -> str:
    at: QWidget | None = widget
    while at is not None:
        colour = at.palette().color(at.backgroundRole())
        is_painted = at.testAttribute(Qt.WidgetAttribute.WA_StyledBackground) or at.isWindow() or at is widget
        if is_painted and colour.alpha() == 255 and not isinstance(at, (QGroupBox,)):
            return colour.name()
        at = at.parentWidget()
    return QApplication.palette().color(QPalette.ColorRole.Window).name()


def _is_part(widget: QWidget) -> bool:
    """Whether it belongs to another control, such as the field of a spin box."""
    return widget.objectName().startswith("qt_")
