"""What an export says of its draft: how much of it the target accepts, and what trimming costs of that at most."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pilotfish.export.agreement import Agreement, measure_agreement, report
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.cli import run
from pilotfish.runtime.errors import OptionError
from support.checkpoint_files import write_gguf
from support.tiny_models import renumbered_bundle, tiny_bundle
from support.vocabularies import byte_level

HEAD_IDS = np.random.default_rng(8).choice(300, 150, replace=False).tolist()


def measured(folder: Path, **options) -> Agreement:
    return measure_agreement(load_bundle(tiny_bundle(folder, **options)))


def test_a_twin_is_accepted_and_the_noisier_a_draft_the_less_it_is(tmp_path: Path):
    found = [measured(tmp_path / str(noise), draft_noise=noise).accepted for noise in (0.0, 0.1, 1.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(1, abs=1e-3)
    assert 0 <= found[2] < 0.9 * found[0]


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
def test_trimming_costs_no_more_than_is_said(noise: float, tmp_path: Path):
    whole = measured(tmp_path / "whole", draft_noise=noise)
    trimmed = measured(tmp_path / "trimmed", draft_noise=noise, head_ids=HEAD_IDS)
    assert whole.most_lost is None
    assert 0 < trimmed.most_lost < 1
    assert whole.accepted <= trimmed.accepted + trimmed.most_lost + 1e-4
    if noise == 0:  # of a twin nothing else is lost than what is trimmed
        assert trimmed.accepted == pytest.approx(1 - trimmed.most_lost, abs=1e-3)


def test_the_line_names_both():
    assert str(Agreement(0.8125)).endswith("on the sample: 0.812")
    assert str(Agreement(0.8, 0.025)).endswith("0.800 (whole vocabulary: at most 0.825)")
    assert str(Agreement(0.9, 0.4)).endswith("at most 1.000)")


def test_nothing_is_measured_that_was_not_to_be_verified(tmp_path: Path, lookup_bundle_path: Path):
    assert [line.split(":")[0] for line in report(load_bundle(tiny_bundle(tmp_path)))] == ["target fp32", "draft fp32"]
    assert len(report(load_bundle(lookup_bundle_path))) == 1
    with pytest.raises(OptionError, match="has no draft"):
        measure_agreement(load_bundle(lookup_bundle_path))


def test_a_draft_of_another_tokenizer_is_measured_too_and_its_tokenizer_told_of(tmp_path: Path):
    twin = renumbered_bundle(tmp_path / "twin", verify=True)
    other = tiny_bundle(tmp_path / "other", draft_noise=1.0, draft_tokenizer=byte_level(), verify=True)
    accepted = {path: measure_agreement(load_bundle(path)).accepted for path in (twin, other)}
    assert accepted[twin] > 2 * accepted[other] >= 0
    *_, told, agreement = report(load_bundle(twin))
    assert told == "different tokenizer: drafts pass as text; 100% of the draft's tokens map one to one"
    assert agreement == str(Agreement(accepted[twin]))


def test_an_export_ends_with_the_agreement(tmp_path: Path, capsys: pytest.CaptureFixture):
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    options = ["--draft", "layers:1", "--draft-vocabulary", "100"]
    assert run(["export", "--target", source, "-o", str(tmp_path / "out"), *options]) == 0
    assert str(measure_agreement(load_bundle(tmp_path / "out"))) in capsys.readouterr().err.splitlines()


def test_each_of_several_drafts_is_told_and_compared_with_the_one_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    options = ["--target", source, "--draft", source, "--draft", "layers:1"]
    assert run(["export", *options, "-o", str(tmp_path / "out")]) == 0
    bundle = load_bundle(tmp_path / "out")
    first, second = (measure_agreement(bundle, level) for level in range(2))
    assert first.accepted == pytest.approx(1, abs=1e-4)  # the target itself
    assert second.accepted < 0.9
    assert capsys.readouterr().err.splitlines()[-2:] == [str(first), str(second)]
    assert str(second).startswith("draft-2 agreement with the draft on the sample")
    with pytest.raises(OptionError, match="has no draft"):
        measure_agreement(bundle, 2)
    sources = ["--target", source, "--draft", source, "--draft", source]  # a draft of layers has the target's
    assert run(["verify", str(bundle.path), *sources]) == 0
    assert "draft-2" in capsys.readouterr().out
    assert run(["export", *options, "--dry-run"]) == 0
    assert "draft-2" in capsys.readouterr().out
    assert run(["verify", str(bundle.path), *sources, "--draft", source]) == 2
    assert "has no draft-3; leave --draft out" in capsys.readouterr().err
