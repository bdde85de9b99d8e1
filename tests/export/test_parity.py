"""The figures of parity are right on cases made by hand, the gate opens and closes where it should, verify tells."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from pilotfish.export.bundle_writer import sha256_of, write_bundle
from pilotfish.export.parity import (
    KL_LIMITS,
    TOLERANCES,
    check,
    divergences,
    measure,
    measure_model,
    perplexity,
    sample_ids,
    summary,
)
from pilotfish.export.quantize import RECIPES, parse_recipe
from pilotfish.export.reference import reference_logits
from pilotfish.export.sources import BuiltSource
from pilotfish.runtime.bundle import ParityReport, load_bundle
from pilotfish.runtime.cli import run
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.errors import ParityError
from pilotfish.runtime.tokenizer import Tokenizer
from support.checkpoint_files import write_gguf
from support.tiny_models import CONFIG, perturbed, tiny_bundle, tiny_checkpoint, tiny_weights

GOOD = ParityReport(
    verified=True, num_tokens=300, reference="float32 reference", mean_kl=0.004, max_kl=0.1, top1_agreement=0.97,
    perplexity=17.7, reference_perplexity=17.6, cached_equals_uncached=0.0, block_equals_single=1.0, after_rollback=0.0,
    largest_logit=40.0,
)  # fmt: skip


def logits_of(*rows: list[float]) -> np.ndarray:
    """Rows of logits whose softmax is the given probabilities, each row moved by a number of its own."""
    return np.stack([np.log(np.array(row)) + 10 * number for number, row in enumerate(rows)]).astype(np.float32)


def test_divergence_of_known_rows():
    reference = logits_of([0.5, 0.25, 0.25], [0.9, 0.05, 0.05], [0.2, 0.3, 0.5])
    other = logits_of([0.25, 0.5, 0.25], [0.05, 0.05, 0.9], [0.2, 0.3, 0.5])
    expected = [0.25 * math.log(2), 0.85 * math.log(18), 0.0]
    np.testing.assert_allclose(divergences(reference, other), expected, atol=1e-6)
    assert divergences(reference, other).min() >= 0


def test_divergence_is_of_the_source_from_the_graph_and_not_the_other_way():
    sharp, flat = logits_of([0.98, 0.01, 0.01]), logits_of([0.4, 0.3, 0.3])
    one_way = 0.98 * math.log(0.98 / 0.4) + 0.02 * math.log(0.01 / 0.3)
    assert divergences(sharp, flat)[0] == pytest.approx(one_way, abs=1e-6)
    assert divergences(flat, sharp)[0] != pytest.approx(one_way, abs=0.1)


def test_perplexity_of_known_rows():
    logits = logits_of([0.5, 0.5, 0.0001], [0.25, 0.5, 0.25], [0.1, 0.1, 0.8])
    assert perplexity(logits, [2, 0, 2]) == pytest.approx(math.sqrt(2 * 4), rel=1e-3)
    assert perplexity(np.zeros((30, 7), np.float32), [3] * 30) == pytest.approx(7)


def test_logits_far_from_zero_are_no_trouble():
    rows = logits_of(*[[0.5, 0.3, 0.2]] * 40) + np.float32(3000)
    assert divergences(rows, logits_of(*[[0.5, 0.3, 0.2]] * 40)).max() < 1e-3


def test_figures_of_a_graph_against_references_made_by_hand(lookup_bundle_path: Path):
    bundle = load_bundle(lookup_bundle_path)
    model, graph = bundle.manifest.target, bundle.path / bundle.manifest.target.graph
    ids = sample_ids(Tokenizer(bundle), model)
    source = reference_logits(tiny_checkpoint(), ids)
    near = measure(model, graph, ids, source)
    assert near.mean_kl < 1e-8
    assert near.top1_agreement == 1
    assert near.perplexity == pytest.approx(near.reference_perplexity, rel=1e-4)
    assert near.largest_logit == pytest.approx(np.abs(source).max(), rel=1e-3)
    other = source.copy()
    other[: len(ids) // 4] *= -1
    far = measure(model, graph, ids, other)
    expected = divergences(other, source)
    assert far.mean_kl == pytest.approx(expected.mean(), rel=1e-3)
    assert far.max_kl == pytest.approx(expected.max(), rel=1e-3)
    assert far.top1_agreement == pytest.approx(1 - len(ids) // 4 / len(ids))
    assert far.reference_perplexity == pytest.approx(perplexity(other, ids))
    assert far.perplexity == near.perplexity


def test_every_bundle_has_a_report(bundle_path: Path):
    manifest = load_bundle(bundle_path).manifest
    for model in manifest.models.values():
        report = model.parity
        assert report.verified
        assert report.reference == "float32 reference"
        assert report.num_tokens == 384
        assert report.mean_kl < 1e-8
        assert max(report.cached_equals_uncached, report.block_equals_single, report.after_rollback) < 1e-3
    assert json.loads((bundle_path / "pilotfish.json").read_text())["target"]["parity"]["verified"] is True


def test_a_model_of_few_positions_is_measured_too(tmp_path: Path):
    path = tiny_bundle(tmp_path, draft_noise=None, config=replace(CONFIG, max_positions=24), verify=True)
    report = load_bundle(path).manifest.target.parity
    assert report.num_tokens == 24
    assert report.mean_kl < 1e-8


def edited_graph(path: Path, edit: object) -> ParityReport:
    """The figures of a bundle's target after a change to the nodes of its graph."""
    bundle = load_bundle(path)
    file = path / bundle.manifest.target.graph
    proto = onnx.load(file, load_external_data=False)
    for node in proto.graph.node:
        edit(node)
    file.write_bytes(proto.SerializeToString())
    return measure_model(bundle, bundle.manifest.target, BuiltSource(tiny_checkpoint(), parse_recipe("fp32")))


