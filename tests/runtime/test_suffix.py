"""The suffix automaton finds what a search through all earlier text would, and drafts what followed there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.runtime.drafters.suffix import SuffixAutomaton, SuffixDrafter

TOKENS = st.lists(st.integers(0, 3), max_size=60)


def longest_repeat(tokens: list[int]) -> int:
    """By trying all lengths."""
    for length in range(len(tokens) - 1, 0, -1):
        if any(tokens[i : i + length] == tokens[-length:] for i in range(len(tokens) - length)):
            return length
    return 0


def drafted(drafter: SuffixDrafter, committed: list[int], num_draft_tokens: int) -> tuple[int, ...]:
    return drafter.propose(committed, num_draft_tokens, None, np.random.default_rng(0)).token_ids


@given(tokens=TOKENS)
def test_the_longest_repeat_is_that_of_an_exhaustive_search(tokens: list[int]):
    automaton = SuffixAutomaton()
    for count, token_id in enumerate(tokens, 1):
        automaton.append(token_id)
        length, end = automaton.longest_repeat()
        assert length == longest_repeat(tokens[:count])
        if length:
            assert end < count - 1
            assert tokens[end - length + 1 : end + 1] == tokens[count - length : count]


@pytest.mark.parametrize("alphabet", [1, 2, 50])
def test_states_and_transitions_grow_linearly(alphabet: int):
    automaton = SuffixAutomaton()
    for token_id in np.random.default_rng(0).integers(0, alphabet, 4000).tolist():
        automaton.append(token_id)
    assert len(automaton._link) <= 2 * 4000
    assert sum(len(following) for following in automaton._next) <= 3 * 4000


@given(tokens=TOKENS.filter(lambda tokens: len(tokens) > 2), keep=st.integers(0, 60), others=TOKENS)
def test_after_a_rollback_it_knows_only_what_stands(tokens: list[int], keep: int, others: list[int]):
    kept = tokens[: min(keep, len(tokens))]
    drafter = SuffixDrafter(4)
    drafter.match_length(tokens)
    drafter.rollback(len(kept))
    committed = [*kept, *others]
    assert drafter.match_length(committed) == longest_repeat(committed)


def test_it_drafts_what_followed_and_goes_on_with_a_period():
    drafter = SuffixDrafter(10)
    assert drafted(drafter, [5, 6, 7, 8, 5, 6], 2) == (7, 8)
    assert drafted(SuffixDrafter(10), [1, 2, 3, 1, 2, 3, 1, 2], 7) == (3, 1, 2, 3, 1, 2, 3)
    assert drafted(SuffixDrafter(10), [1, 2, 3, 4], 4) == ()


def test_earlier_conversations_are_remembered_only_if_asked_for():
    for remembers, expected in ((False, ()), (True, (3, 4))):
        drafter = SuffixDrafter(10, remembers=remembers)
        drafter.match_length([1, 2, 3, 4])
        drafter.rollback(0)
        assert drafted(drafter, [9, 1, 2], 5) == expected
