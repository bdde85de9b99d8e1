"""For a fixed seed, output with speculation is output without it, whatever the sampling parameters and the grammar."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish import runtime as pilotfish
from pilotfish.runtime import GenerationOptions, Grammar, SamplingParams
from pilotfish.runtime.engine import Engine

WORDS = ("the ", "pilot", " fish", " shark", "1 2 3 ", "鮫の", "🦈", "\n", "x")
REGEXES = (
    r"(the|a) (pilot fish|shark)( swims)*\.",
    r"[0-9]{2,6}",
    r"(ab|cd|fish|🦈)+",
    r"[a-z ]{5,30}!",
    r'\{"n": [1-9][0-9]?\}',
)
SAMPLINGS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 3.0, 12.0]),
        "top_k": st.sampled_from([0, 3, 40]),
        "top_p": st.sampled_from([1.0, 0.95, 0.5]),
        "min_p": st.sampled_from([0.0, 0.02]),
        "repetition_penalty": st.sampled_from([1.0, 0.8, 1.3]),
        "presence_penalty": st.sampled_from([0.0, 2.0, -1.0]),
        "frequency_penalty": st.sampled_from([0.0, 1.5, -0.5]),
        "no_repeat_ngram": st.sampled_from([0, 2, 3]),
        "min_tokens": st.sampled_from([0, 6]),
        "logit_bias": st.dictionaries(st.integers(0, 400), st.floats(-20, 20), max_size=3),
        "seed": st.integers(0, 2**40),
    }
)


@pytest.fixture(scope="module")
def engine(bundle_path: Path):
    with pilotfish.load(bundle_path, context_length=128) as loaded:
        yield loaded


def generated(engine: Engine, prompt: str, **options) -> tuple[list[int], str, str | None]:
    chunks = list(engine.generate(prompt, GenerationOptions(max_tokens=14, **options)))
    token_ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
    return token_ids, "".join(chunk.text for chunk in chunks), chunks[-1].finish_reason


@settings(max_examples=1000)
@given(
    words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=6),
    sampling=SAMPLINGS,
    pattern=st.none() | st.sampled_from(REGEXES),
    draft=st.sampled_from(["model", "lookup"]),
    num_draft_tokens=st.integers(1, 6),
)
def test_speculation_changes_nothing_for_a_seed(engine, words, sampling, pattern, draft, num_draft_tokens: int):
    options = {"sampling": SamplingParams(**sampling), "grammar": Grammar("regex", pattern) if pattern else None}
    prompt = "".join(words)
    plain = generated(engine, prompt, draft="off", **options)
    engine.reset()
    assert generated(engine, prompt, draft=draft, num_draft_tokens=num_draft_tokens, **options) == plain
    if pattern and plain[2] == "end":
        assert re.fullmatch(pattern, plain[1])


@settings(max_examples=150)
@given(
    sampling=SAMPLINGS,
    pattern=st.sampled_from(REGEXES),
    acceptance=st.sampled_from(["token", "block", "seed"]),
    draft=st.sampled_from(["model", "lookup"]),
)
def test_output_that_ends_matches_its_grammar_under_every_rule(engine, sampling, pattern, acceptance: str, draft: str):
    sampling = SamplingParams(**sampling | {"acceptance": acceptance})
    options = {"sampling": sampling, "grammar": Grammar("regex", pattern), "draft": draft}
    chunks = list(engine.generate("the pilot fish 1 2 3 1 2", GenerationOptions(max_tokens=60, **options)))
    text = "".join(chunk.text for chunk in chunks)
    # What is cut short by the limit is at least the beginning of a match; only a whole one may end by itself.
    assert chunks[-1].finish_reason in ("end", "length")
    if chunks[-1].finish_reason == "end":
        assert re.fullmatch(pattern, text)
