"""`--quant auto`: what is measured is real, the choice follows from it, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.export.outline import outline_of_path
from pilotfish.export.parity import KL_LIMITS
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.recipe_choice import CANDIDATES, Candidate, choose, explained, measure_recipes
from pilotfish.export.sizes import ModelSize
from pilotfish.runtime.bundle import ParityReport, load_bundle
from pilotfish.runtime.cli import run
from pilotfish.runtime.costs import WidthCosts
from pilotfish.runtime.errors import ParityError, StorageError
from support.checkpoint_files import write_gguf


def candidate(recipe: str, mean_kl: float, one: float, five: float) -> Candidate:
    costs = WidthCosts({1: one, 5: five, 8: 2 * five})
    return Candidate(parse_recipe(recipe), 1000, ParityReport(verified=True, mean_kl=mean_kl), costs)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf")


def test_the_fastest_of_those_near_enough_is_chosen_for_each_role():
    found = [
        candidate("int8", 0.004, 3.0, 5.0),
        candidate("w8a8", 0.04, 4.0, 4.0),
        candidate("int4-mixed", 0.3, 2.0, 3.0),
        candidate("int4", 0.7, 1.0, 2.0),
    ]
    assert str(choose(found, "target").recipe) == "w8a8"
    assert str(choose(found, "draft").recipe) == "int4-mixed-b32"
    assert str(choose(found[:1], "target").recipe) == "int8-b32"
    assert "target: w8a8, the fastest in passes of 5 tokens" in explained(found, "target")


def test_where_none_is_near_enough_the_nearest_is_chosen_and_that_is_said():
    found = [candidate("int4", 0.9, 1.0, 1.0), candidate("int8", 0.2, 9.0, 9.0)]
    assert str(choose(found, "target").recipe) == "int8-b32"
    assert "int8-b32, the nearest to its source" in explained(found, "target")
    with pytest.raises(ParityError, match="export it with fp32"):
        choose([], "target")


def test_each_recipe_is_measured_and_nothing_is_left(source: Path, tmp_path: Path):
    recipes = [parse_recipe(text) for text in ("fp32", "int8", "w8a8")]
    found = measure_recipes(source, recipes, tmp_path / "cache", lambda what, done, total: None)
    assert [each.recipe for each in found] == recipes
    outline = outline_of_path(source)
    assert [each.num_bytes for each in found] == [ModelSize(outline, recipe).data_bytes for recipe in recipes]
    assert found[0].mean_kl < 1e-6 < found[1].mean_kl
    assert all(each.costs.seconds(5) > 0 for each in found)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_recipe_that_ruins_the_model_is_left_out(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(KL_LIMITS, "int8", 0.0)
    recipes = [parse_recipe("int8"), parse_recipe("fp32")]
    found = measure_recipes(source, recipes, tmp_path / "cache", lambda what, done, total: None)
    assert [str(each.recipe) for each in found] == ["fp32"]


def test_a_full_disk_is_not_taken_for_a_bad_recipe(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    usage = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr("pilotfish.export.staging.shutil.disk_usage", lambda _: usage)
    with pytest.raises(StorageError, match="bytes needed"):
        measure_recipes(source, CANDIDATES, tmp_path / "cache", lambda what, done, total: None)


def test_the_command_says_why(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    arguments = ["export", "--target", str(source), "--quant", "auto"]
    assert run([*arguments, "--dry-run"]) == 2
    assert "name one instead of auto" in capsys.readouterr().err
    assert run([*arguments, "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().err
    recipe = load_bundle(tmp_path / "out").manifest.target.recipe
    assert f"target: {recipe}, the " in said
    assert "5 tokens, ms" in said
