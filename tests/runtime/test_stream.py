"""What a generation reports beside its tokens: why it ended, log-probabilities, near-ties."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from pilotfish import runtime as pilotfish
from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import BuiltSource
from pilotfish.runtime import Chunk, GenerationOptions, Grammar, SamplingParams
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.stream import Stream
from support.tiny_models import CONFIG, perturbed, tiny_checkpoint, tiny_weights

PROMPT = "the pilot fish swims ahead"
DRAFTS = ("off", "model", "lookup")


def chunks_of(engine: Engine, prompt: str = PROMPT, **options) -> list[Chunk]:
    return list(engine.generate(prompt, GenerationOptions(**{"max_tokens": 24, **options})))


def ids_of(chunks: list[Chunk]) -> list[int]:
    return [token_id for chunk in chunks for token_id in chunk.token_ids]


def target_logits(engine: Engine, prompt: str, token_ids: list[int]) -> np.ndarray:
    """The target's rows for each of the tokens, from one fresh pass over all of them."""
    prompt_ids = engine.tokenizer.encode(prompt)
    target = engine._context.target
    target.rollback(0)
    logits = target.forward([*prompt_ids, *token_ids[:-1]], len(token_ids))[:, : engine.tokenizer.num_tokens].copy()
    engine.reset()
    return logits.astype(np.float64)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(temperature=4, top_k=20, seed=3)])
def test_logprobs_are_the_targets_own_for_every_token(engine: Engine, draft: str, sampling: SamplingParams):
    chunks = chunks_of(engine, draft=draft, sampling=sampling, logprobs=3)
    token_ids, entries = ids_of(chunks), [entry for chunk in chunks for entry in chunk.logprobs]
    assert [entry.token_id for entry in entries] == token_ids
    if draft == "model" or not sampling.temperature:
        assert {chunk.origin for chunk in chunks} == {"target", draft} - {"off"}
    logits = target_logits(engine, PROMPT, token_ids)
    logprobs = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
    logprobs -= logits.max(1, keepdims=True)
    for entry, row in zip(entries, logprobs, strict=True):
        assert entry.logprob == pytest.approx(row[entry.token_id], abs=1e-3)
        best = np.argsort(-row)[:3]
        np.testing.assert_allclose([logprob for _, logprob in entry.top], row[best], atol=1e-3)
        assert [token_id for token_id, _ in entry.top] == best.tolist()


@pytest.mark.parametrize("draft", DRAFTS)
def test_logprobs_after_the_filters_are_what_was_drawn_from(engine: Engine, draft: str):
    sampling = SamplingParams(temperature=4, top_k=5, frequency_penalty=1, seed=1)
    chunks = chunks_of(engine, draft=draft, sampling=sampling, logprobs=50, logprobs_from="sampler")
    for entry in (entry for chunk in chunks for entry in chunk.logprobs):
        assert len(entry.top) == 5  # of the 50 that were asked for, the filter left five
        assert np.exp([logprob for _, logprob in entry.top]).sum() == pytest.approx(1, abs=1e-5)
        assert (entry.token_id, entry.logprob) in entry.top
    greedy = chunks_of(engine, draft=draft, logprobs=2, logprobs_from="sampler")
    assert {entry.top for chunk in greedy for entry in chunk.logprobs} == {
        ((token_id, 0.0),) for token_id in ids_of(greedy)
    }


def test_logprobs_are_there_only_if_asked_for(engine: Engine):
    assert all(chunk.logprobs == () for chunk in chunks_of(engine))
    assert all(entry.top == () for chunk in chunks_of(engine, logprobs=0) for entry in chunk.logprobs)


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_time_limit_ends_a_generation(engine: Engine, draft: str, monkeypatch: pytest.MonkeyPatch):
    seconds = iter(np.arange(0, 1e6, 0.25))  # each look at the clock takes a quarter of a second
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(seconds)))
    chunks = chunks_of(engine, max_tokens=None, max_time_s=30, draft=draft)
    assert chunks[-1].finish_reason == "time"
    assert 0 < len(ids_of(chunks)) < 120


def test_the_time_limit_holds_while_the_prompt_is_read(engine: Engine):
    prompt = "the shark " * 150
    chunks = chunks_of(engine, prompt, max_time_s=1e-9)
    assert [(chunk.text, chunk.token_ids, chunk.finish_reason) for chunk in chunks] == [("", (), "time")]
    assert 0 < engine._context.target.length < len(engine.tokenizer.encode(prompt)) - 1
    expected = ids_of(chunks_of(engine, prompt))  # goes on from there
    engine.reset()
    assert ids_of(chunks_of(engine, prompt)) == expected


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_stop_comes_before_the_limits_of_the_same_round(engine: Engine, draft: str):
    token_ids = ids_of(chunks_of(engine, draft="off"))
    for number in range(2, 12):
        text = engine.tokenizer.decode(token_ids[:number])
        stop = text[-2:]
        if text.index(stop) < len(text) - len(stop):  # it stands earlier too, so the limit is not in its round
            continue
        chunks = chunks_of(engine, draft=draft, num_draft_tokens=6, max_tokens=number, stop=(stop,))
        assert chunks[-1].finish_reason == "stop"
        assert "".join(chunk.text for chunk in chunks) == text.removesuffix(stop)


