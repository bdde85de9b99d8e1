"""The plan by which CUDA records passes, run on the CPU: all but the recording itself.

The host tells a constant total length, shapes are few, and each has memory of its own. Rows are then those of free
passes bit for bit, so everything that is built on them is too.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pilotfish import runtime as pilotfish
from pilotfish.runtime import DeviceError, GenerationOptions, OptionError, SamplingParams
from pilotfish.runtime import engine as engine_module
from pilotfish.runtime.bundle import MANIFEST, load_bundle
from pilotfish.runtime.cli import run
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.exactness import exact_widths
from pilotfish.runtime.plan import ROUND_WIDTHS, Plan, plan_for, require_cuda
from pilotfish.runtime.warm_up import warm_up
from support.tiny_models import tiny_bundle

IDS = np.random.default_rng(7).integers(0, 300, 60).tolist()
RECORDED = Plan(ROUND_WIDTHS, records=True)
PROMPT = "the pilot fish swims ahead of"


@pytest.fixture(scope="module", params=["fp32", "w8a8", "int4-fp16"])
def pair_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("tiny"), request.param)


def decoder(bundle_path: Path, plan: Plan | None = None, **options) -> Decoder:
    model = load_bundle(bundle_path).manifest.target
    where = bundle_path / model.graph
    return Decoder(model, where, device="cpu", context_length=300, plan=plan, **options)


def rows_of(decoder: Decoder, blocks: list[int]) -> np.ndarray:
    decoder.rollback(0)
    ends = np.cumsum(blocks)
    return np.concatenate(
        [decoder.forward(IDS[end - block : end], block).copy() for block, end in zip(blocks, ends, strict=True)]
    )


@pytest.mark.parametrize("blocks", [[20, 1, 1, 1, 1], [3, 5, 2, 9, 17, 2], [30, 2, 17, 3], [1] * 20])
@pytest.mark.parametrize("reads_heads", [False, True])
def test_rows_of_recorded_passes_are_those_of_free_ones(pair_path: Path, blocks: list[int], reads_heads: bool):
    with decoder(pair_path) as free, decoder(pair_path, RECORDED, reads_heads=reads_heads) as recorded:
        np.testing.assert_array_equal(rows_of(recorded, blocks), rows_of(free, blocks))
        assert recorded.length == free.length == sum(blocks)


def test_a_rollback_leaves_no_trace(pair_path: Path):
    with decoder(pair_path, RECORDED) as recorded:
        expected = rows_of(recorded, [20, 5, 5])
        recorded.rollback(20)
        recorded.forward([5, 6, 7, 8, 9, 10, 11], 7)
        recorded.rollback(20)
        found = [recorded.forward(IDS[start : start + 5], 5).copy() for start in (20, 25)]
        np.testing.assert_array_equal(np.concatenate(found), expected[20:])


def test_only_narrow_passes_are_recorded_each_shape_as_one_of_its_own(pair_path: Path):
    with decoder(pair_path, RECORDED) as recorded:
        warm_up(recorded)
        recorded.forward(IDS[:18], 0)
        ids = {
            shape: binding.run_options.get_run_config_entry("gpu_graph_id")
            for shape, (binding, _) in recorded._bindings._kept.items()
        }
        assert ids.pop((18, 1)) == "-1"
        narrow = {shape: graph_id for shape, graph_id in ids.items() if shape[0] <= 17}
        assert {(width, rows) for width in ROUND_WIDTHS for rows in (1, width)} == set(narrow)
        assert len(set(narrow.values())) == len(narrow)
        assert all(int(graph_id) > 0 for graph_id in narrow.values())
        assert {graph_id for shape, graph_id in ids.items() if shape[0] > 17} == {"-1"}
        values = [binding.ids.data_ptr() for binding, _ in recorded._bindings._kept.values()]
        assert len(set(values)) == len(values)


def test_recorded_shapes_stay_bound_whatever_else_is_run(pair_path: Path):
    with decoder(pair_path, RECORDED) as recorded:
        warm_up(recorded)
        before = {shape: each for shape, each in recorded._bindings._kept.items() if shape[0] <= 17}
        for number in range(18, 61):
            recorded.rollback(0)
            recorded.forward(IDS[:number], 1)
        after = recorded._bindings._kept
        assert all(after[shape][0] is each[0] for shape, each in before.items())


@pytest.mark.parametrize("plan", [RECORDED, plan_for("tensorrt"), Plan()])
def test_warming_up_leaves_the_cache_as_it_was(pair_path: Path, plan: Plan):
    with decoder(pair_path, plan) as warm, decoder(pair_path) as cold:
        for each in (warm, cold):
            each.forward(IDS[:20], 0)
        before = [keys.copy() for keys in warm.cache.read_tokens()]
        warm_up(warm)
        assert warm.length == 20
        for then, now in zip(before, warm.cache.read_tokens(), strict=True):
            np.testing.assert_array_equal(then, now)
        np.testing.assert_array_equal(warm.forward(IDS[20:25], 5), cold.forward(IDS[20:25], 5))


def test_exactness_is_that_of_free_passes(pair_path: Path):
    with decoder(pair_path) as free, decoder(pair_path, RECORDED) as recorded:
        assert exact_widths(recorded) == exact_widths(free)


SAMPLINGS = {
    "greedy": SamplingParams(),
    "seeded": SamplingParams(temperature=0.9, top_k=30, seed=3),
    "penalties": SamplingParams(repetition_penalty=1.2, frequency_penalty=0.3),
}


@pytest.mark.parametrize("name", SAMPLINGS)
def test_an_engine_writes_the_same_and_keeps_the_invariant(name: str, pair_path: Path, monkeypatch: pytest.MonkeyPatch):
    written: dict[tuple[bool, str], list[int]] = {}
    for records in (False, True):
        if records:
            monkeypatch.setattr(engine_module, "plan_for", lambda *_, **__: RECORDED)
        with pilotfish.load(pair_path) as engine:
            for draft in ("off", "model", "cascade", "auto"):
                engine.reset()
                options = GenerationOptions(sampling=SAMPLINGS[name], max_tokens=40, draft=draft, num_draft_tokens=4)
                chunks = engine.generate(PROMPT, options)
                ids = []
                for chunk in chunks:
                    ids += chunk.token_ids
                    context = engine._context
                    for each in context.decoders.values():
                        assert each.length < len(context.committed)
                written[records, draft] = ids
            assert all(each.plan.records == records for each in engine._context.decoders.values())
    assert len(set(map(tuple, written.values()))) == 1


def test_recording_is_refused_with_a_reason_where_there_is_no_cuda(pair_path: Path, capsys: pytest.CaptureFixture):
    with pytest.raises(OptionError, match=r"device 'cuda' only, and the models are on cpu; .*add --device cuda"):
        pilotfish.load(pair_path, cuda_graphs=True)
    assert run(["generate", str(pair_path), "-p", "x", "--cuda-graphs"]) == 2
    assert "CUDA graphs are recorded by device 'cuda' only" in capsys.readouterr().err
    require_cuda(["cpu", "cuda"])


def test_where_one_model_is_on_cuda_it_alone_records():
    assert plan_for("cuda", cuda_graphs=True) == RECORDED
    assert plan_for("cpu", cuda_graphs=True) == Plan()
    assert plan_for("tensorrt", cuda_graphs=True) == plan_for("tensorrt")


def test_a_plan_that_cannot_be_recorded_is_refused():
    for widths in ((), (32, 64, 80)):
        with pytest.raises(OptionError, match="cannot be recorded"):
            Plan(widths, records=True)


def reading_its_total(bundle_path: Path, folder: Path) -> Path:
    """The bundle with a graph that scales its logits by the total length, as one with positions of its own may."""
    path = Path(shutil.copytree(bundle_path, folder / "bundle"))
    graph_path = path / load_bundle(path).manifest.target.graph
    model = onnx.load(graph_path, load_external_data=False)
    (last,) = (node for node in model.graph.node if "logits" in node.output)
    last.output[list(last.output).index("logits")] = "unscaled"
    for node in model.graph.node:
        node.input[:] = ["unscaled" if name == "logits" else name for name in node.input]
    model.graph.initializer.append(numpy_helper.from_array(np.array(0.01, np.float32), "hundredth"))
    model.graph.node.extend([
        helper.make_node("Cast", ["total_sequence_length"], ["total"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["total", "hundredth"], ["scale"]),
        helper.make_node("Mul", ["unscaled", "scale"], ["logits"]),
    ])  # fmt: skip
    graph_path.write_bytes(model.SerializeToString())
    manifest = json.loads((path / MANIFEST).read_text())
    manifest["files"][graph_path.relative_to(path).as_posix()]["size"] = graph_path.stat().st_size
    (path / MANIFEST).write_text(json.dumps(manifest))
    return path


def test_a_graph_that_computes_with_the_total_is_refused(pair_path: Path, tmp_path: Path):
    path = reading_its_total(pair_path, tmp_path)
    with decoder(path) as free, decoder(path, RECORDED) as recorded:
        warm_up(free)
        with pytest.raises(DeviceError, match=r"computes with total_sequence_length.*; load it without CUDA graphs"):
            warm_up(recorded)
        assert recorded.length == 0


def test_what_fails_in_a_recorded_pass_is_said_with_the_remedy(pair_path: Path, monkeypatch: pytest.MonkeyPatch):
    def failing(*_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    with decoder(pair_path, RECORDED) as recorded, decoder(pair_path, plan_for("tensorrt")) as prepared:
        for each in (recorded, prepared):
            monkeypatch.setattr(each, "_play", failing)
        with pytest.raises(DeviceError, match=r"when stream is capturing; load it without CUDA graphs"):
            warm_up(recorded)
        with pytest.raises(RuntimeError):
            warm_up(prepared)
