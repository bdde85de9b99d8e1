"""Costs are followed while running, and what was measured on a device is kept outside the bundle, or made again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish import runtime as pilotfish
from pilotfish.export.pair_measure import with_draft
from pilotfish.runtime import Engine, GenerationOptions
from pilotfish.runtime import engine as engine_module
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.calibration import Calibration, DraftCalibration, calibrate, keep_calibration, kept_calibration
from pilotfish.runtime.costs import WIDTHS, WidthCosts, measure
from pilotfish.runtime.decoder import Decoder
from support.tiny_models import tiny_bundle

DURATIONS = st.dictionaries(st.integers(1, 40), st.floats(1e-6, 10), min_size=1)


def test_widths_between_are_interpolated_and_wider_ones_extrapolated():
    costs = WidthCosts({1: 1.0, 5: 3.0, 9: 4.0})
    assert [costs.seconds(width) for width in (1, 2, 5, 7, 9, 13)] == [1.0, 1.5, 3.0, 3.5, 4.0, 5.0]
    assert WidthCosts({4: 0.5}).seconds(1) == WidthCosts({4: 0.5}).seconds(90) == 0.5


@given(DURATIONS, st.integers(1, 5000))
def test_a_cost_is_above_zero_and_lies_between_its_neighbours(seconds: dict[int, float], width: int):
    cost = WidthCosts(seconds).seconds(width)
    assert cost > 0
    for low, high in pairwise(sorted(seconds)):
        if low <= width <= high:
            ends = sorted((seconds[low], seconds[high]))
            assert ends[0] * (1 - 1e-9) <= cost <= ends[1] * (1 + 1e-9)


def test_a_device_that_slows_down_is_followed_at_all_widths():
    costs = WidthCosts({1: 1.0, 3: 1.5, 5: 2.0})
    for _ in range(60):
        costs.observe([5], 6.0)
    assert costs.seconds(5) == pytest.approx(6.0, rel=0.02)
    assert costs.seconds(1) == pytest.approx(3**0.5, rel=0.1)


def test_each_width_comes_to_its_own_cost():
    costs = WidthCosts({1: 1.0, 2: 1.2, 5: 2.0})
    for _ in range(200):
        costs.observe([1], 2.0)
        costs.observe([5], 2.0)
    assert costs.seconds(1) == pytest.approx(2.0, rel=0.02)
    assert costs.seconds(5) == pytest.approx(2.0, rel=0.02)


def test_forwards_one_after_the_other_are_told_by_their_sum():
    costs, truth = WidthCosts({1: 1.0, 9: 5.0}), WidthCosts({1: 2.0, 9: 10.0})
    for width in [1, 4, 7] * 60:
        costs.observe([width, 1, 1], truth.seconds(width) + 2 * truth.seconds(1))
    for width in (1, 4, 9):
        assert costs.seconds(width) == pytest.approx(truth.seconds(width), rel=0.05)


def test_a_forward_wider_than_any_measured_one_teaches_nothing():
    costs = WidthCosts({1: 1.0, 5: 2.0})
    costs.observe([6, 1], 900.0)
    assert costs.to_dict() == {"1": 1.0, "5": 2.0}


@pytest.mark.parametrize(("outlier", "expected"), [(1e6, 1.1), (0.0, 0.95)])
def test_an_outlier_moves_little(outlier: float, expected: float):
    costs = WidthCosts({1: 1.0})
    costs.observe([1], outlier)
    assert costs.seconds(1) == pytest.approx(expected)


@given(DURATIONS)
def test_costs_survive_json(seconds: dict[int, float]):
    kept = WidthCosts.from_dict(json.loads(json.dumps(WidthCosts(seconds).to_dict())))
    assert {width: kept.seconds(width) for width in seconds} == seconds


@pytest.mark.parametrize("values", [{}, {"0": 1.0}, {"1": 0.0}, {"1": -1}, {"1": float("nan")}, {"1": float("inf")},
                                    {"one": 1.0}])  # fmt: skip
def test_values_that_are_no_costs_are_refused(values: dict):
    with pytest.raises(ValueError, match=r"durations|int"):
        WidthCosts.from_dict(values)


@pytest.fixture
def target(bundle_path: Path) -> Iterator[Decoder]:
    bundle = load_bundle(bundle_path)
    model = bundle.manifest.target
    with Decoder(model, bundle.path / model.graph, device="cpu", context_length=64) as opened:
        yield opened


def test_measured_costs_are_medians_of_forwards_after_the_first(target: Decoder, monkeypatch: pytest.MonkeyPatch):
    now, calls = [0.0], list[int]()
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def forward(token_ids: list[int], num_logits: int, num_largest: int) -> None:
        calls.append(len(token_ids))
        turn = calls.count(len(token_ids))
        now[0] += len(token_ids) * {1: 50.0, 2: 1.0, 3: 9.0}.get(turn, 2.0)

    monkeypatch.setattr(target, "forward", forward)
    assert measure(target).to_dict() == {str(width): 2.0 * width for width in WIDTHS}
    assert calls == list(WIDTHS) * 4  # by turns, so that a busy moment meets all of them


def test_measuring_leaves_the_cache_and_takes_no_width_that_does_not_fit(target: Decoder):
    target.forward(list(range(61)), 0)
    assert list(measure(target).to_dict()) == ["1", "2", "3"]
    assert target.length == 61


def test_padded_forwards_are_timed_once_and_cost_the_same(target: Decoder, monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []
    forward = target.forward

    def counted(token_ids: Sequence[int], *rest: int, **named: int) -> object:
        calls.append(target.padded(len(token_ids)))
        return forward(token_ids, *rest, **named)

    monkeypatch.setattr(target, "forward", counted)
    target.exact_widths = (2, 4, 6, 10, 18)
    found = measure(target)
    assert calls == [2, 4, 6, 10, 18] * 4
    assert list(found.to_dict()) == ["1", "2", "3", "4", "5", "6", "7", "10", "11", "18"]
    assert all(found.seconds(width) == found.seconds(target.padded(width)) for width in range(1, 18))


def calibration(first_width: int = 3) -> Calibration:
    return Calibration(
        (first_width, 9, 17), 0.125, WidthCosts({1: 0.5, 5: 0.75}), (DraftCalibration(WidthCosts({1: 0.1}), 0.625),)
    )


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the test's own, which does not exist yet."""
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Calibration]:
    """All calibrations that engines make from here on."""
    made: list[Calibration] = []

    def counted(*args: object, **options: object) -> Calibration:
        made.append(calibrate(*args, **options))
        return made[-1]

    monkeypatch.setattr(engine_module, "calibrate", counted)
    return made


