"""How messages look: colours, sizes and the fonts that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from PySide6.QtGui import QFont, QFontDatabase, QFontMetricsF

from pilotfish.desktop_app.themes import LIGHT, Colours

TEXT_SCALE = 1.1  # a text that is read is a little larger than what is around it
SMALL_SCALE = 0.9
MIN_POINTS = 10.0
LINE_HEIGHT = 135.0  # percent


@dataclass(frozen=True, slots=True)
class Look:
    """The colours, the zoom, which does not depend on the application's font, and whether tokens are tinted."""

    colours: Colours = LIGHT
    zoom: float = 1.0
    has_tints: bool = False

    @property
    def font(self) -> QFont:
        """The font of messages."""
        return _font(QFontDatabase.SystemFont.GeneralFont, self.zoom * TEXT_SCALE)

    @property
    def small_font(self) -> QFont:
        """The font of footers and buttons."""
        return _font(QFontDatabase.SystemFont.GeneralFont, self.zoom * SMALL_SCALE)

    @property
    def code_font(self) -> QFont:
        """The font of code, in which all characters are equally wide."""
        return _font(QFontDatabase.SystemFont.FixedFont, self.zoom)

    @property
    def em(self) -> float:
        """The height of the font of messages in pixels; distances are parts of it."""
        return _height(self.zoom * TEXT_SCALE)


@lru_cache(maxsize=32)
def _font(kind: QFontDatabase.SystemFont, scale: float) -> QFont:
    font = QFontDatabase.systemFont(kind)
    base = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont).pointSizeF()
    font.setPointSizeF(max(base, MIN_POINTS) * scale)
    if kind == QFontDatabase.SystemFont.FixedFont:
        font.setStyleHint(QFont.StyleHint.Monospace)
    return font


@lru_cache(maxsize=32)
def _height(scale: float) -> float:
    return QFontMetricsF(_font(QFontDatabase.SystemFont.GeneralFont, scale)).height()
