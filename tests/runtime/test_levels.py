"""Drafts of drafts: the output is the target's own with any number of levels, and a level that does not pay is idle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotfish import runtime as pilotfish
from pilotfish.export.weight_file import ALIGNMENT
from pilotfish.runtime import GenerationOptions, SamplingParams
from pilotfish.runtime.bundle import MANIFEST, load_bundle
from pilotfish.runtime.calibration import DraftCalibration, keep_calibration, kept_calibration
from pilotfish.runtime.costs import WidthCosts
from pilotfish.runtime.drafters.levels import MOST_DRAFTED, best_length
from pilotfish.runtime.drafters.model import ModelDrafter
from pilotfish.runtime.engine import Engine
from support.tiny_models import tiny_bundle

PROMPT = "the pilot fish swims ahead"
COSTS = WidthCosts({1: 0.1, 9: 0.12})


@pytest.fixture(scope="module")
def levels_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("levels"), draft_noise=0.1, lower_noises=(0.15, 0.2))


def all_levels(engine: Engine) -> None:
    """Has each draft write for the one before it, whatever this machine says of its costs."""
    context, manifest = engine._context, engine.bundle.manifest
    measured = [DraftCalibration(WidthCosts({1: 1000.0**-level}), 0.9) for level in range(len(manifest.drafts))]
    model = engine._drafts.nested(measured)
    assert model is not None
    context.drafters["model"] = model


def written(engine: Engine, draft: str, **sampling: object) -> list[int]:
    options = GenerationOptions(80, SamplingParams(**sampling), draft, num_draft_tokens=6)
    engine.reset()
    tokens = [token_id for chunk in engine.generate(PROMPT, options) for token_id in chunk.token_ids]
    committed = engine._context.committed
    for decoder in engine._context.decoders.values():
        assert decoder.length < len(committed)
    return tokens


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 3}], ids=["greedy", "seed"])
def test_three_levels_write_what_the_target_writes_alone(levels_path: Path, sampling: dict):
    with pilotfish.load(levels_path) as engine:
        all_levels(engine)
        plain = written(engine, "off", **sampling)
        before = [draft.run_s for draft in engine._context.drafts]
        assert written(engine, "model", **sampling) == plain
        assert all(draft.run_s > old for draft, old in zip(engine._context.drafts, before, strict=True))
        assert engine.stats.draft_s > 0
        assert engine.stats.num_accepted > 0
        assert written(engine, "cascade", **sampling) == written(engine, "auto", **sampling) == plain


def test_a_draft_that_is_drafted_for_runs_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pilotfish.load(tiny_bundle(tmp_path, draft_noise=0.1, lower_noises=(0.1,))) as engine:
        num_passes = {}
        for is_nested in (False, True):
            engine.reset()
            if is_nested:
                all_levels(engine)
            else:
                context = engine._context
                context.drafters["model"] = ModelDrafter(context.drafts[0], engine._vocab_size)
            draft, passes = engine._context.drafts[0], []
            with monkeypatch.context() as patch:
                forward = draft.forward
                patch.setattr(draft, "forward", lambda *a, f=forward, p=passes, **k: p.append(1) or f(*a, **k))
                tokens = written(engine, "model")
            num_passes[is_nested] = len(passes), tokens
    assert num_passes[True][1] == num_passes[False][1]
    assert num_passes[True][0] < num_passes[False][0]


@pytest.mark.parametrize(
    ("agreement", "seconds", "least", "most"),
    [(0.99, 0.001, MOST_DRAFTED, MOST_DRAFTED), (0.8, 0.03, 1, 4), (0.8, 0.09, 0, 0), (0.02, 0.01, 0, 0)],
)
def test_a_level_writes_as_much_as_pays(agreement: float, seconds: float, least: int, most: int):
    assert least <= best_length(COSTS, DraftCalibration(WidthCosts({1: seconds}), agreement)) <= most


def test_each_level_is_measured_against_the_one_before_it(levels_path: Path):
    with pilotfish.load(levels_path) as engine:
        measured = engine.calibrate()
        assert len(measured.drafts) == 3
        assert all(0.1 < draft.agreement < 1 for draft in measured.drafts)
        keep_calibration("levels", measured)
        kept = kept_calibration("levels")
        assert kept is not None
        assert [draft.agreement for draft in kept.drafts] == [draft.agreement for draft in measured.drafts]


def test_memory_is_told_by_model(levels_path: Path):
    with pilotfish.load(levels_path, context_length=64) as engine:
        memory, manifest = engine.memory, engine.bundle.manifest
        assert list(memory) == ["target", "draft", "draft-2", "draft-3"] == list(manifest.models)
        for role, model in manifest.models.items():
            buffers = engine._context.decoders[role].cache.buffers.values()
            assert memory[role].cache_bytes == sum(buffer.numpy().nbytes for buffer in buffers)
            assert 0 < memory[role].weight_bytes == model.weight_bytes
            data_bytes = manifest.files[f"{role}/model.onnx.data"].size
            assert data_bytes <= memory[role].weight_bytes < data_bytes + ALIGNMENT  # the last section's
            assert memory[role].device == "cpu"


def test_a_bundle_of_format_1_is_read(tmp_path: Path):
    path = tiny_bundle(tmp_path)
    manifest = load_bundle(path).manifest
    values = json.loads((path / MANIFEST).read_text())
    (draft,) = values.pop("drafts")
    for model in (draft, values["target"]):
        del model["masked_ids"], model["weight_bytes"]
    old = values | {"format": 1, "draft": draft, "masked_draft_ids": [3, 5]}
    (path / MANIFEST).write_text(json.dumps(old))
    read = load_bundle(path).manifest
    assert read.draft is not None
    assert read.draft.masked_ids == (3, 5)
    files = [file.size for name, file in manifest.files.items() if name.startswith("draft/")]
    assert read.weight_bytes("draft") == sum(files) > 0
    (path / MANIFEST).write_text(json.dumps(old | {"draft": None, "masked_draft_ids": []}))
    assert load_bundle(path).manifest.drafts == ()
