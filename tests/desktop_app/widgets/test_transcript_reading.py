"""Reading in the transcript: copying, selecting, scrolling, links, the keyboard, other looks."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QTextCursor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget

from pilotfish.desktop_app.conversation import Message
from pilotfish.desktop_app.themes import DARK, LIGHT
from pilotfish.desktop_app.widgets.code_card import CodeCard
from pilotfish.desktop_app.widgets.theme import apply_theme
from pilotfish.desktop_app.widgets.transcript import Transcript
from support.nasty_markdown import NASTY
from support.shown import REPLY, STATS, chat_of, clipboard, draw_all, rows_of, with_text


def test_copies(transcript: Transcript):
    row = rows_of(transcript, "A question", REPLY)[-1]
    row.action_bar.copy.click()
    assert clipboard() == REPLY
    row.findChildren(CodeCard)[0].copy.click()
    assert clipboard() == "x = 1\n\ny = 2"
    row.body.views[0].setFocus()
    QTest.keyClick(row.body.views[0], Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    QTest.keyClick(row.body.views[0], Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert clipboard() == "First paragraph here.\n1. one\n2. two\nx = 1\n\ny = 2\nLast link."


def test_a_table_is_copied_in_rows_and_long_code_without_new_lines(transcript: Transcript):
    row = rows_of(transcript, "q", "| a | b |\n|---|---|\n| c | d |\n\n" + NASTY["long code line"])[-1]
    views = row.body.views
    views[0].selectAll()
    assert views[0].selected_text() == "a\tb\nc\td"
    views[1].selectAll()
    assert views[1].selected_text() == "z" * 9000 + "\nshort"


def test_a_selection_with_the_pointer_goes_over_blocks(transcript: Transcript):
    row = rows_of(transcript, "A question", REPLY)[-1]
    first, *_, last = row.body.views
    start = first.viewport().mapToGlobal(first.cursorRect(_cursor(first, 6)).center())
    stop = last.viewport().mapToGlobal(last.cursorRect(_cursor(last, 4)).center())
    QTest.mousePress(first.viewport(), Qt.MouseButton.LeftButton, pos=first.viewport().mapFromGlobal(start))
    for point in (stop - QPoint(0, 30), stop):
        first._selecting.extend(first, QPointF(point))
    first.copy_selection()
    assert clipboard() == "paragraph here.\n1. one\n2. two\nx = 1\n\ny = 2\nLast"
    first._selecting.extend(first, QPointF(start + QPoint(400, 0)))
    assert not last.textCursor().hasSelection()
    question = transcript.list.rows[0].body.views[0]
    QTest.mouseClick(question.viewport(), Qt.MouseButton.LeftButton)
    assert not any(view.textCursor().hasSelection() for view in row.body.views[1:])


def _cursor(view, position: int) -> QTextCursor:
    cursor = view.textCursor()
    cursor.setPosition(position)
    return cursor


def test_a_part_is_selected_and_copied_by_keyboard(transcript: Transcript):
    row = rows_of(transcript, "A question", REPLY)[-1]
    row.setFocus(Qt.FocusReason.TabFocusReason)
    QTest.keyClick(row, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert clipboard() == REPLY
    QTest.keyClick(row, Qt.Key.Key_Return)
    view = QApplication.focusWidget()
    for _ in range(5):
        QTest.keyClick(view, Qt.Key.Key_Right, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClick(view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert clipboard() == "First"


def test_page_keys_scroll_when_a_text_has_the_focus(transcript: Transcript):
    view = rows_of(transcript, *["line\n\n" * 30] * 3)[-1].body.views[-1]
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton)
    before = transcript.list.verticalScrollBar().value()
    QTest.keyClick(view, Qt.Key.Key_Up)
    assert transcript.list.verticalScrollBar().value() < before
    QTest.keyClick(view, Qt.Key.Key_PageUp)
    assert transcript.list.verticalScrollBar().value() < before - 300


def test_links_are_opened_by_a_click_only_and_with_their_true_address(transcript: Transcript, qtbot):
    text = "[a](https://example.org/a%20b?q=1) [b](file:///etc/passwd) [c](javascript:alert(1))"
    view = rows_of(transcript, "q", text)[-1].body.views[0]
    seen: list[str] = []
    transcript.link_opened.connect(seen.append)
    for position in (0, 2, 4):
        QTest.mouseClick(
            view.viewport(),
            Qt.MouseButton.LeftButton,
            pos=view.cursorRect(_cursor(view, position)).center() + QPoint(2, 0),
        )
    assert seen == ["https://example.org/a%20b?q=1"]
    assert view.focusPolicy() == Qt.FocusPolicy.StrongFocus
    view.setFocus(Qt.FocusReason.TabFocusReason)
    view.focusNextPrevChild(True)
    QTest.keyClick(view, Qt.Key.Key_Return)
    assert seen == ["https://example.org/a%20b?q=1"] * 2


def test_everything_is_reached_by_tab_in_the_order_in_which_it_is_seen(transcript: Transcript):
    rows_of(transcript, "one", "two", "three", "four [link](https://x.org)")
    transcript.activateWindow()
    transcript.list.rows[0].setFocus(Qt.FocusReason.TabFocusReason)
    visited: list[QWidget] = []
    for _ in range(25):
        if QApplication.focusWidget() not in visited:
            visited.append(QApplication.focusWidget())
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
    buttons = [each for each in transcript.list.widget().findChildren(QAbstractButton) if each.isVisible()]
    assert len(buttons) == 8
    assert set(buttons) <= set(visited)
    inside = [each for each in visited if transcript.list.widget().isAncestorOf(each)]
    tops = [each.mapTo(transcript, QPoint(0, 0)).y() + transcript.list.verticalScrollBar().value() for each in inside]
    assert tops == sorted(tops)


def test_what_takes_the_focus_has_a_name_and_buttons_say_what_they_do(transcript: Transcript):
    row = rows_of(transcript, "A question", REPLY, state="interrupted", stats=STATS)[0]
    row.edit()
    focusable = [
        widget for widget in transcript.findChildren(QWidget)
        if widget.focusPolicy() != Qt.FocusPolicy.NoFocus and widget.isVisible()
    ]  # fmt: skip
    assert len(focusable) > 12
    assert [widget for widget in focusable if not widget.accessibleName()] == []
    buttons = [widget for widget in focusable if isinstance(widget, QAbstractButton)]
    assert [button for button in buttons if not button.toolTip()] == []


def test_the_end_is_followed_only_by_who_is_there(transcript: Transcript):
    chat = chat_of("q", "line\n\n" * 100, state="streaming")
    transcript.show_conversation(chat)
    draw_all(transcript)
    assert transcript.list.is_at_end
    assert not transcript.jump.isVisible()
    transcript.update_message(with_text(chat, "line\n\n" * 120), "m1")
    draw_all(transcript)
    assert transcript.list.is_at_end
    bar = transcript.list.verticalScrollBar()
    bar.setValue(bar.value() - 200)
    before, top = bar.value(), _top_line(transcript)
    transcript.update_message(with_text(chat, "line\n\n" * 140), "m1")
    draw_all(transcript)
    assert (bar.value(), _top_line(transcript)) == (before, top)
    assert transcript.jump.isVisible()
    transcript.jump.click()
    draw_all(transcript)
    assert transcript.list.is_at_end
    assert not transcript.jump.isVisible()


def _top_line(transcript: Transcript) -> tuple[int, int]:
    """Which view is at the top of what is seen, and where."""
    views = [view for row in transcript.list.rows for view in row.body.views]
    tops = [view.mapTo(transcript, QPoint(0, 0)).y() for view in views]
    index = next(index for index, top in enumerate(tops) if top >= 0)
    return index, tops[index]


def test_a_question_that_is_sent_brings_the_end_into_sight(transcript: Transcript):
    chat = chat_of("q", "line\n\n" * 100)
    transcript.show_conversation(chat)
    draw_all(transcript)
    transcript.list.verticalScrollBar().setValue(0)
    chat = chat.with_message(Message("new", "m1", "user", "And now?", 1.0))
    transcript.update_message(chat, "new")
    draw_all(transcript)
    assert transcript.list.is_at_end


def test_a_selection_stays_while_the_reply_goes_on(transcript: Transcript):
    chat = chat_of("q", "first paragraph\n\nopen **paragraph** that", state="streaming")
    transcript.show_conversation(chat)
    draw_all(transcript)
    row = transcript.list.rows[-1]
    for view, start, stop in ((row.body.views[0], 0, 5), (row.body.views[1], 5, 14)):
        cursor = view.textCursor()
        cursor.setPosition(start)
        cursor.setPosition(stop, QTextCursor.MoveMode.KeepAnchor)
        view.setTextCursor(cursor)
    text = "first paragraph\n\nopen **paragraph** that goes on\n\nand on"
    for length in range(40, len(text) + 1):
        transcript.update_message(with_text(chat, text[:length]), "m1")
        draw_all(transcript)
    assert [view.selected_text() for view in row.body.views] == ["first", "paragraph", ""]
    assert row.body.views[0].textCursor().position() == 5


def test_other_colours_and_sizes_show_the_same_place(transcript: Transcript):
    rows_of(transcript, *["line\n\n" * 20] * 10)
    bar = transcript.list.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    draw_all(transcript)
    seen = _seen(transcript)
    for change in (lambda: transcript.set_colours(DARK), lambda: transcript.set_tints(True)):
        change()
        draw_all(transcript)
        assert _seen(transcript) == seen
    ground = transcript.grab().toImage().pixelColor(3, 300).name()
    assert ground == DARK.window
    height = transcript.list.widget().height()
    transcript.set_zoom(1.5)
    draw_all(transcript)
    assert transcript.list.widget().height() > 1.2 * height
    assert transcript.legend.isVisible()
    transcript.set_tints(False)
    assert not transcript.legend.isVisible()


def _seen(transcript: Transcript) -> str:
    """The message at the top of what is seen."""
    return next(
        row.message.id
        for row in transcript.list.rows
        if row.geometry().bottom() > transcript.list.verticalScrollBar().value()
    )


def test_the_zoom_does_not_depend_on_the_size_of_the_application(transcript: Transcript):
    row = rows_of(transcript, "q", "words")[-1]
    before = row.body.views[0].document().defaultFont().pointSizeF()
    apply_theme(QApplication.instance(), "light", 1.5)
    transcript.set_colours(replace(LIGHT, muted="#000000"))
    draw_all(transcript)
    try:
        assert transcript.list.rows[-1].body.views[0].document().defaultFont().pointSizeF() == before
    finally:
        apply_theme(QApplication.instance(), "light")


def test_wide_code_scrolls_sideways_and_a_narrow_window_loses_nothing(transcript: Transcript):
    row = rows_of(transcript, "q", "```\n" + "x" * 500 + "\n```\n\n" + "word " * 100)[-1]
    code, prose = row.body.views
    assert code.horizontalScrollBar().maximum() > 0
    transcript.resize(320, 600)
    draw_all(transcript)
    assert prose.document().size().height() <= prose.height()
    assert prose.document().idealWidth() <= prose.width() <= 320
    assert transcript.list.horizontalScrollBar().maximum() == 0


def test_what_has_changed_in_a_chat_that_is_left_is_forgotten(transcript: Transcript):
    chat = chat_of("q", "", state="streaming")
    transcript.show_conversation(chat)
    transcript.update_message(with_text(chat, "more"), "m1")
    rows = rows_of(transcript, "only one", chat_id="other")
    assert [row.message.text for row in rows] == ["only one"]


def test_an_empty_chat_and_a_lone_surrogate(transcript: Transcript):
    transcript.show_conversation(chat_of())
    draw_all(transcript)
    assert transcript.list.rows == []
    assert len(rows_of(transcript, "half \ud83d", "and \udc1f", chat_id="other")) == 2
