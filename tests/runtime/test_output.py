"""Stop strings: never shown, not even in part, whatever the tokens are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.output import Output
from pilotfish.runtime.tokenizer import Tokenizer

SHORT_TEXT = st.text(alphabet="ab\N{SHARK}", max_size=30)


@pytest.fixture(scope="module")
def tokenizer(bundle_path: Path) -> Tokenizer:
    return Tokenizer(load_bundle(bundle_path))


def shown(tokenizer: Tokenizer, text: str, stops: list[str]) -> tuple[str, str | None]:
    output = Output(tokenizer, stops)
    for token_id in tokenizer.encode(text):
        if output.commit(token_id):
            break
    return "".join(output.take()) + output.flush(), output.finish_reason


@given(text=SHORT_TEXT, stops=st.lists(st.text(alphabet="ab\N{SHARK}", min_size=1, max_size=4), max_size=3))
def test_text_ends_where_the_first_stop_string_begins(tokenizer: Tokenizer, text: str, stops: list[str]):
    # The stop string that is complete first ends the text; among those complete with the same token, the earliest.
    result, reason = shown(tokenizer, text, stops)
    assert text.startswith(result)
    assert not any(stop in result for stop in stops)
    assert reason == ("stop" if any(stop in text for stop in stops) else None)
    if reason is None:
        assert result == text
    else:
        assert any(text[len(result) :].startswith(stop) for stop in stops)


def test_what_may_become_a_stop_string_is_held_back(tokenizer: Tokenizer):
    output = Output(tokenizer, ["aab"])
    pieces = []
    for token_id in tokenizer.encode("xaaac"):
        output.commit(token_id)
        pieces += output.take()
    assert "".join(pieces) == "xaaac"
    assert pieces[:3] == ["x", "", ""]


def test_an_end_token_ends_without_text(tokenizer: Tokenizer):
    output = Output(tokenizer)
    assert not output.commit(tokenizer.encode("a")[0])
    assert output.commit(next(iter(tokenizer.end_token_ids)))
    assert output.take() == ["a", ""]
    assert output.finish_reason == "end"