@pytest.fixture
def copy(lookup_bundle_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(lookup_bundle_path, tmp_path / "copy"))


def test_an_attention_that_forgets_its_cache_is_noticed(copy: Path):
    def only_one_token(node: onnx.NodeProto) -> None:
        if node.op_type == "GroupQueryAttention":
            node.attribute.append(onnx.helper.make_attribute("local_window_size", 1))

    report = edited_graph(copy, only_one_token)
    with pytest.raises(ParityError, match="too far from its source"):
        check(report, parse_recipe("fp32"), "target")


def test_a_small_fault_is_noticed_without_quantization(copy: Path):
    def other_epsilon(node: onnx.NodeProto) -> None:
        for attribute in node.attribute:
            if attribute.name == "epsilon":
                attribute.f = 0.1

    with pytest.raises(ParityError, match=r"fp32 rounds nothing, so the export itself is at fault"):
        check(edited_graph(copy, other_epsilon), parse_recipe("fp32"), "target")


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_gate_is_open_for_what_was_measured_on_real_models_and_closed_above_its_limits(recipe: str):
    parsed = parse_recipe(recipe)
    limit, tolerance = KL_LIMITS[recipe], TOLERANCES[recipe] * GOOD.largest_logit
    good = replace(GOOD, mean_kl=limit, block_equals_single=tolerance)
    check(good, parsed, "target")
    with pytest.raises(
        ParityError, match=f"the draft is too far from its source: mean KL .*{recipe}.* may have a mean"
    ):
        check(replace(good, mean_kl=1.01 * limit), parsed, "draft")
    for name in ("cached_equals_uncached", "block_equals_single", "after_rollback"):
        with pytest.raises(ParityError, match="the target is not consistent with itself"):
            check(replace(good, **{name: 1.01 * tolerance}), parsed, "target")


