"""The other pages of the settings: speculation, how models are loaded, and the look of the window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import QSignalBlocker
from PySide6.QtWidgets import QCheckBox, QHBoxLayout

from pilotfish.desktop_app import setting_fields as fields
from pilotfish.desktop_app.settings import MAX_ZOOM, MIN_ZOOM, THEMES, LoadOptions, Settings
from pilotfish.desktop_app.widgets.forms import ChoiceBox, button, note
from pilotfish.desktop_app.widgets.settings_page import SettingsPage
from pilotfish.desktop_app.widgets.shortcuts import tool_tip
from pilotfish.runtime.generation import DRAFT_CHOICES

ZOOMS = (0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0)


class SpeculationPage(SettingsPage):
    """The switch, who drafts, and how much."""

    def __init__(self, settings: Callable[[], Settings], apply: Callable[[Settings], None]) -> None:
        super().__init__(settings, apply)
        self.column.addWidget(
            note(self.tr("A small model or a look-up drafts tokens, and the large model checks them all at once. "
                         "The replies are as good as without; only the speed differs."))
        )  # fmt: skip
        self.switch = QCheckBox(self.tr("Draft tokens ahead"))
        self.switch.toggled.connect(self._switch)
        self.form.add(
            self.tr("Speculation"), self.switch, tool_tip(self.tr("Switch drafting on or off"), "speculation")
        )
        names = {
            "auto": self.tr("Automatic: what is fastest here, measured"),
            "model": self.tr("The draft model"),
            "suffix": self.tr("Copy from the longest earlier match"),
            "lookup": self.tr("Copy from earlier n-grams"),
            "cascade": self.tr("Copy where possible, else the draft model"),
        }
        self.drafter = ChoiceBox((key, names[key]) for key in DRAFT_CHOICES if key != "off")
        self.drafter.chosen.connect(self._choose)
        self.form.add(self.tr("Who drafts"), self.drafter, self.tr("Automatic may also choose not to draft"))
        self.k = self.add_number(
            fields.NUM_DRAFT_TOKENS, self.tr("Tokens a round"), self.tr("Automatic chooses this number itself")
        )
        self.finish()

    def show_settings(self, settings: Settings) -> None:
        """Also the switch and the drafter."""
        super().show_settings(settings)
        with QSignalBlocker(self.switch):
            self.switch.setChecked(settings.speculates and settings.reply.draft != "off")
        self.drafter.select("auto" if settings.reply.draft == "off" else settings.reply.draft)
        self._enable()

    def _switch(self, is_on: bool) -> None:
        settings = self._settings()
        draft = self.drafter.currentData() if is_on else settings.reply.draft
        self._apply(replace(settings, speculates=is_on, reply=replace(settings.reply, draft=draft)))
        self._enable()

    def _choose(self, key: str) -> None:
        settings = self._settings()
        self._apply(replace(settings, reply=replace(settings.reply, draft=key)))
        self._enable()

    def _enable(self) -> None:
        self.drafter.setEnabled(self.switch.isChecked())
        self.k.setEnabled(self.switch.isChecked() and self.drafter.currentData() != "auto")


class ModelPage(SettingsPage):
    """How models are loaded."""

    def __init__(
        self, settings: Callable[[], Settings], apply: Callable[[Settings], None], devices: Sequence[str],
        loaded_with: LoadOptions | None, reload: Callable[[], None],
    ) -> None:  # fmt: skip
        """`loaded_with` are the options of the loaded model; a change of them offers `reload`."""
        super().__init__(settings, apply)
        self._devices, self._loaded_with = tuple(devices), loaded_with
        self.notice = note(role="warning")
        self.reload = button(
            self.tr("Load again"), self.tr("Load the model with these settings now"), reload, "primary"
        )
        row = QHBoxLayout()
        row.addWidget(self.notice, 1)
        row.addWidget(self.reload)
        self.column.addLayout(row)
        self.device, self.draft_device = ChoiceBox(), ChoiceBox()
        self.device.chosen.connect(lambda key: self._apply_loading(device=key))
        self.draft_device.chosen.connect(lambda key: self._apply_loading(draft_device=key or None))
        self.form.add(self.tr("Device"), self.device, self.tr("Where the target model runs"))
        self.form.add(self.tr("Draft's device"), self.draft_device, self.tr("Where the draft model runs"))
        self.add_number(
            fields.NUM_THREADS,
            self.tr("Threads"),
            self.tr("Of the processor; all physical cores if empty"),
            self.tr("all cores"),
        )
        self.add_number(
            fields.CONTEXT_LENGTH, self.tr("Context length"),
            self.tr("In tokens; a longer one takes more memory"), self.tr("at most 4096"),
        )  # fmt: skip
        self.mode = ChoiceBox((("exact", self.tr("Exact")), ("fast", self.tr("Fast"))))
        self.mode.chosen.connect(lambda key: self._apply_loading(exact=key == "exact"))
        self.form.add(
            self.tr("Mode"), self.mode,
            self.tr("Exact: at temperature 0 the same text with and without drafting. Fast: near-ties may differ"),
        )  # fmt: skip
        self.cuda_graphs = QCheckBox(self.tr("Record CUDA graphs"))
        self.cuda_graphs.toggled.connect(lambda is_on: self._apply_loading(cuda_graphs=is_on))
        self.form.add(
            self.tr("CUDA graphs"), self.cuda_graphs,
            self.tr("On device cuda: each pass is recorded while the model loads, and played again"),
        )  # fmt: skip
        self.finish()

    def show_settings(self, settings: Settings) -> None:
        """Also the devices, the mode and the graphs."""
        super().show_settings(settings)
        loading = settings.loading
        used = [each for each in (loading.device, loading.draft_device) if each]
        names = [*self._devices, *(each for each in dict.fromkeys(used) if each not in self._devices)]
        shown = [(each, each if each in self._devices else self.tr("{} (not found)").format(each)) for each in names]
        self.device.set_choices(shown)
        self.device.select(loading.device)
        self.draft_device.set_choices([("", self.tr("the same")), *shown])
        self.draft_device.select(loading.draft_device or "")
        self.mode.select("exact" if loading.exact else "fast")
        self._show_graphs(loading)
        self.show_notice(settings)

    def show_notice(self, settings: Settings) -> None:
        """Says whether the loaded model has to be loaded again."""
        needs_it = self._loaded_with is not None and settings.needs_reload(self._loaded_with)
        self.notice.setText(
            self.tr("The loaded model does not run with these settings yet.")
            if needs_it
            else self.tr("What is changed here takes effect when a model is loaded.")
        )
        self.reload.setVisible(needs_it)

    def set_loaded_with(self, loaded_with: LoadOptions | None) -> None:
        """A model was loaded, or none is any more."""
        self._loaded_with = loaded_with
        self.show_notice(self._settings())

    def set_devices(self, devices: Sequence[str]) -> None:
        """The devices were found meanwhile."""
        self._devices = tuple(devices)
        self.show_settings(self._settings())

    def _apply_loading(self, **values: str | bool | None) -> None:
        settings = self._settings()
        loading = replace(settings.loading, **values)  # type: ignore[arg-type]
        if not loading.is_on_cuda:
            loading = replace(loading, cuda_graphs=False)  # else no model could be loaded
        self._apply(replace(settings, loading=loading))
        self._show_graphs(loading)

    def _show_graphs(self, loading: LoadOptions) -> None:
        with QSignalBlocker(self.cuda_graphs):
            self.cuda_graphs.setChecked(loading.cuda_graphs)
        self.cuda_graphs.setEnabled(loading.is_on_cuda)


class LookPage(SettingsPage):
    """Theme, zoom and tints."""

    def __init__(self, settings: Callable[[], Settings], apply: Callable[[Settings], None]) -> None:
        super().__init__(settings, apply)
        names = {"system": self.tr("As the desktop"), "light": self.tr("Light"), "dark": self.tr("Dark")}
        self.theme = ChoiceBox((theme, names[theme]) for theme in THEMES)
        self.theme.chosen.connect(lambda key: self._apply(replace(self._settings(), theme=key)))
        self.form.add(self.tr("Theme"), self.theme, self.tr("Light, dark, or whatever the desktop has"))
        self.zoom = ChoiceBox()
        self.zoom.chosen.connect(lambda key: self._apply(replace(self._settings(), zoom=float(key))))
        self.form.add(self.tr("Size of text"), self.zoom, tool_tip(self.tr("Larger or smaller text"), "zoom_in"))
        self.tints = QCheckBox(self.tr("Show who wrote each token"))
        self.tints.toggled.connect(lambda is_on: self._apply(replace(self._settings(), tints=is_on)))
        self.form.add(
            self.tr("Tints"), self.tints,
            tool_tip(self.tr("Drafted by the model, copied, or written by the target"), "toggle_tints"),
        )  # fmt: skip
        self.finish()

    def show_settings(self, settings: Settings) -> None:
        """All three."""
        super().show_settings(settings)
        zooms = sorted({*ZOOMS, settings.zoom})
        self.zoom.set_choices((str(each), f"{each:.0%}") for each in zooms if MIN_ZOOM <= each <= MAX_ZOOM)
        self.zoom.select(str(settings.zoom))
        self.theme.select(settings.theme)
        with QSignalBlocker(self.tints):
            self.tints.setChecked(settings.tints)
