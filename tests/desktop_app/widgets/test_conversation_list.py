"""The list of chats: dates, search, renaming, deleting."""

from __future__ import annotations

import time

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit

from pilotfish.desktop_app.search import SearchHit
from pilotfish.desktop_app.store import ChatEntry
from pilotfish.desktop_app.widgets.conversation_list import ConversationList

NOW = time.time()
ENTRIES = (
    ChatEntry("a", "Sky", NOW), ChatEntry("b", "", NOW - 10), ChatEntry("c", "سؤال 你好", NOW - 40 * 86400),
)  # fmt: skip


@pytest.fixture
def chats(qtbot) -> ConversationList:
    chats = ConversationList()
    qtbot.addWidget(chats)
    chats.resize(260, 500)
    chats.show()
    chats.show_chats(ENTRIES, "a")
    return chats


def texts(chats: ConversationList) -> list[str]:
    return [chats.list.item(row).text() for row in range(chats.list.count())]


def test_chats_stand_under_headings_that_cannot_be_opened(chats: ConversationList):
    month = time.strftime("%Y-%m", time.localtime(NOW - 40 * 86400))
    assert texts(chats) == ["Today", "Sky", "Untitled", month, "سؤال 你好"]
    opened = []
    chats.opened.connect(lambda *what: opened.append(what))
    for row in range(chats.list.count()):
        rect = chats.list.visualItemRect(chats.list.item(row))
        QTest.mouseClick(chats.list.viewport(), Qt.MouseButton.LeftButton, pos=rect.center())
    assert list(dict.fromkeys(opened)) == [("a", None), ("b", None), ("c", None)]
    assert chats.current_id == "c"
    assert (chats.neighbour(-1), chats.neighbour(1)) == ("b", "")


def test_search_is_told_after_a_pause_and_enter_goes_to_what_was_found(chats: ConversationList, qtbot):
    searched, opened = [], []
    chats.search_changed.connect(searched.append)
    chats.search_changed.connect(lambda text: chats.show_hits([SearchHit("c", "x", "m1", "… sky …")], "a"))
    chats.opened.connect(lambda *what: opened.append(what))
    chats.search.setFocus()
    QTest.keyClicks(chats.search, "sky")
    qtbot.waitUntil(lambda: searched == ["sky"], timeout=10_000)
    QTest.keyClick(chats.search, Qt.Key.Key_Return)
    assert chats.list.hasFocus()
    QTest.keyClick(chats.list, Qt.Key.Key_Return)
    assert opened == [("c", "m1")]
    chats.show_hits([], "a")
    assert chats._nothing.text() == "Nothing was found."


def test_a_chat_is_renamed_in_place(chats: ConversationList, qtbot):
    renamed = []
    chats.renamed.connect(lambda *what: renamed.append(what))
    chats.rename_current()
    editor = chats.list.findChild(QLineEdit)
    editor.setText("  Blue   sky ")
    QTest.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: renamed == [("a", "Blue sky")], timeout=10_000)
    chats.show_chats(ENTRIES, "b")
    assert len(renamed) == 1  # filling the list renames nothing


def test_delete_and_undo(chats: ConversationList):
    deleted, undone = [], []
    chats.delete_requested.connect(deleted.append)
    chats.undo_requested.connect(lambda: undone.append(True))
    chats.list.setFocus()
    QTest.keyClick(chats.list, Qt.Key.Key_Delete)
    assert deleted == ["a"]
    assert chats._undo_bar.isHidden()
    chats.offer_undo("Sky")
    assert "Sky" in chats._undo_words.text()
    chats._undo.click()
    assert undone == [True]
    chats.offer_undo("")
    assert chats._undo_bar.isHidden()


def test_an_empty_list_says_so(chats: ConversationList):
    chats.show_chats((), "")
    assert chats._nothing.isVisible()
    assert chats.current_id == ""
    QTest.keyClick(chats.list, Qt.Key.Key_Delete)
    chats.rename_current()
