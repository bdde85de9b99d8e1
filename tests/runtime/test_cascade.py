"""The cascade takes the first drafter that has something to say, and tells who that was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from pilotfish.runtime import GenerationOptions, SamplingParams
from pilotfish.runtime.drafters.cascade import CascadeDrafter
from pilotfish.runtime.drafters.lookup import LookupDrafter
from pilotfish.runtime.drafters.model import ModelDrafter
from pilotfish.runtime.drafters.proposal import Proposal, certain, never
from pilotfish.runtime.drafters.suffix import SuffixDrafter
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.sampling import Sampler

VOCAB_SIZE = 9
SAMPLER = Sampler(SamplingParams(), 0, frozenset())


class Speaker:
    """Says the same each time, and writes down what it was asked."""

    def __init__(self, origin: str, token_ids: tuple[int, ...]) -> None:
        self.origin = origin
        self.token_ids = token_ids
        self.asked: list[tuple[list[int], int, Callable[[Sequence[float]], bool]]] = []
        self.lengths: list[int] = []

    def propose(self, committed, num_draft_tokens, sampler, rng, should_stop=never) -> Proposal:
        self.asked.append((list(committed), num_draft_tokens, should_stop))
        return certain(self.token_ids[:num_draft_tokens], VOCAB_SIZE, self.origin)

    def rollback(self, length: int) -> None:
        self.lengths.append(length)


def stop_at_once(confidences: Sequence[float]) -> bool:
    return True


@pytest.mark.parametrize(
    ("says", "expected", "origins", "num_asked"),
    [
        (((1, 2), (3,), (4,)), (1, 2), ("a", "a"), 1),
        (((), (3, 4, 5), (6,)), (3, 4, 5), ("b", "b", "b"), 2),
        (((), (), (7,)), (7,), ("c",), 3),
        (((), (), ()), (), (), 3),
    ],
)
def test_the_first_with_something_to_say_is_heard(
    says: tuple, expected: tuple[int, ...], origins: tuple[str, ...], num_asked: int
):
    speakers = [Speaker(name, tokens) for name, tokens in zip("abc", says, strict=True)]
    cascade = CascadeDrafter(speakers, VOCAB_SIZE)
    proposal = cascade.propose([8, 8], 3, SAMPLER, np.random.default_rng(0), stop_at_once)
    assert (proposal.token_ids, proposal.origins) == (expected, origins)
    assert proposal.probs.shape == (len(expected), VOCAB_SIZE)
    assert [speaker.asked for speaker in speakers] == [
        [([8, 8], 3, stop_at_once)] if number < num_asked else [] for number in range(3)
    ]


def test_all_roll_back_together_whoever_was_heard():
    speakers = [Speaker("a", (1,)), Speaker("b", (2,))]
    cascade = CascadeDrafter(speakers, VOCAB_SIZE)
    cascade.propose([8], 1, SAMPLER, np.random.default_rng(0))
    cascade.rollback(5)
    assert [speaker.lengths for speaker in speakers] == [[5], [5]]


def test_copying_comes_first_and_another_fills_in_where_nothing_repeats():
    cascade = CascadeDrafter([SuffixDrafter(VOCAB_SIZE), Speaker("model", (7, 7))], VOCAB_SIZE)
    rng = np.random.default_rng(0)
    assert cascade.propose([1, 2, 3], 2, SAMPLER, rng).origins == ("model", "model")
    repeating = cascade.propose([1, 2, 3, 1, 2], 2, SAMPLER, rng)
    assert (repeating.token_ids, repeating.origins) == ((3, 1), ("suffix", "suffix"))


def test_chunks_and_statistics_say_who_wrote_each_token(engine: Engine):
    options = GenerationOptions(max_tokens=200, draft="cascade", num_draft_tokens=5)
    chunks = list(engine.generate("1 2 3 1 2 3 1 2", options))
    written = Counter({"target": 0})
    for chunk in chunks:
        written[chunk.origin] += len(chunk.token_ids)
    drafters = engine.stats.drafters
    assert set(drafters) == {"suffix", "model"}  # both were heard
    for name, stats in drafters.items():
        assert 0 < stats.num_accepted == written[name] == sum(stats.accepted_by_position)
    assert sum(stats.num_drafted for stats in drafters.values()) == engine.stats.num_drafted
    assert sum(written.values()) == engine.stats.num_tokens == 200


def test_a_draft_that_is_drafted_for_proposes_the_same_in_fewer_passes(engine: Engine):
    committed = engine.tokenizer.encode("1 2 3 4 1 2 3 4 1 2 3 4 the pilot fish, the pilot fish, the")
    decoder, rng = engine._context.drafts[0], np.random.default_rng(0)
    found = {}
    for inner in (None, LookupDrafter(engine._vocab_size)):
        drafter = ModelDrafter(decoder, engine._vocab_size, inner=inner)
        engine.reset()
        passes, run = [], decoder._run
        decoder._run = lambda token_ids, num_logits, passes=passes, run=run: (
            passes.append(len(token_ids)) or run(token_ids, num_logits)
        )
        proposals = [
            drafter.propose(committed + [0] * n, 16, SAMPLER, rng) for n in range(3) if drafter.rollback(1) is None
        ]
        decoder._run = run
        found[inner is None] = [proposal.token_ids for proposal in proposals], len(passes)
        for proposal in proposals:
            assert proposal.probs.shape == (16, engine._vocab_size)
            assert proposal.probs.argmax(axis=1).tolist() == list(proposal.token_ids)
    assert found[True][0] == found[False][0]
    assert found[False][1] < found[True][1] == 3 * 16


def test_lookup_ends_before_an_id_that_has_no_place_in_its_rows():
    committed = [1, 2, 3, 20, 4, 1, 2]
    proposal = LookupDrafter(VOCAB_SIZE).propose(committed, 4, SAMPLER, np.random.default_rng(0))
    assert (proposal.token_ids, proposal.probs.shape) == ((3,), (1, VOCAB_SIZE))
    assert (
        not LookupDrafter(VOCAB_SIZE, num_looked_at=2)
        .propose(committed, 4, SAMPLER, np.random.default_rng(0))
        .token_ids
    )