def values(found: Calibration | None) -> tuple | None:
    if found is None:
        return None
    drafts = [(draft.costs.to_dict(), draft.agreement) for draft in found.drafts]
    costs = found.target_costs.to_dict()
    return found.exact_widths, found.near_tie_margin, costs, drafts


def load_and_close(path: Path, **options: object) -> tuple:
    with pilotfish.load(path, **options) as engine:
        assert list(engine.generate("the shark", GenerationOptions(max_tokens=4)))
        return values(engine.calibration)


def test_what_is_kept_comes_back_for_its_own_setup_only(cache: Path):
    keep_calibration("here", calibration(3))
    keep_calibration("there", calibration(5))
    assert values(kept_calibration("here")) == values(calibration(3))
    assert values(kept_calibration("there")) == values(calibration(5))
    assert kept_calibration("elsewhere") is None
    keep_calibration("here", calibration(7))
    assert values(kept_calibration("here")) == values(calibration(7))
    assert len(list((cache / "calibrations").iterdir())) == 2  # nothing half-written is left


def test_a_bundle_without_a_draft_keeps_no_costs_of_one(cache: Path, lookup_bundle_path: Path):
    load_and_close(lookup_bundle_path)
    (path,) = (cache / "calibrations").iterdir()
    assert json.loads(path.read_text())["drafts"] == []


