"""The suffix automaton finds what a search through the whole text finds, in linear size, whatever was left behind."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pilotfish import runtime as pilotfish
from pilotfish.runtime import GenerationOptions, SamplingParams
from pilotfish.runtime.drafters import suffix
from pilotfish.runtime.drafters.suffix import SHORTEST_MATCH, SuffixAutomaton, SuffixDrafter
from pilotfish.runtime.sampling import Sampler

VOCAB_SIZE = 8
SAMPLER = Sampler(SamplingParams(), 0, frozenset())
TEXTS = st.integers(1, 4).flatmap(lambda size: st.lists(st.integers(0, size - 1), max_size=60))


def automaton_of(tokens: Sequence[int]) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    for token_id in tokens:
        automaton.append(token_id)
    return automaton


def longest_repeat(tokens: list[int]) -> tuple[int, int]:
    """What the automaton is to find, by trying all lengths and places."""
    for length in range(len(tokens) - 1, 0, -1):
        for end in range(len(tokens) - 2, length - 2, -1):
            if tokens[end - length + 1 : end + 1] == tokens[-length:]:
                return length, end
    return 0, -1


def are_few_nested(tokens: Sequence[int]) -> bool:
    """Whether the automaton makes each new end known to all the repeats that end there."""
    automaton = SuffixAutomaton()
    for token_id in tokens:
        automaton.append(token_id)
        state, number = automaton._last, 0
        while state > 0:
            state, number = automaton._link[state], number + 1
        if number > suffix._ANCESTORS:
            return False
    return True


def proposed(drafter: SuffixDrafter, committed: list[int], num_draft_tokens: int) -> tuple[int, ...]:
    proposal = drafter.propose(committed, num_draft_tokens, SAMPLER, np.random.default_rng(0))
    assert proposal.origins == ("suffix",) * len(proposal.token_ids)
    np.testing.assert_array_equal(proposal.probs, np.eye(VOCAB_SIZE)[list(proposal.token_ids)])
    return proposal.token_ids


@given(TEXTS)
def test_the_longest_repeat_is_the_one_that_a_search_finds(tokens: list[int]):
    automaton = SuffixAutomaton()
    for number, token_id in enumerate(tokens, 1):
        automaton.append(token_id)
        length, end = automaton.longest_repeat()
        assert length == longest_repeat(tokens[:number])[0]
        if length:
            assert end < number - 1
            assert tokens[end - length + 1 : end + 1] == tokens[number - length : number]


@given(TEXTS)
def test_the_occurrence_is_the_latest_one_where_few_repeats_are_nested(tokens: list[int]):
    assume(are_few_nested(tokens))
    automaton = SuffixAutomaton()
    for number, token_id in enumerate(tokens, 1):
        automaton.append(token_id)
        assert automaton.longest_repeat() == longest_repeat(tokens[:number])


@pytest.mark.parametrize("number", [9, 12, 60])
def test_the_occurrence_is_the_latest_one_after_a_long_run(number: int):
    tokens = [0] * number + [1, 0, 0]
    assert automaton_of(tokens).longest_repeat() == longest_repeat(tokens)


def test_after_a_longer_run_it_is_one_of_the_earlier_occurrences():
    tokens = [0] * 200 + [1, 0, 0]
    length, end = automaton_of(tokens).longest_repeat()
    assert length == longest_repeat(tokens)[0] == 2
    assert tokens[end - 1 : end + 1] == [0, 0]
    assert end < len(tokens) - 1


def assert_linear(tokens: list[int]) -> None:
    """The bounds of Blumer et al. 1985 for n > 2 tokens: 2n − 1 states and 3n − 4 transitions."""
    automaton = automaton_of(tokens)
    assert len(automaton._next) <= 2 * len(tokens) - 1
    assert sum(map(len, automaton._next)) <= 3 * len(tokens) - 4


@pytest.mark.parametrize("alphabet", [1, 2, 4, 1000])
@pytest.mark.parametrize("number", [10, 100, 3000])
def test_its_size_grows_with_the_text_and_no_faster(alphabet: int, number: int):
    rng = random.Random(alphabet)
    assert_linear([rng.randrange(alphabet) for _ in range(number)])
    assert_linear([0] + [1] * (number - 1))  # the text with the most states
    assert_linear([0] + [1] * (number - 2) + [2])  # and the one with the most transitions


@given(TEXTS, st.integers(1, 12))
@example([1, 2, 3, 1, 2], 9)
def test_the_proposal_goes_on_as_the_latest_occurrence_did(tokens: list[int], num_draft_tokens: int):
    assume(are_few_nested(tokens))
    length, end = longest_repeat(tokens)
    found = proposed(SuffixDrafter(VOCAB_SIZE), tokens, num_draft_tokens)
    assert len(found) == (num_draft_tokens if length >= SHORTEST_MATCH else 0)
    text = [*tokens, *found]
    for position in range(len(tokens), len(text)):
        assert text[position] == text[position - (len(tokens) - 1 - end)]


def test_a_proposal_copies_what_stands_behind_and_goes_on_with_a_period():
    assert proposed(SuffixDrafter(VOCAB_SIZE), [1, 2, 3, 4, 5, 1, 2], 3) == (3, 4, 5)
    assert proposed(SuffixDrafter(VOCAB_SIZE), [1, 2, 3, 7, 1, 2, 4, 1, 2], 2) == (4, 1)  # the later one
    assert proposed(SuffixDrafter(VOCAB_SIZE), [3, 1, 2, 1, 2], 5) == (1, 2, 1, 2, 1)
    assert proposed(SuffixDrafter(VOCAB_SIZE), [1, 2, 3, 1], 5) == ()  # a single token is no match


# What happens to a drafter: tokens are committed, a round fails, another conversation keeps some of the tokens.
STEPS = st.lists(
    st.tuples(st.sampled_from(["commit", "commit", "fail", "leave"]), st.lists(st.integers(0, 2), max_size=6),
              st.integers(0, 30)),
    max_size=12,
)  # fmt: skip


@pytest.mark.parametrize("remembers", [False, True])
@given(steps=STEPS)
def test_a_match_is_right_after_any_rollbacks(remembers: bool, steps: list[tuple[str, list[int], int]]):
    drafter, committed, left = SuffixDrafter(3, remembers=remembers), list[int](), list[int]()
    followed: list[int] = []
    for kind, tokens, number in steps:
        if kind == "commit":
            committed = [*committed, *tokens]
        elif kind == "fail" or number >= len(committed):
            number = max(len(committed) - 1, 0)
        if kind != "commit":
            if number < len(followed):
                left += [*followed, -1 - len(left)] if remembers else []
                followed = []
            drafter.rollback(number)
            committed = committed if kind == "fail" else [*committed[:number], *tokens]
        assert drafter.match_length(committed) == longest_repeat([*left, *committed])[0]
        followed = list(committed)


def test_a_conversation_that_was_left_is_remembered_only_where_that_was_asked_for():
    for remembers, expected in ((False, ()), (True, (3, 4, 5))):
        drafter = SuffixDrafter(VOCAB_SIZE, remembers=remembers)
        assert proposed(drafter, [1, 2, 3, 4, 5], 3) == ()
        drafter.rollback(0)
        assert proposed(drafter, [6, 1, 2], 8) == expected  # and nothing from behind the end of the one that was left


def test_a_rollback_to_what_was_committed_forgets_nothing():
    drafter = SuffixDrafter(VOCAB_SIZE)
    drafter.match_length([1, 2, 3, 1])
    drafter.rollback(4)
    assert proposed(drafter, [1, 2, 3, 1, 2], 1) == (3,)


def test_too_much_memory_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(suffix, "MOST_REMEMBERED", 20)
    drafter = SuffixDrafter(VOCAB_SIZE, remembers=True)
    for _ in range(10):
        drafter.match_length([1, 2, 3, 4, 5, 6])
        drafter.rollback(0)
        assert len(drafter._automaton.tokens) <= 21 + 6
    drafter.match_length(list(range(8)) * 3)
    drafter.rollback(0)
    assert proposed(drafter, [1, 2], 3) == ()


@pytest.mark.parametrize("remembers", [False, True])
def test_an_engine_copies_from_the_conversation_before_if_it_may(bundle_path: Path, remembers: bool):
    prompt, options = "鮫の前を泳ぐ", GenerationOptions(max_tokens=40, draft="suffix")
    with pilotfish.load(bundle_path, remembers=remembers) as engine:
        first = [token_id for chunk in engine.generate(prompt, options) for token_id in chunk.token_ids]
        num_accepted = engine.stats.num_accepted
        engine.reset()
        again = [token_id for chunk in engine.generate(prompt, options) for token_id in chunk.token_ids]
        assert again == first
        if remembers:
            assert engine.stats.num_accepted > max(num_accepted, 25)
        else:
            assert engine.stats.num_accepted == num_accepted
