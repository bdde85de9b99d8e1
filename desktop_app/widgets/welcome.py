"""What is shown while there is no model yet: the default pair, what it takes, and one button that fetches it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget
from rich.filesize import decimal

from pilotfish.desktop_app.model_export import pair_order
from pilotfish.desktop_app.programs import pilotfish_command
from pilotfish.desktop_app.widgets.export_view import ExportView
from pilotfish.desktop_app.widgets.forms import SPACE, button, note
from pilotfish.desktop_app.widgets.shortcuts import tool_tip
from pilotfish.runtime.catalog import bundles_dir, load_catalog
from pilotfish.runtime.memory import free_memory

WIDTH = 68 * SPACE


class Welcome(QWidget):
    """`ready` gives the path of the bundle; `other_requested` that the user wants to choose another model."""

    ready = Signal(object)
    other_requested = Signal()

    def __init__(
        self, parent: QWidget | None = None, *, bundles: Path | None = None,
        command: Callable[[Sequence[str]], list[str]] = pilotfish_command,
    ) -> None:  # fmt: skip
        """The bundle goes into the folder `bundles`."""
        super().__init__(parent)
        self._catalog, self._bundles = load_catalog(), bundles or bundles_dir()
        self._pair = self._catalog.default_pair
        self.view = ExportView(command, "primary")
        self.view.added.connect(self.ready)
        self.view.running.connect(self._set_running)
        self.start_button = button(
            self.tr("Get this model"), self.tr("Fetch and convert the model, then chat"), self.start, "primary"
        )
        self.other_button = button(
            self.tr("Choose another model…"), tool_tip(self.tr("Open the models"), "models"), self.other_requested.emit,
            "quiet",
        )  # fmt: skip
        card = QFrame()
        card.setProperty("role", "card")
        card.setMinimumWidth(WIDTH)  # a larger text makes it wider
        self._fill(QVBoxLayout(card))
        layout = QVBoxLayout(self)
        layout.addStretch(1)
        middle = QHBoxLayout()  # not an alignment, for which Qt forgets that a text of this width needs more lines
        middle.addStretch(1)
        middle.addWidget(card)
        middle.addStretch(1)
        layout.addLayout(middle)
        layout.addStretch(2)

    def start(self) -> None:
        """Fetches the default pair; if its bundle is there already, it is ready at once."""
        order = pair_order(self._pair, self._bundles)
        if order.output.is_dir():
            self.ready.emit(order.output)
        elif not self.view.is_running:
            self.view.start(order)

    def _fill(self, column: QVBoxLayout) -> None:
        column.setContentsMargins(4 * SPACE, 4 * SPACE, 4 * SPACE, 4 * SPACE)
        column.setSpacing(2 * SPACE)
        title = QLabel(self.tr("Welcome to pilotfish"))
        title.setProperty("role", "title")
        column.addWidget(title)
        column.addWidget(
            note(self.tr("Chat with a language model on your own computer; nothing you write leaves it. "
                         "To begin, pilotfish fetches a small model:"))
        )  # fmt: skip
        column.addWidget(note(self._pair.description, "heading"))
        column.addLayout(self._figures())
        row = QHBoxLayout()
        row.setSpacing(SPACE)
        row.addWidget(self.start_button)
        row.addWidget(self.other_button)
        row.addStretch(1)
        column.addLayout(row)
        column.addWidget(self.view)

    def _figures(self) -> QGridLayout:
        """What it takes beside what is free; what is short stands out, in words too."""
        download = self._catalog.download_bytes(self._pair)
        existing = next(folder for folder in (self._bundles, *self._bundles.parents) if folder.is_dir())
        grid = QGridLayout()
        grid.setHorizontalSpacing(3 * SPACE)
        grid.setVerticalSpacing(SPACE)
        grid.setColumnStretch(2, 1)
        rows = (
            (self.tr("Download"), download, None),
            (self.tr("Disk"), download + self._pair.bundle_bytes, shutil.disk_usage(existing).free),
            (self.tr("Memory"), self._pair.memory_bytes, free_memory()),
        )
        for row, (what, needed, free) in enumerate(rows):
            is_short = free is not None and free < needed
            words = self.tr("only {} free: make room first") if is_short else self.tr("{} free")
            name, amount, rest = QLabel(what), QLabel(decimal(needed)), QLabel(words.format(decimal(free or 0)))
            name.setProperty("role", "muted")
            rest.setProperty("role", "error" if is_short else "muted")
            rest.setVisible(free is not None)
            for column, label in enumerate((name, amount, rest)):
                grid.addWidget(label, row, column)
        return grid

    def _set_running(self, is_running: bool) -> None:
        self.start_button.setEnabled(not is_running)
        self.start_button.setVisible(not self.view.again_button.isVisibleTo(self.view))
