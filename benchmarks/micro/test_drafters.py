"""Drafters that copy, over a text of 8,000 tokens that repeats itself now and then, as real text does."""

from __future__ import annotations

import itertools

import numpy as np

from pilotfish.runtime.controller import Controller
from pilotfish.runtime.costs import WidthCosts
from pilotfish.runtime.drafters.lookup import LookupDrafter
from pilotfish.runtime.drafters.proposal import certain
from pilotfish.runtime.drafters.suffix import SuffixDrafter
from pilotfish.runtime.drafters.translated import TranslatedDrafter
from pilotfish.runtime.sampling import Sampler, SamplingParams
from pilotfish.runtime.vocabulary import Vocabulary
from support.tiny_models import tiny_tokenizer
from support.vocabularies import TEXT, byte_level

VOCAB_SIZE = 151_936  # of Qwen2.5
COSTS = WidthCosts({1: 0.1, 2: 0.1, 5: 0.11, 9: 0.13, 17: 0.18})


def text(num_tokens: int = 8000) -> list[int]:
    """Words of four tokens each, out of 300 words; its end stands earlier in the text too."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, VOCAB_SIZE, (300, 4))
    token_ids = words[rng.integers(0, 300, num_tokens // 4)].ravel().tolist()
    return [*token_ids, *token_ids[100:120]]


def test_suffix_automaton_reads_a_prompt(benchmark):
    committed = text()
    assert benchmark(lambda: SuffixDrafter(VOCAB_SIZE).match_length(committed)) >= 20


def test_suffix_proposes(benchmark):
    committed, suffix = text(), SuffixDrafter(VOCAB_SIZE)
    sampler, rng = Sampler(SamplingParams()), np.random.default_rng(0)
    suffix.match_length(committed)
    proposal = benchmark(suffix.propose, committed, 8, sampler, rng)
    assert list(proposal.token_ids) == committed[120:128]


def test_lookup_proposes(benchmark):
    committed, lookup = text(), LookupDrafter(VOCAB_SIZE)
    sampler, rng = Sampler(SamplingParams()), np.random.default_rng(0)
    proposal = benchmark(lookup.propose, committed, 8, sampler, rng)
    found = [committed[-1], *proposal.token_ids]
    assert len(found) == 9
    assert any(committed[start : start + 9] == found for start in range(len(committed)))


def test_a_draft_of_another_tokenizer_is_translated(benchmark):
    """What a round costs beside the draft's passes: its model writes the same at no cost."""
    target, draft = (Vocabulary(files.tokenizer_json) for files in (tiny_tokenizer(), byte_level()))
    committed, written = (target.encode(TEXT) * 200)[:8000], certain(tuple(draft.encode(" fish lead")), 400, "model")

    class Model:
        def propose(self, *_):
            return written

        def rollback(self, length):
            pass

    drafter, sampler, rng = TranslatedDrafter(Model(), target, draft, 400), Sampler(SamplingParams()), None
    lengths = itertools.cycle(range(7000, 8000, 2))

    def play():
        length = next(lengths)
        drafter.rollback(length - 1)
        return drafter.propose(committed[:length], 8, sampler, rng)

    play()  # reads the prompt
    assert benchmark(play).token_ids


def test_the_controller_plans(benchmark):
    committed, suffix = text(), SuffixDrafter(VOCAB_SIZE)
    suffix.match_length(committed)
    controller = Controller(COSTS, None, suffix, None)
    controller.begin(len(committed), len(committed) + 500)
    plan = benchmark(controller.plan, committed, 16)
    assert plan.drafter is suffix
