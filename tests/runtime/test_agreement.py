"""How well a draft knows its target is measured beforehand, and is the rate of acceptance to come."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish import runtime as pilotfish
from pilotfish.runtime import GenerationOptions, SamplingParams
from pilotfish.runtime.calibration import measured_agreement
from support.tiny_models import tiny_bundle

SAMPLE = list(range(3, 60))


@pytest.mark.parametrize(("noise", "least", "most"), [(0.0, 0.9999, 1.0), (0.05, 0.2, 0.99), (30.0, 0.0, 0.1)])
def test_a_worse_draft_agrees_less(tmp_path: Path, noise: float, least: float, most: float):
    with pilotfish.load(tiny_bundle(tmp_path, draft_noise=noise)) as engine:
        context = engine._context
        found = measured_agreement(context.target, context.drafters["model"], SAMPLE)
        assert least <= found <= most
        assert context.target.length == context.drafts[0].length == 0


def test_it_is_the_rate_at_which_drawn_tokens_are_accepted(tmp_path: Path):
    with pilotfish.load(tiny_bundle(tmp_path, draft_noise=0.05)) as engine:
        num_drafted = num_accepted = 0
        for seed in range(20):
            sampling = SamplingParams(temperature=1, seed=seed, acceptance="token")
            list(engine.generate("the shark", GenerationOptions(60, sampling, "model", num_draft_tokens=1)))
            num_drafted += engine.stats.num_drafted
            num_accepted += engine.stats.num_accepted
        assert num_accepted > 100
        assert engine.calibration.drafts[0].agreement == pytest.approx(num_accepted / num_drafted, abs=0.15)


def test_a_text_too_short_to_tell_gives_a_guess(tmp_path: Path):
    with pilotfish.load(tiny_bundle(tmp_path)) as engine:
        context = engine._context
        assert measured_agreement(context.target, context.drafters["model"], SAMPLE[:8]) == 0.5


def test_without_a_draft_there_is_none(lookup_bundle_path: Path):
    with pilotfish.load(lookup_bundle_path) as engine:
        assert engine.calibration.drafts == ()
