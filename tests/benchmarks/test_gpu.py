"""The script for a machine with a GPU, tried on the CPU: what its parts find, and that a run cut off goes on."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def gpu() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu", FOLDER / "gpu.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu"] = module  # where dataclasses look their annotations up
    sys.path.insert(0, str(FOLDER))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models of all tests are, each written once."""
    return tmp_path_factory.mktemp("bundles")


def test_a_device_agrees_with_itself(gpu: ModuleType, bundles: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu, "PARITY_RECIPES", ("fp32",))
    recipe, difference, largest, kl, same = (
        gpu.parity(gpu.Asked(bundles, "cpu", ["tiny"], "fp32")).splitlines()[2].split("|")[1:6]
    )
    assert (recipe.strip(), float(difference), float(kl), same.strip()) == ("fp32", 0, 0, "100.0%")
    assert float(largest) > 1


def test_a_draft_that_is_the_target_is_accepted_and_another_is_not(
    gpu: ModuleType, bundles: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gpu, "NUM_WRITTEN", 16)
    asked = gpu.Asked(bundles, "cpu", ["tiny"], "fp32")
    rows = [line.split("|")[1:] for line in gpu.speed(asked).splitlines()[2:]]
    accepted = {(row[0].strip(), row[1].strip(), row[2].strip()): row[4].strip() for row in rows}
    assert accepted["itself", "model", "4"] == "100%"
    assert int(accepted["another", "model", "4"].rstrip("%")) < 20
    # A row of logits comes whole to the host on the CPU: two models, and never more than five rows of each a pass.
    for line in gpu.traffic(asked).splitlines()[2:]:
        to_host, to_device = map(float, line.split("|")[3:5])
        assert 4 * 151.936 < to_host < 2 * 5 * 5 * 4 * 151.936
        assert 0 < to_device < 2


def test_passes_and_places_are_timed(gpu: ModuleType, bundles: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu, "NUM_WRITTEN", 8)
    asked = gpu.Asked(bundles, "cpu", ["tiny"], "fp32")
    passes, _, speeds = gpu.cuda_graphs(asked).partition("\n\n")
    found = [[cell.strip() for cell in line.split("|")[1:-1]] for line in passes.splitlines()[2:]]
    assert [row[:2] for row in found] == [["tiny", "off"], ["tiny", "on"]]
    assert all(float(cell) > 0 for row in found for cell in row[2:])
    for table, num_rows in ((speeds, 1), (gpu.placement(asked), 1)):  # on the CPU there is but one place
        rows = table.splitlines()[2:]
        assert len(rows) == num_rows
        assert all(float(row.split("|")[-2]) > 0 for row in rows)


def test_a_run_goes_on_where_it_was_cut_off(gpu: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls = []

    def good(asked: object) -> str:
        """Works."""
        calls.append("good")
        return "found"

    def bad(asked: object) -> str:
        """Fails at first."""
        calls.append("bad")
        if calls.count("bad") == 1:
            raise RuntimeError("the device went away")
        return "found later"

    monkeypatch.setattr(gpu, "PARTS", (good, bad))
    monkeypatch.setattr(sys, "argv", ["gpu.py", str(tmp_path), "--seconds", "-1"])
    gpu.main()
    assert (tmp_path / "gpu.md").read_text().count("not run: no time was left") == 2
    monkeypatch.setattr(sys, "argv", ["gpu.py", str(tmp_path)])
    gpu.main()
    first = (tmp_path / "gpu.md").read_text()
    assert "RuntimeError: the device went away" in first
    gpu.main()
    second = (tmp_path / "gpu.md").read_text()
    assert calls == ["good", "bad", "bad"]
    assert "found later" in second
    assert "went away" not in second
