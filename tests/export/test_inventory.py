"""What is listed, what is deleted, and above all what is not."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from pilotfish.export.inventory import IN_USE_S, bundles_in, find_entries, idle_leftovers, remove, take_inventory
from pilotfish.runtime.cli import run
from pilotfish.runtime.errors import OptionError, StorageError

LEFTOVERS = ("bundles/.broken.partial", "downloads/a.gguf.part", "downloads/b.gguf.hub", "downloads/b.gguf.pip",
             "downloads/tiny==1.0.whl", "downloads/owner--gone.lock")  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle_path: Path, lookup_bundle_path: Path) -> Path:
    """Two bundles and a damaged one, two downloads with their helper files, and leftovers that are a day old."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("PILOTFISH_CACHE", str(cache))
    shutil.copytree(bundle_path, cache / "bundles/pair")
    shutil.copytree(lookup_bundle_path, cache / "bundles/single")
    shutil.copytree(bundle_path, cache / "bundles/broken")
    (cache / "bundles/broken/tokenizer.json").unlink()
    (cache / "downloads/owner--name").mkdir(parents=True)
    (cache / "downloads/owner--name/config.json").write_text("{}" * 50)
    for name in ("a.gguf", "a.gguf.verified", "a.gguf.lock", "b.gguf.lock", "owner--name.lock"):
        (cache / "downloads" / name).write_text("x" * 10)
    for name in LEFTOVERS:
        path = cache / name
        if path.suffix in (".hub", ".pip", ".partial"):
            path.mkdir()
            path /= "inner"
        path.write_text("x" * 7)
    age(cache, 86_400)
    return cache


def age(folder: Path, seconds: float) -> None:
    then = time.time() - seconds
    for parent, _, names in os.walk(folder):
        for name in (".", *names):
            os.utime(Path(parent, name), (then, then))


def names_of(entries) -> list[str]:
    return [entry.path.name for entry in entries]


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_everything_is_listed_under_its_kind_and_with_its_size(cache: Path):
    inventory = take_inventory(cache)
    assert names_of(inventory.bundles) == ["broken", "pair", "single"]
    assert names_of(inventory.downloads) == ["a.gguf", "owner--name"]
    assert sorted(names_of(inventory.leftovers)) == sorted(Path(name).name for name in LEFTOVERS)
    assert [entry.num_bytes for entry in inventory.downloads] == [10, 100]
    assert {entry.num_bytes for entry in inventory.leftovers} == {7}
    pair = inventory.bundles[1]
    assert pair.num_bytes == sum(path.stat().st_size for path in pair.path.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda bundle: (bundle / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda bundle: (bundle / "pilotfish.json").unlink(), "has no pilotfish.json"),
        (lambda bundle: (bundle / "pilotfish.json").write_bytes(b"\xff{"), "not valid JSON"),
        (lambda bundle: (bundle / "pilotfish.json").write_text('{"format": 1}'), "is damaged"),
        (lambda bundle: (bundle / "pilotfish.json").write_text("[" * 100_000), "recursion"),
    ],
)
def test_a_damaged_bundle_is_listed_with_the_reason(cache: Path, capsys, damage, reason: str):
    damage(cache / "bundles/pair")
    entry = take_inventory(cache).bundles[1]
    assert entry.manifest is None
    assert entry.fault
    assert reason in entry.fault
    assert run(["ls"]) == 0
    assert "damaged: " in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("pair"))


def test_an_empty_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "none"))
    assert run(["ls"]) == 0
    assert "no bundles in" in capsys.readouterr().out
    assert run(["rm", "--leftovers"]) == 0
    assert "nothing to delete" in capsys.readouterr().out