def test_an_end_token_comes_before_the_limits_of_the_same_round(engine: Engine):
    token_ids = ids_of(chunks_of(engine, draft="off"))
    number = next(i for i in range(4, 20) if token_ids[i] not in token_ids[:i])
    engine.tokenizer.end_token_ids = frozenset({token_ids[number]})
    for draft in DRAFTS:
        options = {"draft": draft, "num_draft_tokens": 6, "max_time_s": 1e9}
        chunks = chunks_of(engine, max_tokens=number + 1, stop=("never this",), **options)
        assert (ids_of(chunks), chunks[-1].finish_reason) == (token_ids[: number + 1], "end")


def near_tied_bundle(folder: Path) -> Path:
    """A model that cannot decide: every token has a twin whose embedding is the same up to the last bits."""
    weights = tiny_weights(CONFIG)
    embedding = weights["embedding", -1, "weight"]
    embedding[1::2] = embedding[::2] * np.float32(1 + 1e-7)
    target = BuiltSource(tiny_checkpoint(CONFIG, weights), parse_recipe("fp32"))
    draft = BuiltSource(tiny_checkpoint(CONFIG, perturbed(weights, 0.1)), parse_recipe("fp32"))
    return write_bundle(target, draft, folder / "bundle")


def test_in_fast_mode_outputs_differ_at_counted_near_ties_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    counted: list[list[bool]] = []
    count = Stream._num_near_ties

    def recorded(stream: Stream, round_) -> int:
        committed, num_tokens = stream._context.committed, len(round_.token_ids)
        margins = stream._sampler.margins(
            round_.logits[:num_tokens], committed[:-num_tokens], committed[-num_tokens:-1]
        )
        counted[-1].extend((margins < stream._context.near_tie_margin).tolist())
        return count(stream, round_)

    monkeypatch.setattr(Stream, "_num_near_ties", recorded)
    num_different = 0
    with pilotfish.load(near_tied_bundle(tmp_path), exact=False) as engine:
        for number in range(40):
            outputs = []
            for draft in ("off", "model"):
                engine.reset()
                counted.append([])
                chunks = chunks_of(engine, f"the shark {number}", draft=draft, num_draft_tokens=5, max_tokens=40)
                outputs.append(ids_of(chunks))
                assert engine.stats.num_near_ties == sum(counted[-1])
            differing = [i for i, (one, two) in enumerate(zip(*outputs, strict=False)) if one != two]
            if differing:
                num_different += 1
                assert counted[-1][differing[0]]
                assert counted[-2][differing[0]]
    assert num_different  # otherwise nothing was tested


def test_exact_mode_counts_no_near_ties_and_a_decided_model_has_few(tmp_path: Path, bundle_path: Path):
    with pilotfish.load(near_tied_bundle(tmp_path)) as engine:
        chunks_of(engine)
        assert engine.stats.num_near_ties == 0
    with pilotfish.load(bundle_path, exact=False) as engine:
        assert 0 < engine._context.near_tie_margin < 1e-2
        chunks_of(engine, max_tokens=100)
        assert engine.stats.num_near_ties <= 2


JSON_SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["shark", "pilot fish"]}, "length": {"type": "integer", "maximum": 99}},
    "required": ["name", "length"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("temperature", [0.0, 5.0])
def test_json_output_follows_its_schema(engine: Engine, draft: str, temperature: float):
    grammar = Grammar("json-schema", json.dumps(JSON_SCHEMA))
    for seed in range(10):
        sampling = SamplingParams(temperature=temperature, seed=seed, acceptance=("block", "token", "seed")[seed % 3])
        chunks = chunks_of(engine, max_tokens=200, grammar=grammar, sampling=sampling, draft=draft, num_draft_tokens=6)
        if chunks[-1].finish_reason == "end":  # white space may go on for as long as it likes
            value = json.loads("".join(chunk.text for chunk in chunks))
            assert value["name"] in ("shark", "pilot fish")
            assert value["length"] <= 99


def test_a_finished_grammar_ends_the_output_in_the_middle_of_a_block(engine: Engine):
    for draft in DRAFTS:
        options = {"draft": draft, "num_draft_tokens": 8, "grammar": Grammar("lark", 'start: "shark"')}
        chunks = chunks_of(engine, "shark shark shark", **options)
        assert "".join(chunk.text for chunk in chunks) == "shark"
        assert chunks[-1].finish_reason == "end"


def test_a_faulty_grammar_is_refused_before_anything_happens(engine: Engine):
    expected = ids_of(chunks_of(engine))
    with pytest.raises(pilotfish.GrammarError, match="regex"):
        engine.generate(PROMPT, GenerationOptions(grammar=Grammar("regex", "(")))
    assert engine._context.committed
    assert ids_of(chunks_of(engine)) == expected
