from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.desktop_app.overflow import fit, prompt_limit
from pilotfish.runtime import ContextOverflowError


def chat(lengths: list[int], system: int = 0) -> list[dict[str, str]]:
    messages = [{"role": "system", "content": "s" * system}] if system else []
    for number, length in enumerate(lengths):
        messages.append({"role": ("user", "assistant")[number % 2], "content": "x" * length})
    return messages


def count(messages) -> int:
    return sum(len(message["content"]) for message in messages)


def test_what_fits_is_left_alone():
    messages = chat([3, 4, 5], system=2)
    for policy in ("stop", "drop"):
        fitted = fit(messages, 14, policy, count)
        assert (list(fitted.messages), fitted.num_tokens, fitted.num_dropped) == (messages, 14, 0)


def test_stop_refuses_and_says_what_to_do():
    with pytest.raises(ContextOverflowError, match="12 tokens long and 11 fit; begin a new chat"):
        fit(chat([3, 4, 5]), 11, "stop", count)


def test_drop_leaves_whole_old_turns_out_and_keeps_the_system_prompt():
    messages = chat([30, 4, 5, 6, 7], system=2)
    fitted = fit(messages, 20, "drop", count)
    assert list(fitted.messages) == [messages[0], *messages[3:]]
    assert (fitted.num_tokens, fitted.num_dropped) == (20, 2)


def test_a_last_message_that_is_too_long_by_itself_is_refused():
    with pytest.raises(ContextOverflowError, match="last message is 21 tokens long"):
        fit(chat([1, 1, 19], system=2), 20, "drop", count)
    with pytest.raises(ContextOverflowError, match="last message is 21 tokens long"):
        fit(chat([21]), 20, "drop", count)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=21).filter(lambda lengths: len(lengths) % 2), st.integers(9, 99)
)
def test_as_few_turns_are_dropped_as_must_be(lengths: list[int], limit: int):
    messages = chat(lengths)
    fitted = fit(messages, limit, "drop", count)
    assert list(fitted.messages) == messages[fitted.num_dropped :]
    assert fitted.messages[0]["role"] == "user"
    assert fitted.num_tokens == count(fitted.messages) <= limit
    if fitted.num_dropped:
        assert count(messages[fitted.num_dropped - 2 :]) > limit


def test_room_for_the_reply_is_at_most_a_quarter():
    assert prompt_limit(4096, 512) == 4096 - 512
    assert prompt_limit(400, 512) == 300
    assert prompt_limit(400, 0) == 399