def test_a_second_load_measures_nothing(cache: Path, bundle_path: Path, measured: list[Calibration]):
    with pilotfish.load(bundle_path) as engine:
        first = values(engine.calibration)
    with pilotfish.load(bundle_path) as engine:
        assert values(engine.calibration) == first
        assert engine._context.max_width == engine.calibration.max_width
        assert engine._context.target.exact_widths == engine.calibration.exact_widths
    assert len(measured) == 1
    assert len(list((cache / "calibrations").iterdir())) == 1


def test_another_setup_is_measured_for_itself(
    cache: Path, bundle_path: Path, lookup_bundle_path: Path, measured: list[Calibration],
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    def open_on_cpu(*args: object, device: str, **options: object) -> Decoder:
        return Decoder(*args, device="cpu", **options)

    def load_with_another_runtime() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(onnxruntime, "__version__", "0.0.1")
            load_and_close(bundle_path)

    monkeypatch.setattr(engine_module, "Decoder", open_on_cpu)
    setups: tuple[Callable[[], object], ...] = (
        lambda: load_and_close(bundle_path),
        lambda: load_and_close(lookup_bundle_path),
        lambda: load_and_close(bundle_path, num_threads=1),
        lambda: load_and_close(bundle_path, exact=False),
        lambda: load_and_close(bundle_path, device="cuda"),
        lambda: load_and_close(bundle_path, device="cuda", draft_device="cpu"),
        load_with_another_runtime,
    )
    for number, load in enumerate(setups, 1):
        for _ in range(2):
            load()
            assert len(measured) == number
    assert len(list((cache / "calibrations").iterdir())) == len(setups)


def test_a_draft_that_is_only_tried_is_measured_for_itself(
    cache: Path, bundle_path: Path, lookup_bundle_path: Path, measured: list[Calibration]
):
    target, other = load_bundle(lookup_bundle_path), load_bundle(bundle_path)
    for draft in (None, target, other):
        for _ in range(2):
            with Engine(with_draft(target, draft)):
                pass
    assert [len(each.drafts) for each in measured] == [0, 1, 1]


def test_what_was_measured_in_a_small_context_is_not_taken_for_a_large_one(cache: Path, bundle_path: Path):
    load_and_close(bundle_path, context_length=8)
    with pilotfish.load(bundle_path) as engine:
        assert list(engine.calibration.target_costs.to_dict()) == [str(width) for width in WIDTHS]


DAMAGED = (
    b"", b"{", b"null", b"[]", b"3", b'"text"', b"\xff\xfe\x00", b"{}",
    {"format": 0}, {"format": 2}, {"drafts": None}, {"drafts": [{"s": {"1": 0.1}}]},
    {"drafts": [{"s": {"1": 0.1}, "agreement": 2.0}]}, {"drafts": [{"s": {"1": 0.1}, "agreement": "high"}]},
    {"fingerprint": "another"}, {"exact_widths": "wide"}, {"exact_widths": None},
    {"exact_widths": 3}, {"near_tie_margin": {}}, {"target_s": {}}, {"target_s": None}, {"target_s": [1, 2]},
    {"target_s": {"1": -1.0}}, {"target_s": {"1": float("nan")}}, {"drafts": 3}, {"drafts": [3]},
    {"drafts": [{"s": {"x": 1.0}, "agreement": 0.5}]},
)  # fmt: skip
UNUSABLE = (
    {"exact_widths": []}, {"exact_widths": [1, 2]}, {"exact_widths": [2, 19]}, {"exact_widths": [4, 2]},
    {"exact_widths": [2, 2]}, {"exact_widths": [float("inf")]}, {"near_tie_margin": float("nan")},
    {"near_tie_margin": 10**400},
)  # fmt: skip


@pytest.mark.parametrize("damage", [*DAMAGED, *UNUSABLE])
def test_a_damaged_file_is_as_none(cache: Path, damage: bytes | dict):
    keep_calibration("here", calibration())
    (path,) = (cache / "calibrations").iterdir()
    kept = path.read_bytes()
    path.write_bytes(damage if isinstance(damage, bytes) else json.dumps(json.loads(kept) | damage).encode())
    assert kept_calibration("here") is None


def test_a_file_cut_anywhere_is_as_none(cache: Path):
    keep_calibration("here", calibration())
    (path,) = (cache / "calibrations").iterdir()
    kept = path.read_bytes()
    for length in range(len(kept.rstrip())):
        path.write_bytes(kept[:length])
        assert kept_calibration("here") is None, kept[:length]


@pytest.mark.parametrize("damage", [b"{", b'{"format": 99}'])
def test_a_damaged_file_is_measured_again_and_replaced(
    cache: Path, bundle_path: Path, measured: list[Calibration], damage: bytes, caplog: pytest.LogCaptureFixture
):
    load_and_close(bundle_path)
    (path,) = (cache / "calibrations").iterdir()
    path.write_bytes(damage)
    load_and_close(bundle_path)
    assert len(measured) == 2
    assert ("made again" in caplog.text) == (damage == b"{")  # another version is no reason to warn
    load_and_close(bundle_path)
    assert len(measured) == 2


def test_nothing_is_written_into_the_bundle(cache: Path, tmp_path: Path):
    path = tiny_bundle(tmp_path)

    def state() -> dict[Path, tuple[int, int]]:
        return {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(path.rglob("*"))}

    before = state()
    load_and_close(path)
    load_and_close(path, num_threads=1)
    with pilotfish.load(path) as engine:
        engine.calibrate()
    assert state() == before
    assert len(list((cache / "calibrations").iterdir())) == 2


def test_costs_that_drift_while_running_are_not_kept(cache: Path, bundle_path: Path):
    load_and_close(bundle_path)
    (path,) = (cache / "calibrations").iterdir()
    kept = path.read_bytes()
    with pilotfish.load(bundle_path) as engine:
        before = engine.calibration.target_costs.to_dict()
        list(engine.generate("the shark", GenerationOptions(max_tokens=60)))
        assert engine.calibration.target_costs.to_dict() != before
    assert path.read_bytes() == kept


def test_a_cache_folder_that_cannot_be_made_costs_only_time(
    cache: Path, bundle_path: Path, measured: list[Calibration], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):  # fmt: skip
    def refuse(path: Path, *args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    load_and_close(bundle_path)
    load_and_close(bundle_path)
    assert len(measured) == 2
    assert caplog.text.count("cannot be kept") == 2
    assert not cache.exists()


def test_a_folder_in_the_place_of_the_file_costs_only_time(cache: Path, bundle_path: Path, measured: list[Calibration]):
    load_and_close(bundle_path)
    (path,) = (cache / "calibrations").iterdir()
    path.unlink()
    path.mkdir()
    load_and_close(bundle_path)
    load_and_close(bundle_path)
    assert len(measured) == 3
    assert list((cache / "calibrations").iterdir()) == [path]


def test_a_file_in_the_place_of_the_cache_folder_costs_only_time(cache: Path, bundle_path: Path):
    cache.write_text("not a folder")
    load_and_close(bundle_path)


def test_a_read_only_file_system_costs_only_time(cache: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: Path, *args: object, **options: object) -> None:
        raise OSError(30, "Read-only file system", str(path))  # which unlink says too, whether the file is there or not

    (cache / "calibrations").mkdir(parents=True)
    for name in ("open", "unlink", "replace"):
        monkeypatch.setattr(Path, name, refuse)
    keep_calibration("here", calibration())