@pytest.mark.parametrize("name", ["mean_kl", "max_kl", "perplexity", "after_rollback", "largest_logit"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_refused(name: str, value: float):
    with pytest.raises(ParityError, match="not finite"):
        check(replace(GOOD, **{name: value}), parse_recipe("int8"), "target")


def test_a_weight_that_is_not_a_number_is_refused_and_nothing_written(tmp_path: Path):
    weights = tiny_weights(CONFIG)
    weights["down", 1, "weight"][3, 5] = np.nan
    with pytest.raises(ParityError, match="not finite"):
        write_bundle(BuiltSource(tiny_checkpoint(CONFIG, weights), parse_recipe("fp32")), None, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("recipe", "remedy"),
    [("int4-b128", "int4-mixed, int8 or w8a16"), ("int4-mixed", "recipe int8 or w8a16"), ("w8a8", "recipe w8a16"),
     ("w8a16", "recipe int8-b16"), ("int8", "recipe int8-b16"), ("int8-b16", "recipe fp32")],
)  # fmt: skip
def test_the_message_says_what_to_try(recipe: str, remedy: str):
    with pytest.raises(ParityError, match=rf"mean KL 3 nats.*{remedy}, or keep the bundle with --skip-verify"):
        check(replace(GOOD, mean_kl=3.0), parse_recipe(recipe), "target")


def test_the_line_of_a_model():
    assert summary(GOOD) == (
        "mean KL 0.004 nats, maximum 0.1, the same top token at 97.0%, perplexity 17.70 where the source has 17.60, on "
        "300 tokens, cached, block and rollback within 1 of logits up to 40"
    )
    assert summary(None) == summary(ParityReport(verified=False)) == "not verified"


def test_export_prints_a_line_for_each_model_and_can_skip_it(tmp_path: Path, capsys: pytest.CaptureFixture):
    source = str(write_gguf(tmp_path / "tiny.gguf"))
    arguments = ["export", "--target", source, "--draft", source, "--quant", "fp32", "-o"]
    assert run([*arguments, str(tmp_path / "one")]) == 0
    output = capsys.readouterr()
    assert output.out.strip() == str(tmp_path / "one")
    lines = [line for line in output.err.splitlines() if "mean KL" in line]
    assert [line.partition(":")[0] for line in lines] == ["target fp32", "draft fp32"]
    assert run([*arguments, str(tmp_path / "two"), "--skip-verify"]) == 0
    assert "draft fp32: not verified" in capsys.readouterr().err
    assert load_bundle(tmp_path / "two").manifest.target.parity == ParityReport(verified=False)


def rows_of(table: str) -> dict[tuple[str, str], str]:
    """Lines of the table of `verify` by model and by when they were measured."""
    lines = table.strip().splitlines()[1:]
    return {(line.split()[0], "now" if " now " in line else "at export"): line for line in lines}


def test_verify_measures_again(bundle_path: Path, capsys: pytest.CaptureFixture):
    assert run(["verify", str(bundle_path)]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert list(rows) == [(role, when) for role in ("target", "draft") for when in ("at export", "now")]
    assert rows["target", "now"].split()[3:7] == ["384", "-", "-", "-"]
    assert rows["target", "now"].split()[7] == rows["target", "at export"].split()[8]
    assert rows["draft", "now"].split()[7] != rows["target", "now"].split()[7]


def test_verify_compares_with_a_source(tmp_path: Path, capsys: pytest.CaptureFixture):
    path = tiny_bundle(tmp_path, draft_noise=None, verify=True)
    right = str(write_gguf(tmp_path / "right.gguf"))
    wrong = str(write_gguf(tmp_path / "wrong.gguf", weights=perturbed(tiny_weights(CONFIG), 0.2)))
    assert run(["verify", str(path), "--target", right]) == 0
    assert rows_of(capsys.readouterr().out)["target", "now"].split()[6] == "100.0%"
    assert run(["verify", str(path), "--target", wrong]) == 2
    output = capsys.readouterr()
    assert "the target is too far from its source" in output.err
    assert ("target", "now") in rows_of(output.out)
    assert run(["verify", str(path), "--draft", right]) == 2
    assert "has no draft; leave --draft out" in capsys.readouterr().err
    other = str(write_gguf(tmp_path / "other.gguf", {"vocab_size": 352}))
    assert run(["verify", str(path), "--target", other]) == 2


@pytest.mark.parametrize("name", ["target/model.onnx.data", "draft/model.onnx.data", "tokenizer.json"])
def test_verify_notices_a_flipped_bit(name: str, bundle_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    path = Path(shutil.copytree(bundle_path, tmp_path / "copy"))
    data = bytearray((path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (path / name).write_bytes(data)
    assert run(["verify", str(path)]) == 2
    output = capsys.readouterr()
    assert f"{name} changed since the export" in output.err
    assert output.out == ""


def test_verify_refuses_a_graph_that_does_not_agree_with_itself(copy: Path, capsys: pytest.CaptureFixture, monkeypatch):
    """The rollback is broken: the runtime forgets to make the cache shorter."""
    rollbacks: list[int] = []

    def forgetful(decoder: Decoder, length: int) -> None:
        rollbacks.append(length)
        decoder.cache.rollback(length if len(rollbacks) < 4 else length - 3)

    monkeypatch.setattr(Decoder, "rollback", forgetful)
    assert run(["verify", str(copy)]) == 2
    assert "blocks before and after a rollback differ" in capsys.readouterr().err


def test_a_bundle_of_an_older_release_has_no_report_and_is_verified_nevertheless(copy: Path, capsys):
    manifest = json.loads((copy / "pilotfish.json").read_text())
    del manifest["target"]["parity"]
    (copy / "pilotfish.json").write_text(json.dumps(manifest))
    assert load_bundle(copy).manifest.target.parity is None
    assert run(["verify", str(copy)]) == 0
    assert "not verified" in rows_of(capsys.readouterr().out)["target", "at export"]


def test_checksums_are_those_of_the_files(bundle_path: Path):
    for name, entry in load_bundle(bundle_path).manifest.files.items():
        assert sha256_of(bundle_path / name) == entry.sha256
