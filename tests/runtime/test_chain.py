"""Greedy tokens whose ids go from pass to pass on the device are those that go by way of the host.

That is how a GPU drafts; on the CPU a flag makes a decoder do the same.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from pilotfish import runtime as pilotfish
from pilotfish.runtime import Cancelled, GenerationOptions, SamplingParams
from pilotfish.runtime import engine as engine_module
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.model import ModelDrafter
from pilotfish.runtime.drafters.proposal import never
from pilotfish.runtime.plan import ROUND_WIDTHS, Plan
from pilotfish.runtime.sampling import Sampler
from support.tiny_models import tiny_bundle

IDS = np.random.default_rng(7).integers(0, 300, 30).tolist()
PROMPT = "the pilot fish swims ahead of"
TOLERANCE = 2e-4  # float32 rounding between kernels of different width, on logits of about ±50
PLANS = {"free": Plan(), "recorded": Plan(ROUND_WIDTHS, records=True), "from 2": Plan((2, 4, 8))}


@pytest.fixture(scope="module", params=["whole", "trimmed", "int8-fp16"])
def pair_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    if request.param == "trimmed":
        return tiny_bundle(folder, head_ids=range(0, 300, 3))
    return tiny_bundle(folder, "fp32" if request.param == "whole" else request.param)


def draft(bundle_path: Path, plan: Plan = PLANS["free"], **options) -> Decoder:
    model = load_bundle(bundle_path).manifest.draft
    where = bundle_path / model.graph
    return Decoder(model, where, device="cpu", context_length=100, plan=plan, hands_ids_on=True, **options)


def by_way_of_the_host(decoder: Decoder, pending: list[int], number: int) -> list[int]:
    found: list[int] = []
    for _ in range(number):
        row = decoder.forward(pending, 1)[0][: 300 if decoder.head_ids is None else None]
        column = int(row.argmax())
        pending = [column if decoder.head_ids is None else int(decoder.head_ids[column])]
        found += pending
    return found


@pytest.mark.parametrize("plan", ["free", "recorded"])
@pytest.mark.parametrize("num_pending", [1, 2, 3, 12])
@pytest.mark.parametrize("number", [1, 2, 7])
def test_the_ids_are_the_same(pair_path: Path, plan: str, num_pending: int, number: int):
    with draft(pair_path, PLANS[plan]) as chained, draft(pair_path) as plain:
        for each in (chained, plain):
            each.forward(IDS[:10], 0)
        pending = IDS[10 : 10 + num_pending]
        for _ in range(2):  # the second time all is bound already
            found = chained.continue_greedily(pending, number)
            assert found == by_way_of_the_host(plain, pending, number)
            assert chained.length == plain.length == 10 + num_pending + number - 1
            rows = [each.forward(found[-1:], 1).copy() for each in (chained, plain)]
            # Both caches hold the same; of many tokens the last is read in a pass of its own, by another kernel.
            np.testing.assert_allclose(*rows, atol=0 if num_pending <= 2 else TOLERANCE)
            for each in (chained, plain):
                each.rollback(10)


def test_nothing_but_ids_comes_to_the_host_and_it_tells_no_more_than_lengths(pair_path: Path):
    with draft(pair_path) as chained:
        chained.forward(IDS[:10], 0)
        before = chained.num_host_bytes, chained.num_device_bytes
        chained.continue_greedily(IDS[10:12], 8)
        assert chained.num_host_bytes - before[0] == 8 * 8
        # two ids and the row of the second, a length for each pass, and once the row of each later one
        assert chained.num_device_bytes - before[1] == 2 * 8 + 8 + 8 * 4 + 7 * 8
        before = chained.num_device_bytes
        chained.continue_greedily(IDS[10:12], 8)
        assert chained.num_device_bytes - before == 2 * 8 + 8 + 8 * 4


def test_where_a_pass_of_one_token_is_wider_no_id_is_handed_on(pair_path: Path):
    with draft(pair_path, PLANS["from 2"]) as padded, draft(pair_path) as free:
        assert not padded.hands_ids_on
        assert free.hands_ids_on
        free.exact_widths = (2,)
        assert not free.hands_ids_on


def test_graphs_of_older_releases_hand_no_ids_on(tmp_path: Path):
    path = tiny_bundle(tmp_path)
    entry = load_bundle(path).manifest.draft
    graph = path / entry.graph
    heads = graph.with_name(entry.heads)
    model = onnx.load(heads, load_external_data=False)
    (value,) = (value for value in model.graph.output if value.name == "next_id")
    model.graph.output.remove(value)
    heads.write_bytes(model.SerializeToString())
    with Decoder(entry, graph, device="cpu", context_length=100, hands_ids_on=True) as old:
        assert not old.hands_ids_on


def test_misuse_is_refused(pair_path: Path):
    with draft(pair_path) as chained:
        with pytest.raises(ValueError, match="0 tokens after 1"):
            chained.continue_greedily([1], 0)
        with pytest.raises(ValueError, match="3 tokens after 0"):
            chained.continue_greedily([], 3)
        chained.forward(([1] * 97), 0)
        with pytest.raises(ValueError, match="exceed the context of 100"):
            chained.continue_greedily([1, 2], 3)
        assert chained.length == 97
        assert len(chained.continue_greedily([1, 2], 2)) == 2


def test_a_cancelled_chain_keeps_whole_passes(pair_path: Path, monkeypatch: pytest.MonkeyPatch):
    with draft(pair_path) as chained:
        chained.forward(IDS[:10], 0)
        later = chained._chain.later

        def cancelling(place: int) -> object:
            if place == 3:
                chained.cancel()
            return later(place)

        monkeypatch.setattr(chained._chain, "later", cancelling)
        with pytest.raises(Cancelled):
            chained.continue_greedily(IDS[10:11], 6)
        assert chained.length == 13
        chained.resume()
        assert len(chained.continue_greedily(IDS[10:11], 2)) == 2


@pytest.mark.parametrize("masked", [0, 3])
def test_a_drafter_stops_before_what_must_not_be_chosen(pair_path: Path, masked: int):
    committed, rng = IDS[:12], np.random.default_rng(0)
    with draft(pair_path) as chained:
        ids = chained.continue_greedily(committed, 6)
        chained.rollback(0)
        bad = [ids[masked]]
        drafter = ModelDrafter(chained, 300, bad, hands_ids_on=True)
        proposal = drafter.propose(committed, 6, Sampler(SamplingParams()), rng, never)
        assert list(proposal.token_ids) == ids[: ids.index(bad[0])]
        assert proposal.probs.shape == (len(proposal.token_ids), 300)
        assert (proposal.probs.argmax(axis=1) == proposal.token_ids).all()


SAMPLINGS = {
    "greedy": SamplingParams(),
    "top-k": SamplingParams(temperature=1.1, top_k=20, seed=1),
    "penalties": SamplingParams(repetition_penalty=1.3),
}


@pytest.mark.parametrize("name", SAMPLINGS)
def test_an_engine_writes_the_same_and_drafts_by_ids_alone_where_it_may(
    name: str, pair_path: Path, monkeypatch: pytest.MonkeyPatch
):
    written, crossed = {}, {}
    for hands_on in (False, True):
        monkeypatch.setattr(engine_module, "Decoder", partial(Decoder, reads_heads=True, hands_ids_on=hands_on))
        with pilotfish.load(pair_path) as engine:
            for drafter in ("off", "model", "cascade", "auto"):
                engine.reset()
                options = GenerationOptions(
                    sampling=SAMPLINGS[name], max_tokens=40, draft=drafter, num_draft_tokens=4
                )  # fmt: skip
                decoder = engine._context.drafts[0]
                before = decoder.num_host_bytes
                chunks = engine.generate(PROMPT, options)
                written[hands_on, drafter] = [token_id for chunk in chunks for token_id in chunk.token_ids]
                assert decoder.length < len(engine._context.committed)
                crossed[hands_on, drafter] = decoder.num_host_bytes - before, engine.stats.num_rounds
    assert len(set(map(tuple, written.values()))) == 1
    num_bytes, num_rounds = crossed[True, "model"]
    if name == "greedy":
        assert 0 < num_bytes <= num_rounds * 4 * 8
        assert num_bytes < crossed[False, "model"][0] / 10
    else:
        assert num_bytes > num_rounds * 4 * 8
