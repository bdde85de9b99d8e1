"""Drafts by copying what followed the longest earlier occurrence of the text's end, found by a suffix automaton."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pilotfish.runtime.drafters.proposal import Proposal, certain, never
from pilotfish.runtime.sampling import Sampler

SHORTEST_MATCH = 2
MOST_REMEMBERED = 200_000  # tokens; an automaton of that many takes some 100 MB
# How far up an occurrence is made known. Only a run of one token, or of one pattern, has more ancestors; what a shorter
# match then copies is an earlier occurrence.
_ANCESTORS = 64


class SuffixAutomaton:
    """All substrings of a growing list of tokens, in linear size and amortized linear time.

    Source: Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985). Each state stands for the
    substrings that end at the same positions; its link leads to the longest suffix that also ends elsewhere.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self.tokens: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._latest_end = [-1]
        self._last = 0

    def append(self, token_id: int) -> None:
        """Adds a token at the end."""
        self._make_known(len(self.tokens) - 1)
        self.tokens.append(token_id)
        new = self._add({}, self._length[self._last] + 1, len(self.tokens) - 1)
        state = self._last
        while state >= 0 and token_id not in self._next[state]:
            self._next[state][token_id] = new
            state = self._link[state]
        self._link[new] = 0 if state < 0 else self._split(state, token_id)
        self._last = new

    def longest_repeat(self) -> tuple[int, int]:
        """Length of the longest suffix that stands earlier too, and where the latest ends; (0, −1) if none does."""
        state = self._link[self._last]
        return (self._length[state], self._latest_end[state]) if state > 0 else (0, -1)

    def _split(self, state: int, token_id: int) -> int:
        """The state of exactly the longest string of `state` with the token added; made apart if it is shared."""
        following = self._next[state][token_id]
        if self._length[following] == self._length[state] + 1:
            return following
        clone = self._add(dict(self._next[following]), self._length[state] + 1, self._latest_end[following])
        self._link[clone] = self._link[following]
        self._link[following] = clone
        while state >= 0 and self._next[state].get(token_id) == following:
            self._next[state][token_id] = clone
            state = self._link[state]
        return clone

    def _add(self, following: dict[int, int], length: int, end: int) -> int:
        self._next.append(following)
        self._link.append(-1)
        self._length.append(length)
        self._latest_end.append(end)
        return len(self._link) - 1

    def _make_known(self, end: int) -> None:
        """Notes that the suffixes of the last token ended there. Done one token late: a repeat is an earlier one."""
        state = self._last
        for _ in range(_ANCESTORS):
            if state <= 0:
                break
            self._latest_end[state] = end
            state = self._link[state]


class SuffixDrafter:
    """Copies from prompt and output, and from earlier conversations if it is to remember them. Costs no model."""

    origin = "suffix"

    def __init__(self, vocab_size: int, *, remembers: bool = False) -> None:
        """`vocab_size` is the width of a proposal's rows; `remembers` keeps the conversations that were left."""
        self._vocab_size = vocab_size
        self._remembers = remembers
        self._automaton = SuffixAutomaton()
        self._start = 0  # where the present conversation begins among the automaton's tokens
        self._num_left = 0

    def match_length(self, committed: Sequence[int]) -> int:
        """How many of the last committed tokens stand earlier too; the longer, the surer is what follows."""
        self._follow(committed)
        return self._automaton.longest_repeat()[0]

    def propose(
        self,
        committed: Sequence[int],
        num_draft_tokens: int,
        sampler: Sampler,
        rng: np.random.Generator,
        should_stop: Callable[[Sequence[float]], bool] = never,
    ) -> Proposal:
        """What followed the latest occurrence of the longest matching end; none if fewer than two tokens match."""
        length = self.match_length(committed)
        if length < SHORTEST_MATCH:
            return certain((), self._vocab_size, self.origin)
        position = self._automaton.longest_repeat()[1] + 1
        tokens, drafted = self._automaton.tokens, list[int]()
        while len(drafted) < num_draft_tokens:
            # An occurrence that overlaps the end goes on as what was drafted from it: a period repeats.
            token_id = tokens[position] if position < len(tokens) else drafted[position - len(tokens)]
            if token_id < 0:  # where a remembered conversation ends
                break
            drafted.append(token_id)
            position += 1
        return certain(tuple(drafted), self._vocab_size, self.origin)

    def rollback(self, length: int) -> None:
        """Forgets the tokens after the first `length`, or leaves them behind as a conversation of their own."""
        if length >= len(self._automaton.tokens) - self._start:
            return
        if not self._remembers or len(self._automaton.tokens) > MOST_REMEMBERED:
            self._automaton = SuffixAutomaton()
        else:
            self._num_left += 1
            self._automaton.append(-self._num_left)  # occurs once, so no match reaches over it
        self._start = len(self._automaton.tokens)

    def _follow(self, committed: Sequence[int]) -> None:
        for token_id in committed[len(self._automaton.tokens) - self._start :]:
            self._automaton.append(token_id)
