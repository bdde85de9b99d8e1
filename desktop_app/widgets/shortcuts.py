"""The keys of the whole window, in one table, and the sheet that shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

CONTEXT = "Shortcuts"


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A key sequence, as `QKeySequence` reads it (on a Mac, Ctrl is ⌘), and what it does; both texts are English."""

    keys: str
    what: str
    group: str

    @property
    def sequence(self) -> QKeySequence:
        """As Qt takes it."""
        return QKeySequence(self.keys)

    @property
    def shown_keys(self) -> str:
        """As the platform writes it."""
        return self.sequence.toString(QKeySequence.SequenceFormat.NativeText)

    @property
    def shown_what(self) -> str:
        """In the user's language."""
        return QCoreApplication.translate(CONTEXT, self.what)

    @property
    def shown_group(self) -> str:
        """In the user's language."""
        return QCoreApplication.translate(CONTEXT, self.group)


def QT_TRANSLATE_NOOP(_context: str, text: str) -> str:
    """Marks `text` for Qt's lupdate, which knows this name; PySide6's own gives an `object`."""
    return text


_CHATS = QT_TRANSLATE_NOOP("Shortcuts", "Chats")
_WRITING = QT_TRANSLATE_NOOP("Shortcuts", "Writing")
_REPLIES = QT_TRANSLATE_NOOP("Shortcuts", "Replies")
_VIEW = QT_TRANSLATE_NOOP("Shortcuts", "View")
_PROGRAM = QT_TRANSLATE_NOOP("Shortcuts", "Program")

SHORTCUTS: Mapping[str, Shortcut] = MappingProxyType(
    {
        "new_chat": Shortcut("Ctrl+N", QT_TRANSLATE_NOOP("Shortcuts", "New chat"), _CHATS),
        "temporary_chat": Shortcut("Ctrl+Shift+N", QT_TRANSLATE_NOOP("Shortcuts", "New temporary chat"), _CHATS),
        "search": Shortcut("Ctrl+F", QT_TRANSLATE_NOOP("Shortcuts", "Search all chats"), _CHATS),
        "next_chat": Shortcut("Ctrl+PgDown", QT_TRANSLATE_NOOP("Shortcuts", "Next chat"), _CHATS),
        "previous_chat": Shortcut("Ctrl+PgUp", QT_TRANSLATE_NOOP("Shortcuts", "Previous chat"), _CHATS),
        "rename_chat": Shortcut("F2", QT_TRANSLATE_NOOP("Shortcuts", "Rename the chat"), _CHATS),
        "delete_chat": Shortcut("Ctrl+Shift+Delete", QT_TRANSLATE_NOOP("Shortcuts", "Delete the chat"), _CHATS),
        "undo_delete": Shortcut("Ctrl+Alt+Z", QT_TRANSLATE_NOOP("Shortcuts", "Bring a deleted chat back"), _CHATS),
        "import_chat": Shortcut("Ctrl+O", QT_TRANSLATE_NOOP("Shortcuts", "Import a chat"), _CHATS),
        "export_chat": Shortcut("Ctrl+S", QT_TRANSLATE_NOOP("Shortcuts", "Export the chat"), _CHATS),
        "send": Shortcut("Return", QT_TRANSLATE_NOOP("Shortcuts", "Send the message"), _WRITING),
        "new_line": Shortcut("Shift+Return", QT_TRANSLATE_NOOP("Shortcuts", "Begin a new line"), _WRITING),
        "stop": Shortcut("Esc", QT_TRANSLATE_NOOP("Shortcuts", "Stop the reply or the loading"), _WRITING),
        "attach": Shortcut("Ctrl+Shift+A", QT_TRANSLATE_NOOP("Shortcuts", "Attach a text file"), _WRITING),
        "focus_composer": Shortcut("Ctrl+L", QT_TRANSLATE_NOOP("Shortcuts", "Go to the message field"), _WRITING),
        "regenerate": Shortcut("Ctrl+R", QT_TRANSLATE_NOOP("Shortcuts", "Write the reply anew"), _REPLIES),
        "continue_reply": Shortcut("Ctrl+Return", QT_TRANSLATE_NOOP("Shortcuts", "Continue the reply"), _REPLIES),
        "edit_last": Shortcut("Ctrl+Shift+E", QT_TRANSLATE_NOOP("Shortcuts", "Edit your last message"), _REPLIES),
        "copy_reply": Shortcut("Ctrl+Shift+C", QT_TRANSLATE_NOOP("Shortcuts", "Copy the last reply"), _REPLIES),
        "previous_branch": Shortcut("Alt+Left", QT_TRANSLATE_NOOP("Shortcuts", "The version before"), _REPLIES),
        "next_branch": Shortcut("Alt+Right", QT_TRANSLATE_NOOP("Shortcuts", "The next version"), _REPLIES),
        "zoom_in": Shortcut("Ctrl++", QT_TRANSLATE_NOOP("Shortcuts", "Larger text"), _VIEW),
        "zoom_out": Shortcut("Ctrl+-", QT_TRANSLATE_NOOP("Shortcuts", "Smaller text"), _VIEW),
        "zoom_reset": Shortcut("Ctrl+0", QT_TRANSLATE_NOOP("Shortcuts", "Text as large as at first"), _VIEW),
        "toggle_sidebar": Shortcut("Ctrl+B", QT_TRANSLATE_NOOP("Shortcuts", "Show or hide the list of chats"), _VIEW),
        "toggle_panel": Shortcut("Ctrl+P", QT_TRANSLATE_NOOP("Shortcuts", "Show or hide the speculation panel"), _VIEW),
        "toggle_tints": Shortcut("Ctrl+T", QT_TRANSLATE_NOOP("Shortcuts", "Show or hide who wrote which token"), _VIEW),
        "full_screen": Shortcut("F11", QT_TRANSLATE_NOOP("Shortcuts", "Full screen"), _VIEW),
        "speculation": Shortcut("Ctrl+Shift+S", QT_TRANSLATE_NOOP("Shortcuts", "Speculation on or off"), _PROGRAM),
        "models": Shortcut("Ctrl+M", QT_TRANSLATE_NOOP("Shortcuts", "Models"), _PROGRAM),
        "settings": Shortcut("Ctrl+,", QT_TRANSLATE_NOOP("Shortcuts", "Settings"), _PROGRAM),
        "shortcuts": Shortcut("F1", QT_TRANSLATE_NOOP("Shortcuts", "This sheet"), _PROGRAM),
        "quit": Shortcut("Ctrl+Q", QT_TRANSLATE_NOOP("Shortcuts", "Quit"), _PROGRAM),
    }
)


