"""A walk over all widgets of a window: names, the order of Tab, and whether its text can be read in a theme."""

from __future__ import annotations

from collections import Counter

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QComboBox, QLabel, QLineEdit, QWidget

from pilotfish.desktop_app.themes import READABLE, VISIBLE, contrast


def focusable(window: QWidget) -> list[QWidget]:
    """What a user reaches by Tab now."""
    return [
        each
        for each in window.findChildren(QWidget)
        if each.focusPolicy() & Qt.FocusPolicy.TabFocus and each.isVisibleTo(window) and each.isEnabled()
        and each.focusProxy() is None and not _is_part(each)
    ]  # fmt: skip


def check_names(window: QWidget, *texts: type[QWidget]) -> None:
    """Each control has an accessible name, and a tooltip but for `texts`: those are read."""
    controls = focusable(window)
    assert controls
    for name in ("accessibleName", "toolTip"):
        wanted = [each for each in controls if name == "accessibleName" or not isinstance(each, texts)]
        without = [describe(each) for each in wanted if not getattr(each, name)()]
        assert not without, f"no {name}: {without}"


def check_tab_order(window: QWidget) -> None:
    """Tab goes round and comes to each control."""
    window.show()
    window.activateWindow()
    assert QTest.qWaitForWindowActive(window)
    wanted = focusable(window)
    wanted[0].setFocus(Qt.FocusReason.TabFocusReason)
    reached = {QApplication.focusWidget()}
    for _ in range(3 * len(wanted) + 10):
        QTest.keyClick(QApplication.focusWidget() or window, Qt.Key.Key_Tab)
        reached.add(QApplication.focusWidget())
    missed = [describe(each) for each in wanted if each not in reached]
    assert not missed, f"out of reach: {missed}"


def check_contrast(window: QWidget) -> None:
    """The text of each control that is in sight can be read, by the pixels that are painted."""
    QApplication.processEvents()
    image = window.grab().toImage()
    for each in window.findChildren(QWidget):
        if isinstance(each, (QLabel, QAbstractButton, QLineEdit, QComboBox)) and _shown_text(each).strip():
            region = each.visibleRegion().boundingRect().intersected(each.rect().adjusted(3, 3, -3, -3))
            if region.width() > 8 and region.height() > 8 and not _is_part(each):
                region.moveTopLeft(each.mapTo(window, region.topLeft()))
                ratio = _painted_contrast(image, region)
                is_text = any(character.isalnum() for character in _shown_text(each))
                assert ratio >= (READABLE if is_text else VISIBLE), f"{describe(each)}: {ratio:.2f}"


def check_not_clipped(window: QWidget) -> None:
    """Labels and buttons have the room that their text needs."""
    QApplication.processEvents()
    for each in window.findChildren(QWidget):
        if isinstance(each, (QLabel, QAbstractButton)) and each.isVisibleTo(window) and _shown_text(each):
            needed = each.sizeHint()
            if isinstance(each, QLabel) and each.wordWrap():
                needed.setWidth(each.minimumSizeHint().width())
                needed.setHeight(each.heightForWidth(each.width()))
            given = each.size()
            assert given.width() >= needed.width(), f"{describe(each)}: {given.width()} wide, not {needed.width()}"
            assert given.height() >= needed.height(), f"{describe(each)}: {given.height()} high, not {needed.height()}"


def describe(widget: QWidget) -> str:
    text = getattr(widget, "text", lambda: "")()
    return f"{type(widget).__name__} {widget.objectName()} {text!r} {widget.accessibleName()!r}"


def _shown_text(widget: QWidget) -> str:
    if isinstance(widget, QComboBox):
        return widget.currentText()
    return widget.text() or (widget.placeholderText() if isinstance(widget, QLineEdit) else "")


def _painted_contrast(image: QImage, region: QRect) -> float:
    """Of the commonest colour, the ground, with that which stands out most, the middle of a stroke."""
    pixels = Counter(
        image.pixelColor(x, y).name()
        for x in range(region.left(), region.right() + 1)
        for y in range(region.top(), region.bottom() + 1)
    )
    ground = pixels.most_common(1)[0][0]
    return max(contrast(ground, colour) for colour in pixels)


def _is_part(widget: QWidget) -> bool:
    """Whether it belongs to another control, such as the field of a spin box."""
    return widget.objectName().startswith("qt_")