def test_ls_prints_a_line_for_each(cache: Path, capsys: pytest.CaptureFixture):
    assert run(["ls"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert "fp32 + fp32" in lines["pair"]
    assert "512" in lines["pair"]
    assert "lookup" in lines["single"]
    assert "100 bytes" in lines["owner--name"]
    assert "7 bytes" in lines[".broken.partial"]


def test_ls_prints_json_and_takes_folders(cache: Path, bundle_path: Path, capsys: pytest.CaptureFixture):
    assert run(["ls", "--json", str(bundle_path), str(cache / "bundles"), str(cache / "downloads")]) == 0
    listed = json.loads(capsys.readouterr().out)
    names = [bundle["name"] for bundle in listed["bundles"]]
    assert names == ["broken", "pair", "single", bundle_path.name, "broken", "pair", "single"]
    by_name = {bundle["name"]: bundle for bundle in listed["bundles"]}
    assert by_name["single"]["draft"] is None
    assert by_name["pair"]["draft"] == "tiny"
    assert by_name["pair"]["context_length"] == 512
    assert "tokenizer.json is missing" in by_name["broken"]["fault"]
    assert [entry["name"] for entry in listed["downloads"]] == ["a.gguf", "owner--name"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(OptionError, match="none is not a folder"):
        bundles_in(tmp_path / "none")


def test_rm_deletes_what_is_named_with_its_helper_files_and_nothing_else(cache: Path):
    before = files_below(cache)
    assert run(["rm", "pair", "a.gguf", "owner--name", "broken", "--yes"]) == 0
    gone = before - files_below(cache)
    assert {name for name in gone if name.count("/") == 1} == {
        "bundles/pair", "bundles/broken", "downloads/a.gguf", "downloads/a.gguf.verified", "downloads/a.gguf.lock",
        "downloads/owner--name", "downloads/owner--name.lock",
    }  # fmt: skip
    assert files_below(cache) < before


@pytest.mark.parametrize(
    "name",
    ["../outside", "/etc", "bundles/pair", ".", "..", "", "pair/", "..\\outside", "a.gguf.lock", ".broken.partial"],
)
def test_rm_refuses_all_that_is_no_name_of_the_cache(cache: Path, name: str, capsys: pytest.CaptureFixture):
    (cache.parent / "outside").mkdir()
    before = files_below(cache.parent)
    assert run(["rm", "single", name, "--yes"]) == 2
    assert repr(name) in capsys.readouterr().err
    assert files_below(cache.parent) == before


def test_a_link_is_deleted_and_not_what_it_points_to(cache: Path, bundle_path: Path):
    (cache / "bundles/link").symlink_to(bundle_path)
    assert run(["rm", "link", "--yes"]) == 0
    assert not (cache / "bundles/link").is_symlink()
    assert (bundle_path / "pilotfish.json").exists()


def test_a_name_that_means_two_things_is_refused(cache: Path):
    (cache / "downloads/pair").write_text("x")
    with pytest.raises(OptionError, match="both a bundle and a download are named 'pair'"):
        find_entries(cache, ["pair"])


@pytest.mark.parametrize(("answer", "code", "stays"), [("n\n", 1, True), ("y\n", 0, False), ("", 130, True)])
def test_rm_asks_first(cache: Path, monkeypatch, capsys, answer: str, code: int, stays: bool):
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    assert run(["rm", "pair"]) == code
    assert str(cache / "bundles/pair") in capsys.readouterr().out
    assert (cache / "bundles/pair").exists() == stays


def test_rm_without_a_name_says_what_it_needs(cache: Path, capsys: pytest.CaptureFixture):
    assert run(["rm"]) == 2
    assert "--leftovers" in capsys.readouterr().err


def test_leftovers_go_and_all_else_stays(cache: Path):
    before = take_inventory(cache)
    assert run(["rm", "--leftovers", "--yes"]) == 0
    after = take_inventory(cache)
    assert (after.bundles, after.downloads) == (before.bundles, before.downloads)
    assert after.leftovers[1:] == ()
    assert names_of(after.leftovers) == ["b.gguf.lock"]  # an orphan only now that its unfinished download is gone


def test_leftovers_that_are_being_written_stay(cache: Path, capsys: pytest.CaptureFixture):
    inventory = take_inventory(cache)
    os.utime(cache / "bundles/.broken.partial/inner")
    idle = names_of(idle_leftovers(inventory, time.time()))
    assert sorted([*idle, ".broken.partial"]) == sorted(names_of(inventory.leftovers))
    assert names_of(idle_leftovers(inventory, time.time() + IN_USE_S + 1)) == names_of(inventory.leftovers)
    assert run(["rm", "--leftovers", "--yes"]) == 0
    assert "1 leftovers are left alone" in capsys.readouterr().out
    assert (cache / "bundles/.broken.partial/inner").exists()


def test_a_deletion_that_breaks_off_leaves_a_leftover_and_no_bundle(cache: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pilotfish.export.inventory.shutil.rmtree", refuse)
    with pytest.raises(StorageError, match=r"cannot use .*\.pair\.deleted\.partial: Permission denied"):
        remove(cache / "bundles/pair")
    inventory = take_inventory(cache)
    assert "pair" not in names_of(inventory.bundles)
    assert ".pair.deleted.partial" in names_of(inventory.leftovers)
    monkeypatch.undo()
    shutil.copytree(cache / "bundles/single", cache / "bundles/pair")
    remove(cache / "bundles/pair")
    assert ".pair.deleted.partial" not in names_of(take_inventory(cache).leftovers)
