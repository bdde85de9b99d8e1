from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.desktop_app.codec import decoded, encoded
from pilotfish.desktop_app.conversation import (
    Attachment,
    Conversation,
    Message,
    Span,
    as_unicode,
    merged_spans,
    prompt_of,
    title_from,
    with_new_ids,
)
from pilotfish.desktop_app.errors import ConversationError, FormatError


def message(message_id: str, parent_id: str | None = None, role: str = "user", **more) -> Message:
    return Message(message_id, parent_id, role, f"text of {message_id}", 1.0, **more)


def branched() -> Conversation:
    """Two answers to one question, the second of which was asked about twice."""
    chat = Conversation("c", 1.0)
    for each in (
        message("q"), message("a1", "q", "assistant"), message("a2", "q", "assistant"),
        message("q2", "a2"), message("q2b", "a2"), message("b", "q2b", "assistant"),
    ):  # fmt: skip
        chat = chat.with_message(each)
    return chat


def ids(messages) -> list[str]:
    return [each.id for each in messages]


def test_the_newest_branch_is_shown():
    assert ids(branched().path) == ["q", "a2", "q2b", "b"]


def test_choosing_a_sibling_keeps_what_was_shown_below_the_other():
    chat = branched().choosing("q2").choosing("a1")
    assert ids(chat.path) == ["q", "a1"]
    assert ids(chat.choosing("a2").path) == ["q", "a2", "q2"]
    assert ids(chat.siblings("a1")) == ["a1", "a2"]
    assert chat.messages == branched().messages


def test_a_message_added_to_a_hidden_branch_is_shown():
    chat = branched().choosing("a1").with_message(message("q3", "q2"))
    assert ids(chat.path) == ["q", "a2", "q2", "q3"]


def test_the_first_message_can_be_edited_too():
    chat = branched().with_message(message("other"))
    assert ids(chat.path) == ["other"]
    assert ids(chat.choosing("q").path) == ["q", "a2", "q2b", "b"]


def test_a_reply_grows_in_place():
    chat = branched()
    grown = chat.with_replaced(replace(chat.message("b"), text="more", state="streaming"))
    assert ids(grown.path) == ids(chat.path)
    assert grown.path[-1].text == "more"
    with pytest.raises(ConversationError, match="cannot move"):
        chat.with_replaced(message("b", "q2"))


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ((message("a"), message("a")), "two messages"),
        ((message("b", "a"), message("a")), "comes before"),
        ((message("a", "a"),), "comes before"),
    ],
)
def test_what_is_no_tree_is_refused(messages, fault):
    with pytest.raises(ConversationError, match=fault):
        Conversation("c", 1.0, messages=messages)


def test_an_unknown_role_state_or_id_is_refused():
    with pytest.raises(ConversationError, match="role"):
        message("a", role="robot")
    with pytest.raises(ConversationError, match="state"):
        message("a", state="tired")
    for fails in (branched().message, branched().siblings, branched().choosing):
        with pytest.raises(ConversationError, match="not in"):
            fails("nowhere")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=30))
def test_any_added_or_chosen_message_is_on_the_path_and_none_is_lost(steps):
    chat = Conversation("c", 1.0)
    for number, (parent, chosen) in enumerate(steps):
        known = ids(chat.messages)
        chat = chat.with_message(message(str(number), known[parent] if parent < len(known) else None))
        assert chat.path[-1].id == str(number)
        assert ids(chat.messages) == [*known, str(number)]
        if chosen <= number:
            chat = chat.choosing(str(chosen))
            assert chat.message(str(chosen)) in chat.path
            assert chat.path == chat.path_to(chat.path[-1].id)


def test_new_ids_keep_the_tree():
    chat = branched().choosing("q2").choosing("a1")
    copy = with_new_ids(chat)
    assert not set(ids(copy.messages)) & set(ids(chat.messages))
    assert [each.text for each in copy.path] == [each.text for each in chat.path]
    again = copy.choosing(copy.messages[2].id)
    assert [each.text for each in again.path] == ["text of q", "text of a2", "text of q2"]


def test_the_prompt_has_the_attachments_and_leaves_out_what_cannot_be_read():
    attached = replace(message("q"), attachments=(Attachment("a.md", "```\ncode\n```"),))
    path = (attached, message("x", "q", "assistant", state="unreadable"), message("y", "x", "assistant"))
    system, user, reply = prompt_of(path, "be brief")
    assert system == {"role": "system", "content": "be brief"}
    assert user["content"] == "text of q\n\na.md:\n````\n```\ncode\n```\n````"
    assert reply == {"role": "assistant", "content": "text of y"}
    assert len(prompt_of(path, " ")) == 2


def test_spans_of_one_origin_become_one():
    spans = (Span("target", 2), Span("model", 0), Span("target", 1), Span("model", 4), Span("model", 1))
    assert merged_spans(spans) == (Span("target", 3), Span("model", 5))


def test_titles_are_short_and_end_at_a_word():
    assert title_from("  Why is\nthe sky blue? ") == "Why is the sky blue?"
    assert title_from("word " * 50) == "word " * 11 + "word…"


def test_titles_are_words_not_markdown():
    assert title_from("Here is my class:\n```python\nclass Stack:\n    pass\n```\nmend it") == "Here is my class"
    assert title_from("```python\nprint(1)\n```") == "python print(1)"
    assert title_from("# A **bold** plan with `code`") == "A bold plan with code"
    assert title_from("> #") == ""


def test_half_surrogate_pairs_are_replaced():
    assert as_unicode("a\ud83dz 🦈 é") == "a\ufffdz 🦈 é"


def test_json_gives_the_same_conversation():
    chat = branched().choosing("a1")
    assert decoded(Conversation, encoded(chat)) == chat


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"id": 3}, "id is not a text"),
        ({"messages": {}}, "messages is not a list"),
        ({"messages": [7]}, r"messages\[0\] is not an object"),
        ({"messages": [{"id": "a"}]}, r"messages\[0\]\.parent_id is missing"),
        ({"created_s": float("nan")}, "finite"),
        ({"created_s": 10**400}, "finite"),
        ({"created_s": True}, "not a number"),
        ({"title": "\ud800"}, "surrogate"),
        ({"colour": "red"}, "colour is unknown"),
    ],
)
def test_json_of_another_form_is_refused_with_its_place(change, fault):
    with pytest.raises(FormatError, match=fault):
        decoded(Conversation, encoded(branched()) | change)
