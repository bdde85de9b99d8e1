"""A forward's largest logits are those of its whole rows, and generation that reads no more gives the same tokens.

On a GPU the whole rows stay there; on the CPU a flag makes a decoder do the same.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pilotfish import runtime as pilotfish
from pilotfish.runtime import GenerationOptions, SamplingParams
from pilotfish.runtime import engine as engine_module
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.decoder import Decoder
from support.tiny_models import CONFIG, tiny_bundle

IDS = np.random.default_rng(7).integers(0, 300, 12).tolist()
PROMPT = "the pilot fish swims ahead"
WIDE = replace(CONFIG, vocab_size=8000)  # of which the tokenizer knows 300
NUM_LARGEST = 64
HEAD_BYTES = NUM_LARGEST * (4 + 8) + 4  # logits, ids and log Σ exp of one row


@pytest.fixture(scope="module", params=["fp32", "int8-fp16"])
def bundle_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("tiny"), request.param, config=WIDE)


def decoder(bundle_path: Path, **options) -> Decoder:
    model = load_bundle(bundle_path).manifest.target
    return Decoder(model, bundle_path / model.graph, device="cpu", context_length=200, **options)


def test_the_largest_logits_are_those_of_the_whole_rows(bundle_path: Path):
    with decoder(bundle_path) as whole, decoder(bundle_path, reads_heads=True) as heads:
        expected = whole.forward(IDS, 5)[:, :300]
        assert whole.log_sum_exp is None
        found = heads.forward(IDS, 5, 2)
        kept = np.isfinite(found)
        assert kept.sum(axis=1).tolist() == [NUM_LARGEST] * 5
        assert not kept[:, 300:].any()  # ids that the tokenizer does not know are never among them
        for row, whole_row in zip(found, expected, strict=True):
            largest = np.argsort(-whole_row, kind="stable")[:NUM_LARGEST]
            np.testing.assert_array_equal(row[largest], whole_row[largest])
        np.testing.assert_allclose(
            heads.log_sum_exp, np.log(np.exp(expected.astype(np.float64)).sum(axis=1)), rtol=1e-5
        )


@pytest.mark.parametrize("num_largest", [0, NUM_LARGEST + 1])
def test_whole_rows_come_where_the_largest_do_not_do(bundle_path: Path, num_largest: int):
    with decoder(bundle_path) as whole, decoder(bundle_path, reads_heads=True) as heads:
        np.testing.assert_array_equal(heads.forward(IDS, 5, num_largest), whole.forward(IDS, 5))
        assert heads.num_host_bytes == 5 * (4 + 4 * WIDE.vocab_size)  # with log Σ exp
        assert whole.num_host_bytes == 5 * 4 * WIDE.vocab_size


def test_a_wide_pass_pads_and_returns_the_last_rows(bundle_path: Path):
    with decoder(bundle_path, reads_heads=True) as heads:
        alone = heads.forward(IDS, 1, 2).copy()
        heads.rollback(len(IDS) - 1)
        heads.exact_widths = (3,)
        padded = heads.forward(IDS[-1:], 1, 2)
        assert padded.shape == alone.shape
        np.testing.assert_array_equal(padded.argmax(axis=1), alone.argmax(axis=1))
        np.testing.assert_allclose(heads.log_sum_exp, np.log(np.exp(alone[0, np.isfinite(alone[0])]).sum()), rtol=1e-2)


SAMPLINGS = {
    "greedy": SamplingParams(),
    "top-k": SamplingParams(temperature=1.2, top_k=20, seed=1),
    "top-k, top-p and min-p": SamplingParams(temperature=0.8, top_k=64, top_p=0.9, min_p=0.02, seed=2),
    "more than the heads have": SamplingParams(temperature=1.2, top_k=100, seed=3),
    "all": SamplingParams(temperature=1.0, seed=4),
    "penalties": SamplingParams(repetition_penalty=1.3, frequency_penalty=0.5),
}


@pytest.fixture(scope="module", params=["whole", "trimmed"])
def pair_path(request: pytest.FixtureRequest, bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "whole":
        return bundle_path
    return tiny_bundle(tmp_path_factory.mktemp("trimmed"), config=WIDE, head_ids=range(0, 300, 3))


@pytest.mark.parametrize("name", SAMPLINGS)
def test_generation_by_heads_gives_the_same_tokens(name: str, pair_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = {}
    for reads_heads in (False, True):
        monkeypatch.setattr(engine_module, "Decoder", partial(Decoder, reads_heads=reads_heads))
        with pilotfish.load(pair_path) as engine:
            for draft in ("off", "model", "cascade"):
                engine.reset()
                options = GenerationOptions(sampling=SAMPLINGS[name], max_tokens=40, draft=draft, num_draft_tokens=4)
                ids = [token_id for chunk in engine.generate(PROMPT, options) for token_id in chunk.token_ids]
                found[reads_heads, draft] = ids
    assert len(set(map(tuple, found.values()))) == 1


@pytest.mark.parametrize("name", ["greedy", "top-k"])
def test_a_round_sends_kilobytes(name: str, bundle_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine_module, "Decoder", partial(Decoder, reads_heads=True))
    with pilotfish.load(bundle_path) as engine:
        decoders = engine._context.decoders

        def crossed() -> dict[str, tuple[int, int]]:
            return {role: (each.num_host_bytes, each.num_device_bytes) for role, each in decoders.items()}

        before = crossed()
        options = GenerationOptions(sampling=SAMPLINGS[name], max_tokens=40, draft="model", num_draft_tokens=4)
        assert sum(len(chunk.token_ids) for chunk in engine.generate(PROMPT, options)) > 1
        num_rounds, prompt_bytes = engine.stats.num_rounds, 8 * len(engine.tokenizer.encode(PROMPT))
        # passes of a round, with tokens and rows of each; exact mode pads one row to two
        for role, num_passes, most_rows in (("target", 1, 5), ("draft", 4, 2)):
            to_host, to_device = (now - then for now, then in zip(crossed()[role], before[role], strict=True))
            assert 0 < to_host <= num_rounds * num_passes * most_rows * HEAD_BYTES
            pass_bytes = 8 * most_rows + 8 * most_rows + 4  # token ids, rows that are wanted, the length
            assert 0 < to_device <= (num_rounds * num_passes + 1) * pass_bytes + prompt_bytes
            assert to_host + to_device < num_rounds * 8_000


def test_log_probabilities_are_of_whole_rows(bundle_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = []
    for reads_heads in (False, True):
        monkeypatch.setattr(engine_module, "Decoder", partial(Decoder, reads_heads=reads_heads))
        with pilotfish.load(bundle_path) as engine:
            options = GenerationOptions(max_tokens=10, draft="model", logprobs=3)
            found.append([each for chunk in engine.generate(PROMPT, options) for each in chunk.logprobs])
    assert found[0] == found[1]
