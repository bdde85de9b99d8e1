"""One line that says whether speculation is on and what it brings; opened, it shows who drafts and how it goes."""

from __future__ import annotations

import time

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtWidgets import QCheckBox, QFrame, QGridLayout, QHBoxLayout, QLabel, QToolButton, QVBoxLayout, QWidget

from pilotfish.desktop_app.protocol import BundleFacts, Piece
from pilotfish.desktop_app.speculation_history import SpeculationHistory
from pilotfish.desktop_app.speculation_words import baseline_tokens_per_s, details, line, reason
from pilotfish.desktop_app.themes import LIGHT, Colours
from pilotfish.desktop_app.widgets.icons import icon
from pilotfish.desktop_app.widgets.shortcuts import tool_tip
from pilotfish.desktop_app.widgets.speculation_plot import SpeculationPlot
from pilotfish.desktop_app.widgets.switch import Switch
from pilotfish.desktop_app.widgets.theme import set_role

REFRESH_MS = 200  # a line that changes faster cannot be read


class SpeculationPanel(QFrame):
    """`switched` tells where the user put the switch."""

    switched = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("speculation")
        self._colours = LIGHT
        self._facts: BundleFacts | None = None
        self._history = SpeculationHistory()
        self._icon = QLabel(self)
        self._line = QLabel(self, textFormat=Qt.TextFormat.PlainText, wordWrap=True)
        self.switch = Switch(self)
        self.expand = QToolButton(self)
        self._details = QFrame(self)
        self._rows = QGridLayout()
        self._labels: list[tuple[QLabel, QLabel]] = []  # a name and a value in each row
        self._why = QLabel(self._details, textFormat=Qt.TextFormat.PlainText, wordWrap=True)
        self._plot = SpeculationPlot(self._details)
        self.tints = QCheckBox(self.tr("Tint the text by who wrote it"), self._details)
        self._pause = QTimer(self, singleShot=True, interval=REFRESH_MS)
        self._name_controls()
        self._lay_out()
        self.switch.setChecked(True)
        self.switch.toggled.connect(self._switch)
        self.expand.toggled.connect(self._open)
        self._pause.timeout.connect(self._refresh)
        self._refresh()

    @property
    def line(self) -> str:
        """What the line says."""
        return self._line.text()

    @property
    def is_wanted(self) -> bool:
        """Where the user put the switch."""
        return self.switch.isChecked()

    def set_wanted(self, is_wanted: bool) -> None:
        """Puts the switch where the settings say it is."""
        self.switch.setChecked(is_wanted)

    def set_facts(self, facts: BundleFacts | None) -> None:
        """Another bundle is loaded, or none."""
        self._facts, self._history = facts, SpeculationHistory()
        self._refresh()

    def set_colours(self, colours: Colours) -> None:
        """Another theme."""
        self._colours = colours
        self._plot.set_colours(colours)
        self.switch.set_colours(colours)
        self._refresh()

    def begin(self) -> None:
        """A reply begins; its figures take the place of those before."""
        self._history = SpeculationHistory()
        self._refresh()

    def add(self, piece: Piece) -> None:
        """A piece of the reply has come."""
        self._history.add(piece, time.monotonic())
        if not self._pause.isActive():
            self._pause.start()

    def _switch(self, is_wanted: bool) -> None:
        self._refresh()
        self.switched.emit(is_wanted)

    def _open(self, is_open: bool) -> None:
        self._details.setVisible(is_open)
        self._refresh()

    def _refresh(self) -> None:
        progress = self._history.progress
        words = line(progress, self._facts, self.is_wanted, self.tr)
        self._line.setText(self.tr("Speculation {state}").format(state=words))
        is_on = self.is_wanted and progress is not None and progress.speculation.startswith("on")
        self._icon.setPixmap(icon("speed", self._colours.good if is_on else self._colours.muted).pixmap(18, 18))
        arrow, name = ("up", self.tr("Hide details")) if self.expand.isChecked() else ("down", self.tr("Show details"))
        self.expand.setIcon(icon(arrow, self._colours.muted))
        self.expand.setToolTip(self.tr("{name} of speculation (Space)").format(name=name))
        self.expand.setAccessibleName(self.tr("{name} of speculation").format(name=name))
        if self.expand.isChecked():
            self._show_details()

    def _show_details(self) -> None:
        progress, points = self._history.progress, self._history.points
        rows = details(progress, self._facts, points[-1] if points else None, self.tr)
        while len(self._labels) < len(rows):
            name_label, value_label = (QLabel(self._details, textFormat=Qt.TextFormat.PlainText) for _ in range(2))
            set_role(name_label, "muted")
            self._rows.addWidget(name_label, len(self._labels), 0)
            self._rows.addWidget(value_label, len(self._labels), 1)
            self._labels.append((name_label, value_label))
        for number, labels in enumerate(self._labels):
            for label, text in zip(labels, rows[number] if number < len(rows) else ("", ""), strict=True):
                label.setText(text)
                label.setVisible(bool(text))
        self._why.setText(reason(progress))
        self._why.setVisible(bool(self._why.text()))
        self._plot.show_points(points, baseline_tokens_per_s(progress) if progress else None)

    def _name_controls(self) -> None:
        self.switch.setAccessibleName(self.tr("Speculation"))
        self.switch.setAccessibleDescription(self.tr("On, the measured speed decides when to draft; off, never"))
        self.switch.setToolTip(tool_tip(self.tr("Speculation on (drafts when it pays) or off"), "speculation"))
        self.tints.setAccessibleName(self.tints.text())
        self.tints.setToolTip(tool_tip(self.tr("Show who wrote which token"), "toggle_tints"))
        self.expand.setCheckable(True)
        self._details.hide()
        self.expand.setIconSize(QSize(16, 16))

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.addWidget(self._icon)
        head.addWidget(self._line, 1)
        head.addWidget(self.switch)
        head.addWidget(self.expand)
        self._rows.setHorizontalSpacing(16)
        self._rows.setColumnStretch(1, 1)
        self._rows.setVerticalSpacing(4)
        self._why.setProperty("role", "muted")
        left = QVBoxLayout()
        left.addLayout(self._rows)
        left.addStretch(1)
        upper = QHBoxLayout()
        upper.setSpacing(24)
        upper.addLayout(left, 1)
        upper.addWidget(self._plot, 1, Qt.AlignmentFlag.AlignTop)
        body = QVBoxLayout(self._details)
        body.setContentsMargins(0, 4, 0, 4)
        body.addLayout(upper)
        body.addWidget(self._why)
        body.addWidget(self.tints)
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 4, 8, 4)
        column.setSpacing(4)
        column.addLayout(head)
        column.addWidget(self._details)
