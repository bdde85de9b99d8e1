"""The window: its parts and where they are. What they do is the controls' business."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QSettings, Qt, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import (
    QApplication,
    QFrame,
    QHBoxLayout,
    QMainWindow,
    QSplitter,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from pilotfish.desktop_app.models import list_models
from pilotfish.desktop_app.places import window_path
from pilotfish.desktop_app.themes import Colours
from pilotfish.desktop_app.widgets.banner import Banner
from pilotfish.desktop_app.widgets.composer import Composer
from pilotfish.desktop_app.widgets.conversation_list import ConversationList
from pilotfish.desktop_app.widgets.empty_page import EmptyPage
from pilotfish.desktop_app.widgets.header import Header
from pilotfish.desktop_app.widgets.icons import app_icon
from pilotfish.desktop_app.widgets.speculation_panel import SpeculationPanel
from pilotfish.desktop_app.widgets.tab_order import ORDERS_TAB, in_tab_order
from pilotfish.desktop_app.widgets.transcript import Transcript
from pilotfish.desktop_app.widgets.welcome import Welcome
from pilotfish.desktop_app.widgets.window_style import window_sheet

COLUMN_WIDTH = 760
SIDEBAR_WIDTH, MIN_SIDEBAR_WIDTH = 260, 180
FIRST_SIZE = (1180, 800)


class MainWindow(QMainWindow):
    """`closing` is emitted once, before the window goes."""

    closing = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.sidebar = ConversationList()
        self.header = Header(list_models)
        self.banner = Banner()
        self.panel = SpeculationPanel()
        self.transcript = Transcript()
        self.welcome = Welcome()
        self.empty = EmptyPage()
        self.composer = Composer()
        self.pages = QStackedWidget()
        self._splitter = QSplitter(Qt.Orientation.Horizontal)
        self._is_closed, self._shows_panel = False, True
        self.setProperty(ORDERS_TAB, True)
        self.setWindowTitle("pilotfish")
        self.setWindowIcon(app_icon())
        self._lay_out()
        self._restore()

    def set_colours(self, colours: Colours) -> None:
        """Another theme, for every part."""
        self.setStyleSheet(window_sheet(colours))
        for part in (self.sidebar, self.header, self.banner, self.panel, self.transcript, self.composer):
            part.set_colours(colours)

    def show_page(self, page: QWidget) -> None:
        """Shows the transcript, the empty chat or the welcome; there is nothing to write to on the last."""
        self.pages.setCurrentWidget(page)
        self.composer.setVisible(page is not self.welcome)
        self.panel.setVisible(self._shows_panel and page is not self.welcome)

    def show_panel(self, is_shown: bool) -> None:
        """Whether the line about speculation is shown."""
        self._shows_panel = is_shown
        self.panel.setVisible(is_shown and self.pages.currentWidget() is not self.welcome)

    def show_again(self) -> None:
        """To the front, also from the dock."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()

    def focusNextPrevChild(self, is_next: bool) -> bool:
        """Through the parts one after the other; Qt would go by the order in which their contents were made."""
        parts = (self.sidebar, self.header, self.banner, self.panel, self.pages, self.composer)
        chain = [widget for part in parts for widget in in_tab_order(part)]
        current = QApplication.focusWidget()
        if current not in chain:
            return super().focusNextPrevChild(is_next)
        following = chain[(chain.index(current) + (1 if is_next else -1)) % len(chain)]
        following.setFocus(Qt.FocusReason.TabFocusReason if is_next else Qt.FocusReason.BacktabFocusReason)
        self.transcript.show_widget(following)
        return True

    def closeEvent(self, event: QCloseEvent) -> None:
        """Keeps size and place, and lets the controls save."""
        if not self._is_closed:
            self._is_closed = True
            kept = QSettings(str(window_path()), QSettings.Format.IniFormat)
            kept.setValue("geometry", self.saveGeometry())
            kept.setValue("splitter", self._splitter.saveState())
            self.closing.emit()
        super().closeEvent(event)

    def _lay_out(self) -> None:
        for page in (self.empty, self.transcript, self.welcome):
            self.pages.addWidget(page)
        content = QFrame()
        content.setObjectName("content")
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        for part in (self.header, self.banner, self.panel):
            column.addWidget(part)
        column.addWidget(self.pages, 1)
        column.addLayout(self._composer_row())
        self._splitter.addWidget(self.sidebar)
        self._splitter.addWidget(content)
        self._splitter.setCollapsible(1, False)
        self._splitter.setStretchFactor(1, 1)
        self._splitter.setSizes([SIDEBAR_WIDTH, FIRST_SIZE[0] - SIDEBAR_WIDTH])
        self.sidebar.setMinimumWidth(MIN_SIDEBAR_WIDTH)
        self.setCentralWidget(self._splitter)

    def _composer_row(self) -> QHBoxLayout:
        self.composer.setMaximumWidth(COLUMN_WIDTH)
        row = QHBoxLayout()
        row.setContentsMargins(20, 4, 20, 16)
        row.addStretch(1)
        row.addWidget(self.composer, 100)
        row.addStretch(1)
        return row

    def _restore(self) -> None:
        self.resize(*FIRST_SIZE)
        kept = QSettings(str(window_path()), QSettings.Format.IniFormat)
        for name, restore in (("geometry", self.restoreGeometry), ("splitter", self._splitter.restoreState)):
            if isinstance(state := kept.value(name), QByteArray):
                restore(state)