def tool_tip(text: str, name: str) -> str:
    """`text` with the keys of the shortcut of that name, such as "New chat (Ctrl+N)"."""
    return f"{text} ({SHORTCUTS[name].shown_keys})"


class ShortcutSheet(QDialog):
    """All shortcuts, by group, in two columns."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(self.tr("Keyboard shortcuts"))
        columns = QHBoxLayout()
        columns.setSpacing(24)
        for groups in ((_CHATS, _WRITING), (_REPLIES, _VIEW, _PROGRAM)):
            columns.addLayout(self._column(groups))
        content = QWidget()
        content.setLayout(columns)
        area = QScrollArea()
        area.setWidgetResizable(True)
        area.setWidget(content)
        area.setAccessibleName(self.tr("Keyboard shortcuts"))
        area.setToolTip(self.tr("All shortcuts; the arrow keys scroll"))
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        close = buttons.button(QDialogButtonBox.StandardButton.Close)
        close.setText(self.tr("Close"))
        close.setAccessibleName(self.tr("Close the sheet"))
        close.setToolTip(self.tr("Close the sheet (Esc)"))
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(16, 16, 16, 16)
        layout.setSpacing(16)
        layout.addWidget(area)
        layout.addWidget(buttons)
        self.resize(content.sizeHint().width() + 64, min(content.sizeHint().height() + 128, 800))

    def _column(self, groups: tuple[str, ...]) -> QVBoxLayout:
        column = QVBoxLayout()
        column.setSpacing(16)
        for group in groups:
            column.addWidget(_group_card([each for each in SHORTCUTS.values() if each.group == group]))
        column.addStretch(1)
        return column


def _group_card(shortcuts: list[Shortcut]) -> QFrame:
    card = QFrame()
    card.setProperty("role", "card")
    grid = QGridLayout(card)
    grid.setContentsMargins(16, 12, 16, 12)
    grid.setHorizontalSpacing(24)
    grid.setVerticalSpacing(6)
    grid.setColumnStretch(0, 1)
    heading = QLabel(shortcuts[0].shown_group)
    heading.setProperty("role", "heading")
    grid.addWidget(heading, 0, 0, 1, 2)
    for row, each in enumerate(shortcuts, start=1):
        keys = QLabel(each.shown_keys)
        keys.setProperty("role", "keys")
        grid.addWidget(QLabel(each.shown_what), row, 0)
        grid.addWidget(keys, row, 1, Qt.AlignmentFlag.AlignRight)
    return card
