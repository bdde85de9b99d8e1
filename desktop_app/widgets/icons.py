"""The icons of the window: line drawings in the colour of the text beside them, sharp at any scale."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

SIZES = (16, 20, 24, 32, 48)

# Paths of a 24 × 24 drawing, stroked.
_DRAWINGS: Mapping[str, str] = MappingProxyType(
    {
        "attach": "M20 11.5 12 19.5a5 5 0 0 1-7-7l8.5-8.5a3.4 3.4 0 0 1 4.8 4.8L9.8 17.3a1.7 1.7 0 0 1-2.4-2.4l7.6-7.6",
        "send": "M12 19.5V5M5.5 11.5 12 5l6.5 6.5",
        "close": "M6 6l12 12M18 6 6 18",
        "new": "M12 20H5a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1h14a1 1 0 0 1 1 1v6M18 15v6M15 18h6",
        "hidden": "M12 20H5a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1h14a1 1 0 0 1 1 1v6M15 18h6",
        "search": "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM16 16l4.5 4.5",
        "sidebar": "M5 4h14a1 1 0 0 1 1 1v14a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1ZM9.5 4v16",
        "more": "M5.5 12h.01M12 12h.01M18.5 12h.01",
        "down": "M6 9.5l6 6 6-6",
        "up": "M6 14.5l6-6 6 6",
        "settings": "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5",
        "speed": "M4 17a8.5 8.5 0 1 1 16 0M12 14.5l4-5",
    }
)
_STOP = '<rect x="6" y="6" width="12" height="12" rx="2.5" fill="{colour}" stroke="none"/>'
_FRAME = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="{colour}" stroke-width="1.8" '
    'stroke-linecap="round" stroke-linejoin="round">{body}</svg>'
)


def icon(name: str, colour: str) -> QIcon:
    """The icon of that name in a colour such as "#1b2330"; KeyError for an unknown name."""
    body = _STOP.format(colour=colour) if name == "stop" else f'<path d="{_DRAWINGS[name]}"/>'
    return _rendered(_FRAME.format(colour=colour, body=body).encode())


def app_icon() -> QIcon:
    """The pilot fish."""
    return _rendered((resources.files("pilotfish.desktop_app") / "pilotfish.svg").read_bytes(), (*SIZES, 64, 128, 256))


def _rendered(svg: bytes, sizes: tuple[int, ...] = SIZES) -> QIcon:
    renderer = QSvgRenderer(QByteArray(svg))
    drawn = QIcon()
    for size in sizes:
        for ratio in (1, 2):
            pixmap = QPixmap(QSize(size, size) * ratio)
            pixmap.fill(Qt.GlobalColor.transparent)
            painter = QPainter(pixmap)
            renderer.render(painter, QRectF(0, 0, size * ratio, size * ratio))
            painter.end()
            pixmap.setDevicePixelRatio(ratio)
            drawn.addPixmap(pixmap)
    return drawn
