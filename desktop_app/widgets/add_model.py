"""Adds a model: a pair of the catalog, a hub id, a folder or a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget
from rich.filesize import decimal

from pilotfish.desktop_app.model_export import ExportOrder, free_name, pair_order
from pilotfish.desktop_app.programs import pilotfish_command
from pilotfish.desktop_app.widgets.draft_picker import DraftPicker
from pilotfish.desktop_app.widgets.export_view import ExportView
from pilotfish.desktop_app.widgets.forms import SPACE, ChoiceBox, Form, button, note
from pilotfish.runtime.catalog import Catalog

RECIPES = ("int8", "int4", "int4-mixed", "fp16", "auto")


class SourceRow(QWidget):
    """A field for a source with a button beside it."""

    def __init__(self, placeholder: str, text: str, tip: str, pressed: Callable[[], object]) -> None:
        super().__init__()
        self.edit = QLineEdit()
        self.edit.setPlaceholderText(placeholder)
        self.button = button(text, tip, pressed)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(SPACE)
        layout.addWidget(self.edit, 1)
        layout.addWidget(self.button)
        self.setFocusProxy(self.edit)

    @property
    def text(self) -> str:
        """What was given, without spaces around it."""
        return self.edit.text().strip()

    def setAccessibleName(self, name: str) -> None:
        """Names the field."""
        self.edit.setAccessibleName(name)

    def setToolTip(self, tip: str) -> None:
        """That of the field."""
        self.edit.setToolTip(tip)


class AddModelPage(QWidget):
    """`added` gives the path of the new bundle."""

    added = Signal(object)

    def __init__(
        self, catalog: Catalog, bundles: Path, command: Callable[[Sequence[str]], list[str]] = pilotfish_command
    ) -> None:
        """New bundles go into the folder `bundles`."""
        super().__init__()
        self._catalog, self._bundles, self._command = catalog, bundles, command
        self.view = ExportView(command)
        self.view.added.connect(self.added)
        self.view.running.connect(self._set_running)
        self.add = button(self.tr("Add"), self.tr("Fetch and convert this model"), self._add, "primary")
        self._fields = QWidget()
        fields = QVBoxLayout(self._fields)
        fields.setContentsMargins(0, 0, 0, 0)
        fields.setSpacing(2 * SPACE)
        fields.addLayout(self._kind_form())
        self._known, self._own = QWidget(), QWidget()
        self._known.setLayout(self._known_form())
        self._own.setLayout(self._own_form())
        for part in (self._known, self._own):
            fields.addWidget(part)
        row = QHBoxLayout()
        row.addSpacing(20 * SPACE)  # as far as the labels of the forms
        row.addWidget(self.add)
        row.addStretch(1)
        fields.addLayout(row)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(SPACE, 2 * SPACE, SPACE, SPACE)
        layout.setSpacing(2 * SPACE)
        layout.addWidget(self._fields)
        layout.addWidget(self.view)
        layout.addStretch(1)
        self._choose_kind("catalog")

    def order(self) -> ExportOrder:
        """What is asked for now."""
        if self.kind.currentData() == "catalog":
            pair = self._catalog.pair(self.pair.currentData())
            order = pair_order(pair, self._bundles)
            return ExportOrder(
                order.target, free_name(pair.name, self._bundles), order.recipe, order.draft, order.draft_recipe
            )
        source = self.source.text
        return ExportOrder(source, free_name(source, self._bundles), self.recipe.currentData(), self.draft.text or None)

    def _kind_form(self) -> Form:
        form = Form()
        self.kind = ChoiceBox(
            (
                ("catalog", self.tr("A model that pilotfish knows")), ("gguf", self.tr("A GGUF file")),
                ("folder", self.tr("A folder from Hugging Face")), ("hub", self.tr("A hub id, such as owner/name")),
            )
        )  # fmt: skip
        self.kind.chosen.connect(self._choose_kind)
        form.add(self.tr("From"), self.kind, self.tr("Where the model comes from"))
        return form

    def _known_form(self) -> Form:
        form = Form()
        form.setContentsMargins(0, 0, 0, 0)
        self.pair = ChoiceBox((name, self._catalog.pair(name).description) for name in self._catalog.pair_names)
        self.pair.chosen.connect(self._show_pair)
        self.facts = note(role="")
        form.add(self.tr("Model"), self.pair, self.tr("A target with what drafts for it"))
        form.addWidget(self.facts, form.rowCount(), 1, 1, 2)
        return form

    def _own_form(self) -> Form:
        form = Form()
        form.setContentsMargins(0, 0, 0, 0)
        self.source = SourceRow("", self.tr("Browse…"), self.tr("Choose it on this computer"), self._browse)
        self.source.edit.textChanged.connect(self._enable)
        self.draft = SourceRow(
            self.tr("none: copies from the text so far"), self.tr("Find a draft…"),
            self.tr("List models that fit, and say why others do not"), self._pick_draft,
        )  # fmt: skip
        names = {
            "int8": self.tr("8 bits: close to the original"), "int4": self.tr("4 bits: half as large, less exact"),
            "int4-mixed": self.tr("4 bits, the sensitive parts in 8"), "fp16": self.tr("16 bits: for a GPU"),
            "auto": self.tr("Measure, and choose"),
        }  # fmt: skip
        self.recipe = ChoiceBox((key, names[key]) for key in RECIPES)
        form.add(self.tr("Target"), self.source, self.tr("The large model, which has the last word"))
        form.add(self.tr("Draft"), self.draft, self.tr("A smaller one of the same family; it may be left empty"))
        form.add(self.tr("Precision"), self.recipe, self.tr("How weights are stored"))
        return form

    def _choose_kind(self, kind: str) -> None:
        self._known.setVisible(kind == "catalog")
        self._own.setVisible(kind != "catalog")
        self.source.button.setVisible(kind in ("gguf", "folder"))
        examples = {"gguf": self.tr("model.gguf"), "hub": "Qwen/Qwen2.5-0.5B-Instruct"}
        self.source.edit.setPlaceholderText(examples.get(kind, ""))
        self._show_pair()
        self._enable()

    def _show_pair(self, _: str = "") -> None:
        pair = self._catalog.pair(self.pair.currentData())
        download, disk = self._catalog.download_bytes(pair), pair.bundle_bytes
        self.facts.setText(
            self.tr("Download {}, on disk {}, in memory {}.").format(
                decimal(download), decimal(download + disk), decimal(pair.memory_bytes)
            )
        )

    def _enable(self) -> None:
        has_source = bool(self.source.text)
        self.add.setEnabled(self.kind.currentData() == "catalog" or has_source)
        self.draft.button.setEnabled(has_source)

    def _browse(self) -> None:
        if self.kind.currentData() == "folder":
            path = QFileDialog.getExistingDirectory(self, self.tr("A folder with config.json"))
        else:
            path, _ = QFileDialog.getOpenFileName(self, self.tr("A GGUF file"), "", self.tr("Models (*.gguf)"))
        if path:
            self.source.edit.setText(path)

    def _pick_draft(self) -> None:
        picker = DraftPicker(self.source.text, self, self._command)
        if picker.exec() == DraftPicker.DialogCode.Accepted:
            self.draft.edit.setText(picker.chosen)

    def _add(self) -> None:
        self.view.start(self.order())

    def _set_running(self, is_running: bool) -> None:
        self._fields.setEnabled(not is_running)
