"""`pilotfish bench` on a tiny bundle: what it prints, keeps and draws. No measured duration is judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.runtime.bench.record import Record, read_record, write_record
from pilotfish.runtime.bench.report import Prices, comparison, differences, heading, report, summary
from pilotfish.runtime.cli import run
from pilotfish.runtime.errors import OptionError

PROMPTS = """
[[prompt]]
kind = "fish"
text = "the pilot fish"

[[prompt]]
kind = "shark"
length = "long"
text = "the shark follows the pilot fish"
"""

OPTIONS = ["--max-tokens", "10", "--repeats", "2", "-k", "3", "-k", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    (folder / "prompts.toml").write_text(PROMPTS)
    return folder


@pytest.fixture(scope="module")
def record(bundle_path: Path, folder: Path) -> Record:
    path = folder / "record.json"
    assert (
        run(["bench", str(bundle_path), *OPTIONS, "--prompts", str(folder / "prompts.toml"), "--json", str(path)]) == 0
    )
    return read_record(path)


def test_the_record_has_every_answer_and_where_it_came_from(record: Record, bundle_path: Path):
    assert record.arms == ["off", "auto", "model 2", "model 3"]
    assert len(record.answers) == 2 * 2 * 4
    assert {a.digest for a in record.of("auto")} == {a.digest for a in record.of("off")}
    assert record.settings["bundle"] == bundle_path.name
    assert record.settings["num_prompts"] == 2
    assert record.machine["versions"]["numpy"]
    assert record.peak_memory_bytes > 20e6


def test_the_summary_is_in_the_file(record: Record, folder: Path):
    values = json.loads((folder / "record.json").read_text())["summary"]
    assert values == summary(record, Prices())
    arm = values["model 2"]
    assert arm["outputs_equal_to_off"] == arm["outputs_compared"] == 4
    assert 0 < arm["acceptance_rate"]["value"] <= 1
    assert arm["tokens_per_round"]["value"] > 1
    assert set(arm["speed_up"]) == {"value", "low", "high", "is_measurable"}
    assert values["off"]["acceptance_rate"] is None


def slowed(record: Record, arm: str, factor: float) -> Record:
    """The same record with rounds that took `factor` times as long in an arm."""
    answers = [
        replace(a, round_s=tuple(s * factor for s in a.round_s)) if a.arm == arm else a for a in record.answers
    ]  # fmt: skip
    return replace(record, answers=tuple(answers))


def alike(record: Record) -> Record:
    """The same record where every round of two arms took 10 ms a token, give or take nothing."""
    answers = [
        replace(a, round_s=tuple(0.01 * n for n in a.round_tokens), time_to_first_token_s=0.05, request_s=0.2)
        for a in record.answers
        if a.arm in ("off", "auto")
    ]
    return replace(record, answers=tuple(answers))


def test_the_report_tells_a_speed_up_only_where_there_is_one(record: Record):
    same = "\n\n".join(report(alike(record), Prices()))
    assert "no measurable difference (1.00–1.00)" in same
    faster = "\n\n".join(report(slowed(alike(record), "off", 2.0), Prices()))
    rows = {line.split("  ")[0]: line for line in faster.splitlines()}
    assert rows["speed-up"].split("  ")[-1].strip() == "2.00 (2.00–2.00)"
    assert rows["outputs equal to off's"].split("  ")[-1].strip() == "4 of 4"
    assert "100.0 (100.0–100.0)" in rows["tokens/s"]
    assert "50.0 (50.0–50.0)" in rows["tokens/s"]
    assert any(line.startswith("shark") and "long" in line and "2.00" in line for line in faster.splitlines())
    assert "Peak memory" in faster


def test_prices_add_the_cost_of_an_answer(record: Record):
    assert "cost of" not in "".join(report(record, Prices()))
    rows = [line for line in "\n".join(report(alike(record), Prices(per_hour=36.0))).splitlines() if "cost of" in line]
    assert [row.split()[:4] for row in rows] == [["cost", "of", "1,000", "answers"]]


def test_notes_are_printed(record: Record):
    assert "note: beware" in list(heading(replace(record, notes=("beware",))))


def test_a_former_record_is_compared_arm_by_arm(record: Record):
    text = "\n".join(comparison(slowed(alike(record), "auto", 1.5), alike(record)))
    off, auto = (next(line for line in text.splitlines() if line.startswith(arm)) for arm in ("off", "auto"))
    assert "no measurable difference" in off
    assert "1.50 (1.50–1.50)" in auto
    assert "0.67 (0.67–0.67)" in auto
    assert auto.endswith("2 of 2")
    assert "nothing to compare" in "".join(comparison(replace(record, answers=()), record))


def test_prompts_that_only_one_record_has_are_not_compared(record: Record):
    """The second prompt is slow in the former record, which must not show."""
    before, now = alike(record), alike(record)
    slow = [
        replace(a, round_s=tuple(9 * s for s in a.round_s)) if a.kind == "shark" else a for a in before.answers
    ]  # fmt: skip
    fish = tuple(a for a in now.answers if a.kind == "fish")
    text = "\n".join(comparison(replace(before, answers=tuple(slow)), replace(now, answers=fish)))
    assert "over the 1 prompts of both" in text
    (auto,) = (line.split() for line in text.splitlines() if line.startswith("auto"))
    assert auto[1:3] == ["100.0", "100.0"]
    assert auto[-3:] == ["1", "of", "1"]


def test_what_differs_between_two_records_is_named(record: Record):
    other = replace(
        record, settings={**record.settings, "max_tokens": 11},
        machine={**record.machine, "load_average": 99.0, "versions": {**record.machine["versions"], "numpy": "1.0"}},
    )  # fmt: skip
    numpy = record.machine["versions"]["numpy"]
    assert list(differences(record, other)) == [
        "note: max_tokens was 10 then, and is 11 now",
        f"note: versions numpy was {numpy} then, and is 1.0 now",
    ]


def test_a_record_survives_the_file_and_a_damaged_one_is_refused(record: Record, tmp_path: Path):
    path = tmp_path / "record.json"
    write_record(path, record, {})
    assert read_record(path) == record
    values = json.loads(path.read_text())
    for text, message in (
        ("{", "cannot be read"),
        ("[]", "format None"),
        (json.dumps({**values, "format": 0}), "format 0"),
        (json.dumps({**values, "answers": [{}]}), "is damaged"),
    ):
        path.write_text(text)
        with pytest.raises(OptionError, match=message):
            read_record(path)


def test_the_command_prints_and_compares(
    record: Record, bundle_path: Path, folder: Path, capsys: pytest.CaptureFixture
):
    arguments = ["--prompts", str(folder / "prompts.toml"), "--compare", str(folder / "record.json"), *OPTIONS[:4]]
    assert run(["bench", str(bundle_path), *arguments, "--kinds", "fish", "--temperature", "0.8"]) == 0
    printed = capsys.readouterr().out
    assert "1 prompts × 2 repeats, at most 10 tokens an answer, temperature 0.8, seed 1" in printed
    (equal,) = (line for line in printed.splitlines() if line.startswith("outputs equal"))
    assert equal.count("2 of 2") == 2  # a seed's text is the same, whoever drafts
    assert f"compared with the record of {record.made_at}" in printed
    assert "note: temperature was 0.0 then, and is 0.8 now" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plot", "a.pdf"], "a .png or an .svg file"),
        (["--compare", "none.json"], "none.json cannot be read"),
        (["--prompts", "none.toml"], "none.toml cannot be read"),
        (["--kinds", "poem"], "the kind poem"),
        (["--repeats", "1"], "--repeats"),
        (["--drafter", "auto", "-k", "2"], "'auto' cannot draft"),
        (["--lengths", "context"], "is longer than|tokens long and the context holds"),
    ],
)
def test_wrong_input_is_refused_before_anything_runs(bundle_path: Path, capsys, arguments: list[str], message: str):
    assert run(["bench", str(bundle_path), *arguments]) == 2
    output = capsys.readouterr()
    assert any(part in output.err for part in message.split("|"))
    assert output.out == ""


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_plot_is_a_picture(record: Record, tmp_path: Path, suffix: str):
    pytest.importorskip("matplotlib")
    from pilotfish.runtime.bench.plot import save_plot

    path = tmp_path / f"plot.{suffix}"
    for shown in (record, replace(alike(record), notes=("beware",))):  # with and without fixed numbers of tokens
        save_plot(shown, path)
        start = path.read_bytes()[:2000]
        assert start.startswith(b"\x89PNG") if suffix == "png" else b"<svg" in start
    if suffix == "svg":
        text = path.read_text()
        assert "fish · short" in text
        assert "no measurable difference" in text


def test_without_matplotlib_the_error_names_the_extra(bundle_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pilotfish.runtime.bench.plot.find_spec", lambda _: None)
    assert run(["bench", str(bundle_path), "--plot", "a.png"]) == 2
    assert "pip install 'pilotfish[plot]'" in capsys.readouterr().err
