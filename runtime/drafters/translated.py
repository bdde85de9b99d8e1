"""Drafts with a model that has another tokenizer: it reads what was committed as text, and what it writes is text.

Lossless, since a proposal is certain. It is some sequence of target tokens that was fixed before the target was asked,
with one-hot rows: by every rule of `acceptance.py` a token x of such a sequence stands with the target's probability
of x, and otherwise the target's own distribution without x decides. How good the text was only sets how much stands.
The draft writes greedily, for its likeliest text is what has the best chance.

What the draft reads is cut by its own tokenizer. Only the end of the text is cut anew each round, from an *anchor* on:
a place between two words, before which its ids are settled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, takewhile
from math import prod

import numpy as np

from pilotfish.runtime.drafters.model import ModelDrafter
from pilotfish.runtime.drafters.proposal import Proposal, certain, never
from pilotfish.runtime.sampling import Sampler, SamplingParams
from pilotfish.runtime.vocabulary import Vocabulary, valid_beginning, whole_characters

SHORTEST_END, LONGEST_END = 8, 24  # target tokens behind the last anchor
LONGEST_PIECE = 256  # target tokens between two anchors; so much at most is read again where a text begins to differ
MOST_SPACE = 16  # characters of space at the end that the draft is to write again
_GREEDY = Sampler(SamplingParams())


class TranslatedDrafter:
    """A model with ids of its own beside a target: its cache follows the text of `committed`."""

    origin = "model"

    def __init__(self, model: ModelDrafter, target: Vocabulary, draft: Vocabulary, vocab_size: int) -> None:
        """`model` drafts ids of the vocabulary `draft`; `vocab_size` is the width of a proposal's rows."""
        self._model, self._target, self._draft, self._vocab_size = model, target, draft, vocab_size
        # A special token that the draft lacks is read as its name. What begins a text the draft has its own for.
        self._as_read = _counterparts(target, draft) | dict.fromkeys(target.prefix, b"")
        self._as_written = _counterparts(draft, target)
        self._unsayable = draft.specials.keys() - self._as_written.keys()
        self._ids = list(draft.prefix)
        self._anchors = [(0, len(self._ids))]  # target tokens and draft ids before each
        self._num_followed = 0
        self._drafted: tuple[int, ...] = ()
        self._num_whole = [0]

    @property
    def length(self) -> int:
        """Committed target tokens whose text the draft has read, but for the end that it is still to write."""
        return self._num_followed

    def propose(
        self,
        committed: Sequence[int],
        num_draft_tokens: int,
        sampler: Sampler,
        rng: np.random.Generator,
        should_stop: Callable[[Sequence[float]], bool] = never,
    ) -> Proposal:
        """The target tokens of what the draft writes in `num_draft_tokens` of its own, and no more of them than that.

        None where the text that it writes does not begin as `committed` ends, or ends inside a character. The
        confidence of a target token is that of all draft tokens which begin in it.
        """
        unread = self._follow(committed)
        nothing = certain((), self._vocab_size, self.origin)
        if not self._ids:
            return nothing
        drafted = self._model.propose(self._ids, num_draft_tokens, _GREEDY, rng, should_stop)
        written = self._written(drafted.token_ids)
        token_ids, ends = self._tokens_behind(unread, b"".join(written), num_draft_tokens)
        draft_ends = list(accumulate(map(len, written)))
        self._drafted = drafted.token_ids
        self._num_whole = [sum(end <= place for end in draft_ends) for place in (len(unread), *ends)] if ends else [0]
        if not token_ids:
            return nothing
        confidences = _confidences(drafted.confidences, draft_ends, ends)
        return replace(certain(token_ids, self._vocab_size, self.origin), confidences=confidences)

    def rollback(self, length: int) -> None:
        """Keeps what was drafted as far as the first `length` target tokens have it, or goes back to an anchor."""
        if length >= self._num_followed:
            num_accepted = min(length - self._num_followed, len(self._num_whole) - 1)
            self._ids += self._drafted[: self._num_whole[num_accepted]]
            self._num_followed += num_accepted
        else:
            while self._anchors[-1][0] > length:
                self._anchors.pop()
            self._num_followed, num_ids = self._anchors[-1]
            del self._ids[num_ids:]
        self._drafted, self._num_whole = (), [0]
        self._model.rollback(len(self._ids) if length else 0)

    def _follow(self, committed: Sequence[int]) -> bytes:
        """Makes the ids those of the text of `committed`; returns the end of it that the draft is to write itself."""
        start, first = self._anchors[-1]
        ids: list[int] = []
        while len(committed) - start > LONGEST_END:
            end = self._anchor_before(committed, start, min(start + LONGEST_PIECE, len(committed) - SHORTEST_END))
            ids += self._draft.encode(whole_characters(self._read(committed[start:end]))[0])
            start = end
            self._anchors.append((start, first + len(ids)))
        text, unread = _readable(self._read(committed[start:]))
        ids += self._draft.encode(text)
        known = self._ids[first:]
        differing = (i for i, (old, new) in enumerate(zip(known, ids, strict=False)) if old != new)
        num_same = next(differing, min(len(known), len(ids)))
        self._ids[first:] = ids
        self._num_followed = len(committed)
        self._drafted, self._num_whole = (), [0]
        self._model.rollback(max(min(first + num_same, len(self._ids) - 1), 0))
        return unread

    def _anchor_before(self, committed: Sequence[int], start: int, end: int) -> int:
        """The last place of the few up to `end` that is between two words, or else between two characters."""

        def goodness(place: int) -> tuple[int, int]:
            before, behind = self._read(committed[place - 1 : place])[-1:], self._read(committed[place : place + 1])[:1]
            if behind.isspace() and not before.isspace():
                return 2, place
            return int(not behind or behind[0] & 0xC0 != 0x80), place

        return max(range(max(start + 1, end - SHORTEST_END), end + 1), key=goodness)

    def _read(self, token_ids: Sequence[int]) -> bytes:
        """What the draft reads for target tokens."""
        as_read, bytes_of = self._as_read, self._target.bytes_of
        return b"".join(as_read[i] if i in as_read else bytes_of(i) for i in token_ids)

    def _written(self, draft_ids: Sequence[int]) -> list[bytes]:
        """What draft tokens write, up to a special one for which the target has none."""
        sayable = takewhile(lambda i: i not in self._unsayable, draft_ids)
        return [self._as_written.get(i) or self._draft.bytes_of(i) for i in sayable]

    def _tokens_behind(self, unread: bytes, written: bytes, most: int) -> tuple[tuple[int, ...], list[int]]:
        """At most so many target tokens of a text that begins with `unread`, those behind it, and where each ends."""
        ids: list[int] = []
        ends: list[int] = []
        start = 0
        for token_id in self._target.encode(valid_beginning(written)) if written.startswith(unread) else ():
            end = start + len(self._target.bytes_of(token_id))
            is_written = written[start:end] == self._target.bytes_of(token_id)  # not so where text is normalized
            if not is_written or token_id >= self._vocab_size or start < len(unread) < end or len(ids) == most:
                break
            if start >= len(unread):
                ids.append(token_id)
                ends.append(end)
            start = end
        return tuple(ids), ends


