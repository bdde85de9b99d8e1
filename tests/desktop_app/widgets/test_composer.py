"""Writing a message: Enter, input methods, large pastes, files, and the meter."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QGuiApplication, QInputMethodEvent
from PySide6.QtTest import QTest

from pilotfish.desktop_app.attachments import LARGE_PASTE
from pilotfish.desktop_app.conversation import Attachment
from pilotfish.desktop_app.drafts import Draft
from pilotfish.desktop_app.protocol import Counted
from pilotfish.desktop_app.themes import DARK, LIGHT
from pilotfish.desktop_app.widgets import composer_editor
from pilotfish.desktop_app.widgets.composer import Composer

SHIFT = Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def composer(qtbot) -> Composer:
    composer = Composer()
    qtbot.addWidget(composer)
    composer.resize(600, 200)
    composer.show()
    composer.sent_messages = []
    composer.sent.connect(lambda text, attachments: composer.sent_messages.append((text, attachments)))
    return composer


def press(composer: Composer, modifiers=Qt.KeyboardModifier.NoModifier, key=Qt.Key.Key_Return) -> None:
    QTest.keyClick(composer.editor, key, modifiers)


def compose(composer: Composer, preedit: str, commit: str = "") -> None:
    event = QInputMethodEvent(preedit, [])
    event.setCommitString(commit)
    QGuiApplication.sendEvent(composer.editor, event)


def test_enter_sends_and_shift_enter_begins_a_line(composer: Composer):
    QTest.keyClicks(composer.editor, "one")
    press(composer, SHIFT)
    QTest.keyClicks(composer.editor, "two")
    assert composer.sent_messages == []
    press(composer)
    assert composer.sent_messages == [("one\ntwo", ())]
    assert composer.draft.is_empty
    QTest.keyClicks(composer.editor, "keypad")
    press(composer, Qt.KeyboardModifier.KeypadModifier, Qt.Key.Key_Enter)
    assert composer.sent_messages[1:] == [("keypad", ())]
    press(composer)
    QTest.keyClicks(composer.editor, "  ")
    press(composer)
    assert len(composer.sent_messages) == 2  # nothing but space is no message


def test_enter_while_a_candidate_is_open_never_sends(composer: Composer):
    QTest.keyClicks(composer.editor, "hello ")
    compose(composer, "ni hao")
    press(composer)
    assert composer.sent_messages == []
    assert "\n" not in composer.editor.toPlainText()


def test_the_enter_that_confirms_a_candidate_does_not_send_and_the_next_does(
    composer: Composer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(composer_editor, "CONFIRM_MS", 10**6)
    compose(composer, "ni hao")
    compose(composer, "", "你好")
    press(composer)  # delivered as a key after the commit, as some platforms do
    assert composer.sent_messages == []
    assert composer.editor.toPlainText() == "你好"
    press(composer)
    assert composer.sent_messages == [("你好", ())]


def test_a_commit_by_space_does_not_swallow_a_later_enter(composer: Composer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(composer_editor, "CONFIRM_MS", 1)
    compose(composer, "ni hao")
    compose(composer, "", "你好")
    time.sleep(0.01)
    press(composer)
    assert composer.sent_messages == [("你好", ())]


def test_nothing_is_sent_while_a_reply_is_written_or_something_is_in_the_way(composer: Composer):
    QTest.keyClicks(composer.editor, "next question")
    composer.set_busy(True)
    stops = []
    composer.stop_requested.connect(lambda: stops.append(True))
    press(composer)
    composer._send.click()
    assert (composer.sent_messages, stops) == ([], [True])
    assert composer._send.accessibleName() == "Stop"
    composer.set_busy(False)
    composer.set_obstacle("Choose a model first.")
    press(composer)
    assert composer.sent_messages == []
    assert composer._notice.text() == "Choose a model first."
    assert composer.editor.toPlainText() == "next question"
    composer.set_obstacle("")
    press(composer)
    assert len(composer.sent_messages) == 1


def test_the_field_grows_with_its_text_and_then_scrolls(composer: Composer):
    heights = []
    for num_lines in (1, 2, 5, 10, 40):
        composer.editor.setPlainText("\n".join(["word"] * num_lines))
        heights.append(composer.editor.sizeHint().height())
    assert heights == sorted(heights)
    assert heights[0] < heights[1] < heights[2] < heights[3] == heights[4]
    composer.editor.setPlainText("long " * 200)  # one paragraph that wraps
    assert composer.editor.sizeHint().height() > heights[1]


def paste(composer: Composer, text: str) -> None:
    data = QMimeData()
    data.setText(text)
    composer.editor.insertFromMimeData(data)


def test_a_megabyte_becomes_an_attachment_at_once(composer: Composer):
    def cost(text: str) -> float:
        started = time.perf_counter()
        paste(composer, text)
        QGuiApplication.processEvents()
        return time.perf_counter() - started

    small = min(cost("w " * (LARGE_PASTE // 2)) for _ in range(3))
    composer.set_draft(Draft())
    large = min(cost("w" * 1_000_000) for _ in range(3))
    assert large < 20 * small  # fifty times the text; one layout of it in the field takes seconds
    assert composer.editor.toPlainText() == ""
    assert [len(each.text) for each in composer.chips.attachments] == [1_000_000] * 3
    assert len({each.name for each in composer.chips.attachments}) == 3
    assert composer._as_text.isHidden()  # too large for the field
    composer.submit()
    ((text, attachments),) = composer.sent_messages
    assert (text, len(attachments)) == ("", 3)


def test_a_long_paste_can_be_put_into_the_message_all_the_same(composer: Composer):
    paste(composer, "short")
    assert composer.editor.toPlainText() == "short"
    text = "x" * LARGE_PASTE
    paste(composer, text)
    assert composer.chips.attachments == (Attachment("pasted text.txt", text),)
    assert "attached" in composer._notice.text()
    composer._as_text.click()
    assert composer.chips.attachments == ()
    assert composer.editor.toPlainText() == "short" + text


def test_files_are_attached_by_drop_and_refused_with_a_reason(composer: Composer, tmp_path: Path):
    (tmp_path / "code.py").write_text("print('hi')\r\n", encoding="utf-8", newline="")
    (tmp_path / "wide.txt").write_text("Grüße", encoding="utf-16")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    (tmp_path / "large.txt").write_bytes(b"x" * ((4 << 20) + 1))
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path / name)) for name in ("code.py", "wide.txt")])
    actions, buttons = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    enter = QDragEnterEvent(QPoint(5, 5), actions, data, buttons, Qt.KeyboardModifier.NoModifier)
    composer.editor.dragEnterEvent(enter)
    assert enter.isAccepted()
    composer.editor.dropEvent(QDropEvent(QPointF(5, 5), actions, data, buttons, Qt.KeyboardModifier.NoModifier))
    expected = (Attachment("code.py", "print('hi')\n"), Attachment("wide.txt", "Grüße"))
    assert composer.chips.attachments == expected
    for name, reason in (("picture.png", "not a text file"), ("latin.txt", "UTF-8"), ("large.txt", "over 4 MB"),
                         ("missing.txt", "No such file")):  # fmt: skip
        composer.attach([tmp_path / name])
        assert name.split(".")[0] in composer._notice.text().lower()
        assert reason in composer._notice.text()
    assert composer.chips.attachments == expected
    composer.chips.remove(composer.chips.attachments[0])
    assert composer.chips.attachments == expected[1:]
    assert "Grüße" in composer.prompt_text


def test_the_text_is_told_once_after_a_pause(composer: Composer, qtbot):
    texts = []
    composer.text_changed.connect(texts.append)
    QTest.keyClicks(composer.editor, "hello")
    assert texts == []
    qtbot.waitUntil(lambda: texts == ["hello"], timeout=10_000)


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_the_meter_says_in_words_what_its_colour_says(composer: Composer, colours):
    composer.set_colours(colours)
    assert composer.meter.isHidden()
    for counted, words, ink in (
        (Counted(1, 100, 1000, 1300, 0, ""), "100 of 1,000 tokens", colours.muted),
        (Counted(1, 990, 1000, 1300, 0, ""), "990 of 1,000 tokens", colours.warning),
        (Counted(1, 900, 1000, 1300, 4, ""), "4 oldest messages left out", colours.warning),
        (Counted(1, 2000, 1000, 1300, 0, "it is too long; shorten it"), "too long", colours.error),
    ):
        composer.set_meter(counted, "drop")
        assert words in composer.meter.text
        assert ink in composer.meter._label.styleSheet()
        assert words in composer.meter.accessibleName()
    assert "shorten it" in composer.meter.toolTip()
    composer.set_meter(Counted(1, 100, 1000, 1300, 0, ""), "stop")
    assert "nothing is sent" in composer.meter.toolTip()
    composer.set_meter(Counted(1, 100, 1000, 1300, 0, ""), "drop")
    assert "left out" in composer.meter.toolTip()
    composer.set_meter(None)
    assert composer.meter.isHidden()
