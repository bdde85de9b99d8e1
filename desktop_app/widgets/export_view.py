"""Shows an export that runs: a bar for each of its works, a way to stop it, and to go on after that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from PySide6.QtCore import QCoreApplication, Signal
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QProgressBar, QVBoxLayout, QWidget
from rich.filesize import decimal

from pilotfish.desktop_app.errors import DesktopError
from pilotfish.desktop_app.model_export import ExportEnded, ExportOrder, ExportProgress, ModelExport
from pilotfish.desktop_app.programs import pilotfish_command
from pilotfish.desktop_app.widgets.forms import SPACE, button, clear_layout, named, note
from pilotfish.desktop_app.widgets.theme import set_role

STEPS = 1000  # of a bar: Qt counts in 32 bits, files do not
QUIT_TIMEOUT_S = 3.0


class ExportView(QWidget):
    """One export at a time. `added` gives the path of the new bundle; `running` tells when one begins and ends."""

    added = Signal(object)
    running = Signal(bool)
    _arrived = Signal(object)

    def __init__(self, command: Callable[[Sequence[str]], list[str]] = pilotfish_command, role: str = "") -> None:
        """`command` makes the command line of `pilotfish` from its arguments; `role` is that of "Resume"."""
        super().__init__()
        self._command = command
        self._order: ExportOrder | None = None
        self._export: ModelExport | None = None
        self._bars: dict[str, tuple[QProgressBar, QLabel]] = {}
        self._works = QGridLayout()
        self._works.setColumnStretch(1, 1)
        self._works.setHorizontalSpacing(2 * SPACE)
        self.message, self.remedy = note(), note(role="")
        self.cancel_button = button(self.tr("Cancel"), self.tr("Stop; what was downloaded is kept"), self.cancel)
        self.again_button = button(self.tr("Resume"), self.tr("Go on with the same model"), self.resume, role)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(SPACE)
        layout.addLayout(self._works)
        layout.addWidget(self.message)
        layout.addWidget(self.remedy)
        row = QHBoxLayout()
        row.addWidget(self.cancel_button)
        row.addWidget(self.again_button)
        row.addStretch(1)
        layout.addLayout(row)
        self._arrived.connect(self._take)
        application = QCoreApplication.instance()
        assert application is not None  # noqa: S101 - no widget can be made without one
        application.aboutToQuit.connect(self.close_export)
        self._show_state("", "")

    @property
    def is_running(self) -> bool:
        """Whether an export runs."""
        return self._export is not None

    def start(self, order: ExportOrder) -> None:
        """Begins an export; not while one runs."""
        self._order = order
        clear_layout(self._works)
        self._bars.clear()
        try:
            self._export = ModelExport(order, self._deliver, self._command)
        except DesktopError as error:
            self._fail(str(error))
            return
        self._show_state(self.tr("Preparing…"), "")
        self.running.emit(True)
        self.cancel_button.setFocus()

    def resume(self) -> None:
        """Begins the last one again; what was downloaded is there."""
        if self._order is not None and not self.is_running:
            self.start(self._order)

    def cancel(self) -> None:
        """Stops the export soon."""
        if self._export is not None:
            self._export.cancel()
            self.cancel_button.setEnabled(False)
            self.message.setText(self.tr("Stopping…"))

    def close_export(self) -> None:
        """Stops the export and waits a little, so that no process stays behind when the program ends."""
        if self._export is not None:
            self._export.cancel()
            self._export.wait(QUIT_TIMEOUT_S)

    def _deliver(self, event: ExportProgress | ExportEnded) -> None:
        """Called from the export's thread."""
        with suppress(RuntimeError):  # the window is gone
            self._arrived.emit(event)

    def _take(self, event: ExportProgress | ExportEnded) -> None:
        if isinstance(event, ExportProgress):
            self._show_progress(event)
            return
        self._export = None
        if event.outcome == "added":
            self._show_state(self.tr("Added {}.").format(event.output.name), "", "good")
        elif event.outcome == "cancelled":
            self._show_state(self.tr("Stopped. What was downloaded is kept."), "", again=self.tr("Resume"))
        else:
            self._fail(event.message)
        self.running.emit(False)
        if event.outcome == "added":
            self.added.emit(event.output)

    def _fail(self, message: str) -> None:
        """The runtime's messages end with what to do."""
        cause, _, remedy = message.rpartition("; ")
        self._show_state(cause or message, remedy if cause else "", "error", self.tr("Try again"))

    def _show_progress(self, event: ExportProgress) -> None:
        if event.progress not in self._bars:
            self._add_bar(event.progress)
        bar, figure = self._bars[event.progress]
        share = event.done / event.total if event.total > 0 else 0.0
        bar.setValue(round(STEPS * min(share, 1.0)))
        is_bytes = event.progress.startswith("fetching")
        figure.setText(f"{decimal(event.done)} / {decimal(event.total)}" if is_bytes else f"{share:.0%}")
        self.message.setText(event.progress[:1].upper() + event.progress[1:] + "…")

    def _add_bar(self, work: str) -> None:
        row = self._works.rowCount()
        bar = QProgressBar()
        bar.setRange(0, STEPS)
        bar.setTextVisible(False)
        named(bar, work, work)
        label, figure = QLabel(work), QLabel()
        set_role(figure, "muted")
        for column, each in enumerate((label, bar, figure)):
            self._works.addWidget(each, row, column)
        self._bars[work] = bar, figure

    def _show_state(self, message: str, remedy: str, role: str = "muted", again: str = "") -> None:
        for label, text in ((self.message, message), (self.remedy, remedy[:1].upper() + remedy[1:])):
            label.setText(text)
            label.setVisible(bool(text))
        set_role(self.message, role)
        self.cancel_button.setVisible(self.is_running)
        self.cancel_button.setEnabled(self.is_running)
        self.again_button.setVisible(bool(again))
        self.again_button.setText(again)
        self.again_button.setAccessibleName(again)
