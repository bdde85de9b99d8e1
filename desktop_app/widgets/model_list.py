"""The bundles on this computer: what each is, whether it fits, load, unload and delete."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import (
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QMessageBox,
    QVBoxLayout,
    QWidget,
)
from rich.filesize import decimal

from pilotfish.desktop_app.errors import DesktopError
from pilotfish.desktop_app.models import FitEstimate, ModelEntry, delete_model, estimate_fit, list_models
from pilotfish.desktop_app.widgets.forms import SPACE, button, clear_layout, named, note, scrolled
from pilotfish.desktop_app.widgets.theme import set_role
from pilotfish.runtime.bundle import ModelEntry as BundleModel
from pilotfish.runtime.memory import free_memory

VERDICT_ROLES = {"fits": "good", "tight": "warning", "too large": "error", "unknown": "muted"}


class ModelList(QWidget):
    """A list with a card beside it that tells about the chosen bundle."""

    load_requested = Signal(object)
    unload_requested = Signal()

    def __init__(self, bundles: Path, loaded: Path | None, context_length: int) -> None:
        """`loaded` is the bundle that is loaded now; the estimates are for `context_length` tokens."""
        super().__init__()
        self._bundles, self._loaded, self._context_length = bundles, loaded, context_length
        self._entries: tuple[ModelEntry, ...] = ()
        self.list = QListWidget()
        named(self.list, self.tr("Models on this computer"), self.tr("Choose a model (arrow keys); Enter loads it"))
        self.list.setMinimumWidth(30 * SPACE)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.currentItemChanged.connect(lambda: self._show_entry())
        self.list.itemActivated.connect(lambda: self._load())
        layout = QHBoxLayout(self)
        layout.setContentsMargins(SPACE, 2 * SPACE, SPACE, SPACE)
        layout.setSpacing(2 * SPACE)
        layout.addWidget(self.list, 2)
        layout.addWidget(self._make_card(), 3)
        self.refresh()

    @property
    def entry(self) -> ModelEntry | None:
        """The chosen one."""
        item = self.list.currentItem()
        return item.data(Qt.ItemDataRole.UserRole) if item else None

    def set_loaded(self, loaded: Path | None, context_length: int) -> None:
        """Another bundle is loaded, or none; or another context was chosen."""
        self._loaded, self._context_length = loaded, context_length
        self.refresh()

    def refresh(self, choose: Path | None = None) -> None:
        """Looks at the folder and at the free memory again; chooses that bundle, or the one chosen before."""
        choose = choose or (self.entry.path if self.entry else self._loaded)
        self._entries = list_models(self._bundles)
        self._free_bytes = free_memory()
        with QSignalBlocker(self.list):
            self.list.clear()
            for entry in self._entries:
                item = QListWidgetItem(f"{entry.name}\n{self._summary(entry)}")
                item.setData(Qt.ItemDataRole.UserRole, entry)
                self.list.addItem(item)
            rows = [row for row, entry in enumerate(self._entries) if entry.path == choose]
            self.list.setCurrentRow(rows[0] if rows else 0)
        self._show_entry()

    def fit(self, entry: ModelEntry) -> FitEstimate | None:
        """Whether it fits beside what runs, if the loaded one makes room; None if it is damaged."""
        if entry.manifest is None:
            return None
        loaded = next((each.manifest for each in self._entries if self._is_loaded(each)), None)
        loaded_bytes = estimate_fit(loaded, self._context_length, None).num_bytes if loaded else 0
        return estimate_fit(entry.manifest, self._context_length, self._free_bytes, loaded_bytes=loaded_bytes)

    def _make_card(self) -> QFrame:
        card = QFrame()
        card.setProperty("role", "card")
        self.title, self.verdict, self.fault = QLabel(), note(), note(role="error")
        self.facts = FactTable()
        self.title.setProperty("role", "title")
        self.title.setTextFormat(Qt.TextFormat.PlainText)
        self.title.setWordWrap(True)
        self.load = button(self.tr("Load"), self.tr("Load this model, and unload the other"), self._load, "primary")
        self.unload = button(self.tr("Unload"), self.tr("Free the memory of this model"), self.unload_requested.emit)
        self.delete = button(self.tr("Delete…"), self.tr("Delete this model for good"), self._delete, "danger")
        row = QHBoxLayout()
        for each in (self.load, self.unload):
            row.addWidget(each)
        row.addStretch(1)
        row.addWidget(self.delete)
        told = QVBoxLayout()
        told.setContentsMargins(0, 0, SPACE, 0)
        told.setSpacing(SPACE)
        told.addWidget(self.title)
        told.addLayout(self.facts)
        told.addWidget(self.fault)
        told.addWidget(self.verdict)
        told.addStretch(1)
        layout = QVBoxLayout(card)
        layout.setContentsMargins(2 * SPACE, 2 * SPACE, 2 * SPACE, 2 * SPACE)
        layout.setSpacing(SPACE)
        layout.addWidget(scrolled(told), 1)
        layout.addLayout(row)
        return card

    def _summary(self, entry: ModelEntry) -> str:
        fit = self.fit(entry)
        if fit is None:
            return self.tr("damaged")
        words = {
            "fits": self.tr("fits"), "tight": self.tr("fits only just"), "too large": self.tr("too large now"),
            "unknown": "",
        }  # fmt: skip
        parts = (self.tr("loaded") if self._is_loaded(entry) else words[fit.verdict], decimal(entry.num_bytes))
        return " · ".join(part for part in parts if part)

    def _show_entry(self) -> None:
        entry = self.entry
        is_loaded = entry is not None and self._is_loaded(entry)
        self.title.setText(entry.name if entry else self.tr("No models yet: add one on the other page"))
        self.facts.show_rows(self._facts(entry) if entry else [])
        self.fault.setText(entry.fault if entry else "")
        self.fault.setVisible(bool(self.fault.text()))
        fit = self.fit(entry) if entry and not is_loaded else None
        damaged = self.tr("Delete it, and add the model again.") if entry and entry.fault else ""
        self.verdict.setText(self._fit_words(fit) if fit else self.tr("It is loaded.") if is_loaded else damaged)
        self.verdict.setVisible(bool(self.verdict.text()))
        set_role(self.verdict, VERDICT_ROLES[fit.verdict] if fit else "good" if is_loaded else "")
        self.load.setVisible(not is_loaded)
        self.load.setEnabled(entry is not None and entry.manifest is not None)
        self.unload.setVisible(is_loaded)
        self.delete.setEnabled(entry is not None and not is_loaded)
        self.delete.setToolTip(
            self.tr("Unload this model first") if is_loaded else self.tr("Delete this model for good")
        )

    def _facts(self, entry: ModelEntry) -> list[tuple[str, str]]:
        manifest, fit = entry.manifest, self.fit(entry)
        if manifest is None or fit is None:
            return [(self.tr("Folder"), str(entry.path))]
        length = min(self._context_length, manifest.target.max_positions)
        draft = _named(manifest.draft) if manifest.draft else self.tr("none; copies from the text so far")
        return [
            (self.tr("Target"), _named(manifest.target)),
            (self.tr("Draft"), draft),
            (self.tr("Context"), self.tr("up to {:,} tokens").format(manifest.target.max_positions)),
            (self.tr("On disk"), decimal(entry.num_bytes)),
            (self.tr("Weights"), decimal(fit.target_bytes + fit.draft_bytes)),
            (self.tr("Caches"), self.tr("{} for {:,} tokens").format(decimal(fit.cache_bytes), length)),
        ]

    def _fit_words(self, fit: FitEstimate) -> str:
        needed = decimal(fit.num_bytes)
        if fit.free_bytes is None:
            return self.tr("It takes about {}; how much memory is free is not known here.").format(needed)
        free = decimal(fit.free_bytes)
        return {
            "fits": self.tr("It fits: it takes about {}, and {} are free.").format(needed, free),
            "tight": self.tr("It fits only just: it takes about {}, and {} are free. Close other programs, "
                             "or choose a shorter context.").format(needed, free),
            "too large": self.tr("It does not fit now: it takes about {}, and {} are free. Close other programs, "
                                 "choose a shorter context, or a smaller model.").format(needed, free),
        }[fit.verdict]  # fmt: skip

    def _is_loaded(self, entry: ModelEntry) -> bool:
        return self._loaded is not None and entry.path.absolute() == self._loaded.absolute()

    def _load(self) -> None:
        if self.entry and self.entry.manifest and not self._is_loaded(self.entry):
            self.load_requested.emit(self.entry.path)

    def _delete(self) -> None:
        entry = self.entry
        if entry is None or self._is_loaded(entry):
            return
        question = self.tr("Delete {} for good? It can be made again from its source.").format(entry.name)
        if QMessageBox.question(self, self.tr("Delete a model"), question) != QMessageBox.StandardButton.Yes:
            return
        try:
            delete_model(entry.path)
        except DesktopError as error:
            QMessageBox.warning(self, self.tr("Delete a model"), str(error))
        self.refresh()


class FactTable(QGridLayout):
    """Rows of a name and a value."""

    def __init__(self) -> None:
        super().__init__()
        self.setContentsMargins(0, SPACE, 0, SPACE)
        self.setHorizontalSpacing(2 * SPACE)
        self.setVerticalSpacing(SPACE)
        self.setColumnStretch(1, 1)

    def show_rows(self, rows: list[tuple[str, str]]) -> None:
        """Shows these instead of those before."""
        clear_layout(self)
        for row, (name, value) in enumerate(rows):
            label = QLabel(name)
            label.setProperty("role", "muted")
            self.addWidget(label, row, 0, Qt.AlignmentFlag.AlignTop)
            self.addWidget(note(value, ""), row, 1)


def _named(model: BundleModel) -> str:
    return f"{model.source.get('name') or model.family} ({model.recipe})"
