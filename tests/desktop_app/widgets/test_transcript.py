"""The rows of the transcript: what they show, and what is asked for with their buttons."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from pilotfish.desktop_app.conversation import Attachment, Message
from pilotfish.desktop_app.themes import DARK
from pilotfish.desktop_app.widgets.transcript import Transcript
from support.shown import REPLY, STATS, chat_of, draw_all, rows_of, visible_buttons, with_text


def test_one_row_for_each_message_and_what_can_be_done(transcript: Transcript):
    question, reply = rows_of(transcript, "A question", REPLY)
    assert visible_buttons(question) == {"Copy", "Edit"}
    assert visible_buttons(reply) == {"Copy", "Regenerate"}


@pytest.mark.parametrize(
    ("fields", "buttons", "notice"),
    [
        ({"state": "streaming"}, {"Copy"}, ""),
        ({"state": "interrupted"}, {"Copy", "Regenerate", "Continue"}, "Interrupted"),
        ({"stats": replace(STATS, finish_reason="length")}, {"Copy", "Regenerate", "Continue"}, ""),
        (
            {"state": "error", "error": "no memory; close a program"},
            {"Copy", "Regenerate"},
            "no memory; close a program",
        ),
        ({"state": "unreadable"}, {"Copy", "Regenerate"}, "damaged"),
    ],
)
def test_states_of_a_reply(transcript: Transcript, fields: dict, buttons: set[str], notice: str):
    row = rows_of(transcript, "A question", "A reply", **fields)[-1]
    assert visible_buttons(row) == buttons
    assert row.notice.isVisible() == bool(notice)
    assert notice in row.notice.text()


def test_while_a_reply_is_written_nothing_is_offered_that_would_get_in_its_way(transcript: Transcript):
    chat = chat_of("a", "b", "c", "", state="streaming")
    transcript.show_conversation(chat)
    assert [visible_buttons(row) for row in transcript.list.rows[:2]] == [{"Copy"}, {"Copy"}]
    assert transcript.list.rows[-1].footer.text() == "Thinking …"
    transcript.update_message(with_text(chat, "done", "complete"), "m3")
    draw_all(transcript)
    assert [visible_buttons(row) for row in transcript.list.rows] == [{"Copy", "Edit"}, {"Copy", "Regenerate"}] * 2


def test_the_footer_says_what_a_reply_cost(transcript: Transcript):
    row = rows_of(transcript, "A question", REPLY, stats=STATS)[-1]
    assert row.footer.text() == (
        "Tiny 1B · 212 tokens · 34.2 tok/s · first token after 0.41 s · 71 % accepted · "
        "1.8× as fast as without speculation · complete · 2 old messages were left out"
    )
    off = replace(STATS, acceptance_rate=None, speed_up=None, speculation="off: there is no draft model", num_dropped=1)
    row = rows_of(transcript, "Another question", REPLY, chat_id="other", stats=off)[-1]
    assert (
        "speculation off because there is no draft model · complete · 1 old message was left out" in row.footer.text()
    )


def test_attachments_are_chips(transcript: Transcript):
    row = rows_of(transcript, "Look", attachments=(Attachment("a.py", "x"), Attachment("notes.txt", "abc" * 500)))[0]
    assert [chip.text() for chip in row.chips] == ["a.py · 1 character", "notes.txt · 1,500 characters"]
    assert all(chip.isVisible() and chip.geometry().bottom() < row.body.parentWidget().y() for chip in row.chips)


def test_a_message_of_the_user_is_shown_as_it_was_written(transcript: Transcript):
    text = "a *b*\n  c\n\n# d\n<b>"
    row = rows_of(transcript, text)[0]
    assert [view.toPlainText() for view in row.body.views] == [text]


def test_buttons_ask_and_do_nothing_themselves(transcript: Transcript, qtbot):
    row = rows_of(transcript, "A question", "cut", state="interrupted")[-1]
    for button, signal in (
        (row.action_bar.regenerate, transcript.regenerate_requested),
        (row.action_bar.continue_, transcript.continue_requested),
    ):
        with qtbot.waitSignal(signal) as asked:
            button.click()
        assert asked.args == ["m1"]


def test_arrows_go_through_the_versions(transcript: Transcript, qtbot):
    chat = chat_of("A question", "first")
    for number in (2, 3):
        chat = chat.with_message(Message(f"v{number}", "m0", "assistant", f"version {number}", 1.0))
    chat = chat.choosing("v2")
    transcript.show_conversation(chat)
    draw_all(transcript)
    bar = transcript.list.rows[-1].action_bar
    assert bar.count.text() == "2 / 3"
    for button, expected in ((bar.next, "v3"), (bar.previous, "m1")):
        with qtbot.waitSignal(transcript.chosen) as chosen:
            button.click()
        assert chosen.args == [expected]
    question = transcript.list.rows[0]
    transcript.show_conversation(chat.choosing("v3"))
    draw_all(transcript)
    assert transcript.list.rows[0] is question
    assert transcript.list.rows[-1].action_bar.count.text() == "3 / 3"
    assert transcript.list.rows[-1].body.views[0].toPlainText() == "version 3"


def test_editing_by_keyboard(transcript: Transcript, qtbot):
    row = rows_of(transcript, "old words", "reply")[0]
    row.action_bar.edit.click()
    QTest.keyClick(row.editor.field, Qt.Key.Key_Escape)
    assert row.editor is None
    row.action_bar.edit.click()
    field = row.editor.field
    assert field.hasFocus()
    QTest.keyClicks(field, "new")
    QTest.keyClick(field, Qt.Key.Key_Return)
    QTest.keyClicks(field, "words")
    with qtbot.waitSignal(transcript.edit_requested) as edited:
        QTest.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert edited.args == ["m0", "new\nwords"]
    assert row.editor is None


def test_an_edit_without_words_is_not_sent_and_one_survives_a_change_of_looks(transcript: Transcript, qtbot):
    row = rows_of(transcript, "old words")[0]
    row.action_bar.edit.click()
    row.editor.field.setPlainText(" ")
    with qtbot.assertNotEmitted(transcript.edit_requested):
        QTest.keyClick(row.editor.field, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    row.editor.field.setPlainText("half way")
    transcript.set_colours(DARK)
    assert transcript.list.rows[0] is not row
    assert transcript.list.rows[0].editor.text == "half way"