def _counterparts(source: Vocabulary, other: Vocabulary) -> dict[int, bytes]:
    """The texts of special tokens of `source` in `other`: the same if it has one of that text, an end for an end."""
    same = {i: text for i, text in source.specials.items() if text in other.special_texts}
    ends = dict.fromkeys(source.end_token_ids, other.end_text) if other.end_text else {}
    return {i: text.encode() for i, text in (ends | same).items()}


def _readable(data: bytes) -> tuple[str, bytes]:
    """The text of bytes that a draft reads, and the end that it does not: part of a character, and space.

    Most vocabularies have tokens of space and what follows it, so a text that ends with space is one that a model
    rarely saw: it knows what comes only if it writes the space too.
    """
    text, unread = whole_characters(data)
    kept = text.rstrip()
    if len(text) - len(kept) > MOST_SPACE:
        return text, unread
    return kept, text[len(kept) :].encode() + unread


def _confidences(of_drafted: Sequence[float], draft_ends: Sequence[int], ends: Sequence[int]) -> tuple[float, ...]:
    """For tokens that end at `ends`, of what draft tokens wrote: the product over those that begin in each."""
    begins = [0, *draft_ends]
    if not of_drafted:
        return ()
    return tuple(
        prod(sure for begin, sure in zip(begins, of_drafted, strict=False) if start <= begin < end)
        for start, end in pairwise([0, *ends])
    )
