"""The models: those on this computer, and adding others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QHBoxLayout, QTabWidget, QVBoxLayout, QWidget

from pilotfish.desktop_app.programs import pilotfish_command
from pilotfish.desktop_app.widgets.add_model import AddModelPage
from pilotfish.desktop_app.widgets.forms import SPACE, button, resize_for_text
from pilotfish.desktop_app.widgets.model_list import ModelList
from pilotfish.runtime.catalog import bundles_dir, load_catalog
from pilotfish.runtime.engine import DEFAULT_CONTEXT_LENGTH


class ModelsDialog(QDialog):
    """`load_requested` gives the path of a bundle. Hiding it lets what is being added go on; keep it alive for that."""

    load_requested = Signal(object)
    unload_requested = Signal()

    def __init__(
        self, loaded: Path | None, parent: QWidget | None = None, *, context_length: int | None = None,
        bundles: Path | None = None, command: Callable[[Sequence[str]], list[str]] = pilotfish_command,
    ) -> None:  # fmt: skip
        """`loaded` is the bundle that is loaded now, `context_length` what the settings ask for."""
        super().__init__(parent)
        self.setWindowTitle(self.tr("Models"))
        folder = bundles or bundles_dir()
        self.list = ModelList(folder, loaded, context_length or DEFAULT_CONTEXT_LENGTH)
        self.list.load_requested.connect(self.load_requested)
        self.list.unload_requested.connect(self.unload_requested)
        self.add = AddModelPage(load_catalog(), folder, command)
        self.add.added.connect(self._show_added)
        self.tabs = QTabWidget()
        self.tabs.setDocumentMode(True)
        self.tabs.tabBar().setDrawBase(False)
        self.tabs.addTab(self.list, self.tr("On this computer"))
        self.tabs.addTab(self.add, self.tr("Add a model"))
        self.tabs.tabBar().setAccessibleName(self.tr("Pages of the models"))
        self.tabs.tabBar().setToolTip(self.tr("Pages of the models (arrow keys)"))
        self.close_button = button(self.tr("Close"), self.tr("Close this window (Esc)"), self.reject)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self.close_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * SPACE, SPACE, 2 * SPACE, 2 * SPACE)
        layout.setSpacing(SPACE)
        layout.addWidget(self.tabs, 1)
        layout.addLayout(row)
        resize_for_text(self, 820, 600)

    def set_loaded(self, loaded: Path | None, context_length: int | None = None) -> None:
        """Another bundle is loaded, or none."""
        self.list.set_loaded(loaded, context_length or DEFAULT_CONTEXT_LENGTH)

    def show_add_page(self) -> None:
        """Shows the page that adds a model."""
        self.tabs.setCurrentWidget(self.add)

    def showEvent(self, event: QShowEvent) -> None:
        """Looks at the folder and the memory again."""
        self.list.refresh()
        super().showEvent(event)

    def _show_added(self, path: Path) -> None:
        self.list.refresh(path)
        self.tabs.setCurrentWidget(self.list)
