"""Chooses a draft for a target, and explains why the others cannot be its draft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QFileDialog, QHBoxLayout, QListWidget, QListWidgetItem, QVBoxLayout, QWidget
from rich.filesize import decimal

from pilotfish.desktop_app.draft_search import DraftFinding, find_drafts
from pilotfish.desktop_app.programs import pilotfish_command
from pilotfish.desktop_app.widgets.background import Background
from pilotfish.desktop_app.widgets.forms import SPACE, button, named, note, resize_for_text
from pilotfish.desktop_app.widgets.theme import set_role


class DraftPicker(QDialog):
    """After `exec`, `chosen` is what `ExportOrder.draft` takes, or empty."""

    def __init__(
        self, target: str, parent: QWidget | None = None,
        command: Callable[[Sequence[str]], list[str]] = pilotfish_command,
    ) -> None:  # fmt: skip
        """Begins to search: the catalog, what was downloaded, and the folder that the target is in."""
        super().__init__(parent)
        self.setWindowTitle(self.tr("Choose a draft"))
        self._target, self._command = target, command
        self.chosen = ""
        self.status, self.explanation = note(), note(role="")
        self.list = QListWidget()
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        named(self.list, self.tr("Drafts"), self.tr("Models and whether they fit (arrow keys)"))
        self.list.currentItemChanged.connect(self._explain)
        self.use = button(self.tr("Use as draft"), self.tr("Draft with this model"), self._use, "primary")
        self.look = button(self.tr("Look in a folder…"), self.tr("Look at the models in another folder"), self._look)
        self.close_button = button(self.tr("Cancel"), self.tr("Choose no draft (Esc)"), self.reject)
        row = QHBoxLayout()
        row.addWidget(self.look)
        row.addStretch(1)
        row.addWidget(self.close_button)
        row.addWidget(self.use)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * SPACE, 2 * SPACE, 2 * SPACE, 2 * SPACE)
        layout.setSpacing(2 * SPACE)
        layout.addWidget(note(self.tr("A draft is a smaller model with the same vocabulary as the target.")))
        layout.addWidget(self.status)
        layout.addWidget(self.list, 2)
        layout.addWidget(self.explanation, 1, Qt.AlignmentFlag.AlignTop)
        layout.addLayout(row)
        resize_for_text(self, 640, 520)
        path = Path(target).expanduser()
        self._search(str(path.absolute().parent) if path.exists() else None)

    def _search(self, folder: str | None) -> None:
        self._show_status(self.tr("Comparing vocabularies…"), "muted")
        self.list.clear()
        self.look.setEnabled(False)
        self.use.setEnabled(False)
        search = Background(partial(find_drafts, self._target, (), folder, self._command), self)
        search.done.connect(self._show)
        search.failed.connect(self._fail)
        search.start()

    def _show(self, found: Sequence[DraftFinding]) -> None:
        self.look.setEnabled(True)
        num_fitting = sum(each.fits for each in found)
        self._show_status(
            self.tr("%n of these fit.", "", num_fitting) if found else self.tr("No models found."), "muted"
        )
        for each in found:
            size = f" · {decimal(each.data_bytes)}" if each.data_bytes else ""
            mark = "✓" if each.is_worth_trying else "–" if each.fits else "✗"
            item = QListWidgetItem(f"{mark} {Path(each.source).name}{size}\n{each.verdict}")
            item.setData(Qt.ItemDataRole.UserRole, each)
            item.setToolTip(each.source)
            self.list.addItem(item)
        self.list.setCurrentRow(0)

    def _fail(self, message: str) -> None:
        self.look.setEnabled(True)
        self._show_status(message, "error")

    def _explain(self, item: QListWidgetItem | None) -> None:
        finding = item.data(Qt.ItemDataRole.UserRole) if item else None
        self.use.setEnabled(finding is not None and finding.fits)
        if finding is None:
            self.explanation.setText("")
        elif finding.fault:
            self.explanation.setText(finding.fault)
        elif finding.is_worth_trying:
            share = self.tr("It has {:.0%} of the target's parameters.").format(finding.ratio)
            self.explanation.setText(share)
        else:
            self.explanation.setText(
                self.tr("It fits, but is not smaller than the target, so it cannot make it faster.")
            )

    def _use(self) -> None:
        item = self.list.currentItem()
        if item is not None:
            self.chosen = item.data(Qt.ItemDataRole.UserRole).source
            self.accept()

    def _look(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, self.tr("A folder with models"))
        if folder:
            self._search(folder)

    def _show_status(self, text: str, role: str) -> None:
        self.status.setText(text)
        set_role(self.status, role)
