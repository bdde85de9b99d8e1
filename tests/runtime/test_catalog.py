"""The catalog: what comes with pilotfish, what is refused, and where the folders are."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from pilotfish.runtime.catalog import (
    HubSource,
    WheelSource,
    bundles_dir,
    cache_dir,
    downloads_dir,
    load_catalog,
    parse_catalog,
)
from pilotfish.runtime.errors import OptionError

VALID = f"""
default_pair = "tiny"

[models.tiny]
description = "a tiny model"
licence = "Apache-2.0"
file_name = "tiny.gguf"
num_bytes = 10
sha256 = "{"ab" * 32}"
context_length = 128

[[models.tiny.sources]]
kind = "hub"
repo_id = "owner/tiny"
revision = "{"c0" * 20}"
file_name = "tiny.gguf"

[[models.tiny.sources]]
kind = "wheel"
requirement = "tiny-model==1.0"
member = "tiny_model/tiny.gguf"

[pairs.tiny]
description = "tiny with itself"
target = "tiny"
target_recipe = "int8"
bundle_bytes = 20
memory_bytes = 30
draft = "tiny"
draft_recipe = "int4"
"""


def test_the_catalog_that_comes_with_pilotfish() -> None:
    catalog = load_catalog()
    pair = catalog.default_pair
    model = catalog.model(pair.target)
    assert (pair.name, pair.target_recipe, pair.draft, pair.draft_recipe) == (
        "smollm2-135m",
        "int8-b16",
        None,
        None,
    )
    assert (model.num_bytes, model.context_length, model.licence) == (98362432, 8192, "Apache-2.0")
    assert [type(source) for source in model.sources] == [HubSource, WheelSource]


def test_every_field_is_read() -> None:
    catalog = parse_catalog(VALID)
    model = catalog.model("tiny")
    assert model.file_name == "tiny.gguf"
    assert model.sources == (
        HubSource("owner/tiny", "c0" * 20, "tiny.gguf"),
        WheelSource("tiny-model==1.0", "tiny_model/tiny.gguf"),
    )
    assert (catalog.pair("tiny").draft, catalog.pair("tiny").draft_recipe) == ("tiny", "int4")
    assert (catalog.pair("tiny").bundle_bytes, catalog.pair("tiny").memory_bytes) == (20, 30)
    assert catalog.download_bytes(catalog.pair("tiny")) == 10
    assert (catalog.model_names, catalog.pair_names) == (("tiny",), ("tiny",))


def test_an_unknown_name_lists_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"no model named 'smollm2'.*did you mean 'smollm2-135m'.*known: smollm2"):
        load_catalog().model("smollm2")
    with pytest.raises(OptionError, match=r"no pair named 'xyz' in the catalog \(known: smollm2-135m\)"):
        load_catalog().pair("xyz")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('default_pair = "tiny"', 'default_pair = "other"', "no pair named 'other'"),
        ('default_pair = "tiny"', "", "expected .'default_pair', 'models', 'pairs'"),
        ("num_bytes = 10", "num_bytes = 0", r"num_bytes \(0\)"),
        ("num_bytes = 10", 'num_bytes = "10"', "num_bytes is '10': expected int"),
        ("context_length = 128", "", r"lacks the keys \['context_length'\]"),
        ("context_length = 128", "context_length = 128\ncolour = 1", r"unknown keys \['colour'\]"),
        ('sha256 = "abab', 'sha256 = "ABab', "64 lower-case hex digits"),
        ('licence = "Apache-2.0"\nfile_name = "', 'licence = "Apache-2.0"\nfile_name = "../', "a bare name"),
        ('revision = "c0c0', 'revision = "c0', "a full commit id"),
        ('repo_id = "owner/tiny"', 'repo_id = "tiny"', "owner/name"),
        ('"tiny-model==1.0"', '"--index-url=x"', "name==version"),
        ('"tiny-model==1.0"', '"tiny-model>=1.0"', "name==version"),
        ('kind = "wheel"', 'kind = "torrent"', "kind 'torrent': use 'hub' or 'wheel'"),
        ('target = "tiny"', 'target = "tiny2"', "no model named 'tiny2'"),
        ('draft = "tiny"', 'draft = "tinier"', "no model named 'tinier'"),
        ('draft_recipe = "int4"', "", "give both or neither"),
        ("[models.tiny]", "[models.Tiny]", "Tiny"),
        (
            "bundle_bytes = 20",
            "bundle_bytes = 0",
            "bundle_bytes .0. and memory_bytes .30. must be positive",
        ),
        ("[pairs.tiny]", "[pairs.tiny", "not valid TOML"),
    ],
)
def test_a_wrong_entry_is_refused(old: str, new: str, message: str) -> None:
    assert VALID.count(old) == 1
    with pytest.raises(OptionError, match=message):
        parse_catalog(VALID.replace(old, new))


def test_a_model_without_sources_is_refused() -> None:
    start, end = VALID.index("[[models.tiny.sources]]"), VALID.index("[pairs.tiny]")
    with pytest.raises(OptionError, match="'tiny' has no sources"):
        parse_catalog(VALID[:start] + VALID[end:])


def test_the_cache_folder_is_the_platforms_unless_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PILOTFISH_CACHE", raising=False)
    assert cache_dir() == platformdirs.user_cache_path("pilotfish", appauthor=False)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    assert (bundles_dir(), downloads_dir()) == (tmp_path / "bundles", tmp_path / "downloads")
    monkeypatch.setenv("PILOTFISH_CACHE", "~/elsewhere")
    assert cache_dir() == Path.home() / "elsewhere"
