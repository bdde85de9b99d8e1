"""Measuring with a clock that is wound by hand, on a tiny real bundle; and meters that read made-up devices."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from pilotfish.runtime import Engine, GenerationOptions
from pilotfish.runtime.bench.measure import answer, measured
from pilotfish.runtime.bench.meters import (
    GpuMeter,
    Meters,
    Usage,
    energy_between,
    energy_files,
    peak_memory_bytes,
    read_energy,
)
from pilotfish.runtime.bench.plan import Arm, Run, schedule
from pilotfish.runtime.bench.prompts import Prompt
from support.fake_nvml import nvml

PROMPT = Prompt("own", "short", "the pilot fish")
OPTIONS = GenerationOptions(max_tokens=12)


def test_every_piece_of_text_is_timed_by_the_clock(engine: Engine):
    """The clock goes on by one second whenever it is read: at the start, at each piece of text, at the end."""
    with Meters(on_gpu=False) as meters:
        found = answer(engine, Run(PROMPT, Arm("off"), 3), OPTIONS, meters, itertools.count().__next__)
    assert found.time_to_first_token_s == 1
    assert found.round_s == (1,) * 11
    assert found.round_tokens == (1,) * 11
    assert found.request_s == 13
    assert (found.num_tokens, found.num_drafted, found.arm, found.repeat) == (12, 0, "off", 3)
    assert (found.kind, found.length, found.prompt, found.finish_reason) == ("own", "short", PROMPT.key, "length")


def test_drafted_tokens_belong_to_their_round_and_the_output_is_the_same(engine: Engine):
    with Meters(on_gpu=False) as meters:
        alone = answer(engine, Run(PROMPT, Arm("off"), 0), OPTIONS, meters)
        drafted = answer(engine, Run(PROMPT, Arm("model", 3), 0), OPTIONS, meters)
        longer = answer(engine, Run(PROMPT, Arm("off"), 0), GenerationOptions(max_tokens=13), meters)
    assert drafted.num_accepted > 0
    assert sum(drafted.round_tokens) == 11
    assert max(drafted.round_tokens) > 1
    assert drafted.digest == alone.digest != longer.digest
    assert drafted.draft_s > 0
    assert 0 < drafted.target_s <= drafted.decode_s < drafted.request_s


def test_each_run_is_answered_and_the_warm_up_is_not_told(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    runs, asked = schedule([PROMPT, Prompt("own", "short", "the shark")], [Arm("off"), Arm("suffix", 2)], 2), []
    generate = engine.generate

    def counted(messages, options):
        asked.append((messages[0]["content"], options.draft))
        return generate(messages, options)

    monkeypatch.setattr(engine, "generate", counted)
    with Meters(on_gpu=False) as meters:
        found = list(measured(engine, runs, OPTIONS, meters, num_warm_up=2))
    assert [(a.prompt, a.arm, a.repeat) for a in found] == [(r.prompt.key, r.arm.name, r.repeat) for r in runs]
    assert asked[:4] == [(PROMPT.text, "off"), (PROMPT.text, "suffix")] * 2
    assert len(asked) == 4 + len(runs)


def zone(folder: Path, name: str, energy: str, called: str = "package-0") -> None:
    (folder / name).mkdir()
    for file, text in (("name", called), ("energy_uj", energy), ("max_energy_range_uj", "999")):
        (folder / name / file).write_text(text + "\n")


def test_energy_is_that_of_all_packages_and_survives_a_counter_that_begins_anew(tmp_path: Path):
    zone(tmp_path, "intel-rapl:0", "100")
    zone(tmp_path, "intel-rapl:1", "900", "package-1")
    zone(tmp_path, "intel-rapl:2", "5", "psys")  # the whole board, packages included
    zone(tmp_path, "intel-rapl:0:0", "7", "core")
    files = energy_files(tmp_path)
    assert [file.parent.name for file in files] == ["intel-rapl:0", "intel-rapl:1"]
    before = read_energy(files)
    (tmp_path / "intel-rapl:0/energy_uj").write_text("350")
    (tmp_path / "intel-rapl:1/energy_uj").write_text("50")
    assert energy_between(before, read_energy(files), files) == pytest.approx((250 + 150) / 1e6)
    with Meters(on_gpu=False, powercap=tmp_path) as meters:
        meters.start()
        (tmp_path / "intel-rapl:0/energy_uj").write_text("360")
        assert meters.stop() == Usage(energy_j=pytest.approx(10 / 1e6))


def test_counters_that_cannot_be_read_measure_nothing(tmp_path: Path):
    assert energy_files(tmp_path / "none") == {}
    zone(tmp_path, "intel-rapl:0", "100")
    zone(tmp_path, "intel-rapl:1", "not for you", "package-1")
    assert energy_files(tmp_path) == {}
    with Meters(on_gpu=False, powercap=tmp_path) as meters:
        meters.start()
        assert meters.stop() == Usage()
        assert not meters.measures_energy


@pytest.mark.parametrize(
    ("visible", "name"),
    [({}, "a GPU 0"), ({"CUDA_VISIBLE_DEVICES": "1,0"}, "a GPU 1"), ({"CUDA_VISIBLE_DEVICES": "GPU-7c"}, "a GPU-7c")],
)
def test_the_gpu_is_the_one_that_this_process_may_use(visible: dict, name: str):
    assert GpuMeter(nvml([0]), visible).name == name


def test_the_gpu_is_sampled_while_a_request_runs():
    meter = GpuMeter(nvml([0, 1_000, 3_500]), {})
    meter.start()
    deadline = time.monotonic() + 30
    while not meter.peak_bytes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert meter.stop() == (2.5, 0.6)
    assert meter.peak_bytes == 5_000
    meter.close()


def test_an_old_gpu_counts_no_energy():
    meter = GpuMeter(nvml(None), {})
    meter.start()
    assert meter.stop()[0] is None
    meter.close()


def test_without_nvml_the_note_says_why(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with Meters(on_gpu=True) as meters:
        assert "pip install nvidia-ml-py" in meters.note
        assert not meters.measures_energy
        assert meters.gpu_name is meters.peak_gpu_bytes is None


def test_the_memory_of_this_process_is_more_than_numpy_takes():
    assert 20e6 < peak_memory_bytes() < 1e12
