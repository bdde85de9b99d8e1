"""A bundle is read whole or refused with the reason."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.runtime.bundle import load_bundle, manifest_to_json
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.errors import BundleError


@pytest.fixture
def copy(bundle_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle_path, tmp_path / "copy"))


def edit(path: Path, **changes: object) -> None:
    manifest = path / "pilotfish.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))


def test_a_manifest_survives_a_round_trip(bundle_path: Path):
    manifest = load_bundle(bundle_path).manifest
    assert json.loads(manifest_to_json(manifest)) == json.loads((bundle_path / "pilotfish.json").read_text())
    assert manifest.draft is not None
    assert manifest.target.cache_bytes_per_token == 2 * 2 * 2 * 16 * 4


def test_a_draft_may_have_a_tokenizer_of_its_own(copy: Path):
    manifest = load_bundle(copy).manifest
    assert manifest.tokenizer_of(manifest.draft) is manifest.tokenizer_of(manifest.target) is manifest.tokenizer
    own = replace(manifest, draft_tokenizer=replace(manifest.tokenizer, end_token_ids=(7,)))
    (copy / "pilotfish.json").write_text(manifest_to_json(own))
    manifest = load_bundle(copy).manifest
    assert manifest.tokenizer_of(manifest.draft).end_token_ids == (7,)
    assert manifest.tokenizer_of(manifest.target).end_token_ids == (1,)


@pytest.mark.parametrize("masked_ids", [None, [3]])
def test_a_tokenizer_of_drafts_needs_one_with_ids_of_its_own(copy: Path, masked_ids: list[int] | None):
    values = json.loads((copy / "pilotfish.json").read_text())
    drafts = [] if masked_ids is None else [values["drafts"][0] | {"masked_ids": masked_ids}]
    edit(copy, draft_tokenizer=values["tokenizer"], drafts=drafts)
    with pytest.raises(BundleError, match="draft_tokenizer belongs to drafts that have ids of their own"):
        load_bundle(copy)


def test_a_tokenizer_of_a_draft_that_is_none_is_refused(copy: Path):
    tokenizer = json.loads((copy / "pilotfish.json").read_text())["tokenizer"]
    edit(copy, format=2, draft_tokenizer=tokenizer | {"file": "draft/tokenizer.json"})
    own = json.loads((copy / "tokenizer.json").read_text())
    for text, reason in (("{}", "is not a tokenizer"), (json.dumps(own | {"decoder": None}), "of its own, and tokens")):
        (copy / "draft/tokenizer.json").write_text(text)
        with pytest.raises(BundleError, match=reason):
            Engine(load_bundle(copy))


def test_every_file_is_listed_with_its_size(bundle_path: Path):
    found = {p.relative_to(bundle_path).as_posix(): p.stat().st_size for p in bundle_path.rglob("*") if p.is_file()}
    del found["pilotfish.json"]
    assert {name: entry.size for name, entry in load_bundle(bundle_path).manifest.files.items()} == found


@pytest.mark.parametrize("version", [0, 3, None, "1"])
def test_another_version_is_refused(copy: Path, version: object):
    edit(copy, format=version)
    with pytest.raises(BundleError, match=r"bundle format .* reads formats 1 and 2; export it again"):
        load_bundle(copy)


def test_a_folder_that_is_no_bundle_is_refused(tmp_path: Path):
    with pytest.raises(BundleError, match="is not a bundle"):
        load_bundle(tmp_path)
    with pytest.raises(BundleError, match="is not a bundle"):
        load_bundle(tmp_path / "missing")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": 1}', "\ufeff{}"])
def test_a_malformed_manifest_is_refused(copy: Path, text: str):
    (copy / "pilotfish.json").write_text(text)
    with pytest.raises(BundleError, match="export"):
        load_bundle(copy)


def test_every_prefix_of_a_manifest_is_refused(copy: Path):
    text = (copy / "pilotfish.json").read_text()
    for length in range(0, len(text) - 2, 37):
        (copy / "pilotfish.json").write_text(text[:length])
        with pytest.raises(BundleError):
            load_bundle(copy)


def test_a_missing_or_truncated_file_is_named(copy: Path):
    data = copy / "target/model.onnx.data"
    size = data.stat().st_size
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(BundleError, match=rf"model\.onnx\.data has {size - 1} bytes instead of {size}"):
        load_bundle(copy)
    data.unlink()
    with pytest.raises(BundleError, match=r"model\.onnx\.data is missing"):
        load_bundle(copy)


@pytest.mark.parametrize("change", [{"num_layers": 0}, {"head_dim": "64"}, {"unknown": 1}])
def test_a_model_entry_is_checked(copy: Path, change: dict):
    target = json.loads((copy / "pilotfish.json").read_text())["target"]
    edit(copy, target=target | change)
    with pytest.raises(BundleError, match=next(iter(change))):
        load_bundle(copy)
