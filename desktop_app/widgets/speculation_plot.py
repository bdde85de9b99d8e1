"""The live plot of the speculation panel: tokens per second above, accepted tokens per round below."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from pilotfish.desktop_app.speculation_history import MAX_POINTS, Point
from pilotfish.desktop_app.themes import LIGHT, Colours

MIN_POINTS_SHOWN = 40
GAP = 10


class SpeculationPlot(QWidget):
    """Two curves over the same time; a dashed line is what the target alone reaches."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._colours = LIGHT
        self._points: Sequence[Point] = ()
        self._baseline: float | None = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_colours(self, colours: Colours) -> None:
        """Another theme."""
        self._colours = colours
        self.update()

    def show_points(self, points: Sequence[Point], baseline: float | None) -> None:
        """Draws these; `baseline` in tokens per second."""
        self._points, self._baseline = points, baseline
        self.setAccessibleName(self._in_words())
        if self.isVisible():
            self.update()

    def sizeHint(self) -> QSize:
        """Room for both curves and their words."""
        return QSize(320, 9 * self.fontMetrics().height())

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: ARG002 - the whole plot is drawn
        """Draws both."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        font = QFont(self.font())
        font.setPointSizeF(font.pointSizeF() * 0.85)
        painter.setFont(font)
        height = (self.height() - GAP) / 2
        upper = QRectF(0, 0, self.width(), height)
        lower = QRectF(0, height + GAP, self.width(), height)
        speeds = [point.tokens_per_s for point in self._points]
        accepted = [point.accepted_per_round for point in self._points]
        self._draw(painter, upper, self.tr("tokens/s"), speeds, self._colours.accent, self._baseline)
        self._draw(painter, lower, self.tr("accepted per round"), accepted, self._colours.good, None)
        painter.end()

    def _draw(
        self, painter: QPainter, area: QRectF, name: str, values: list[float], ink: str, baseline: float | None
    ) -> None:
        text_height = painter.fontMetrics().height()
        ground = area.adjusted(0, text_height + 2, 0, 0)
        top = 1.15 * max([*values, baseline or 0.0, 1e-9])
        painter.setPen(QColor(self._colours.muted))
        painter.drawText(area, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft, name)
        painter.setPen(QPen(QColor(self._colours.border), 1))
        painter.drawLine(ground.bottomLeft(), ground.bottomRight())
        if values:
            painter.setPen(QColor(self._colours.text))
            latest = f"{values[-1]:.1f}"
            painter.drawText(area, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignRight, latest)
            self._draw_curve(painter, ground, values, top, ink)
        if baseline:
            self._draw_baseline(painter, ground, ground.bottom() - baseline / top * ground.height())

    def _draw_curve(self, painter: QPainter, ground: QRectF, values: list[float], top: float, ink: str) -> None:
        step = ground.width() / (min(max(len(values), MIN_POINTS_SHOWN), MAX_POINTS) - 1)
        curve = [
            QPointF(ground.left() + number * step, ground.bottom() - value / top * ground.height())
            for number, value in enumerate(values)
        ]
        fill = QColor(ink)
        fill.setAlphaF(0.16)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(fill)
        ends = [QPointF(curve[-1].x(), ground.bottom()), QPointF(curve[0].x(), ground.bottom())]
        painter.drawPolygon(QPolygonF([*curve, *ends]))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(QColor(ink), 1.8))
        painter.drawPolyline(QPolygonF(curve))

    def _draw_baseline(self, painter: QPainter, ground: QRectF, y: float) -> None:
        painter.setPen(QPen(QColor(self._colours.muted), 1.2, Qt.PenStyle.DashLine))
        painter.drawLine(QPointF(ground.left(), y), QPointF(ground.right(), y))
        words = self.tr("target alone")
        width = painter.fontMetrics().horizontalAdvance(words)
        height = painter.fontMetrics().height()
        # Below the line, since above it run the values of a speculation that pays; unless there is no room.
        top = y + 1 if y + height < ground.bottom() else y - height
        box = QRectF(ground.right() - width - 4, top, width + 4, height)
        painter.drawText(box, Qt.AlignmentFlag.AlignRight, words)

    def _in_words(self) -> str:
        if not self._points:
            return self.tr("Plot of the speed; no reply yet")
        last = self._points[-1]
        return self.tr(
            "Plot of the speed: now {speed:.1f} tokens per second, {accepted:.1f} accepted per round"
        ).format(speed=last.tokens_per_s, accepted=last.accepted_per_round)
