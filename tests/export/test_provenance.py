"""Licence, repository and revision of a source, wherever they are written; and nothing made up where they are not."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest

from pilotfish.export.provenance import (
    Provenance,
    provenance_from_folder,
    provenance_from_gguf,
    provenance_of,
    remember_origin,
)
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.catalog import load_catalog
from pilotfish.runtime.cli import run
from support.checkpoint_files import write_folder, write_gguf

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CARD = """---
license: apache-2.0
base_model:
- owner/base
- owner/other
language: [en]
---
# A model

---
license: mit
---
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    return folder


def test_gguf_metadata_are_read():
    metadata = {
        "general.architecture": "llama", "general.name": "Tiny 1", "general.license": "apache-2.0",
        "general.license.link": "https://example.org/licence", "general.source.url": "https://huggingface.co/owner/tiny",
        "general.base_model.0.repo_url": "https://huggingface.co/owner/base/tree/main",
    }  # fmt: skip
    assert provenance_from_gguf(metadata) == Provenance(
        name="Tiny 1", licence="apache-2.0", licence_url="https://example.org/licence", repository="owner/tiny",
        base_model="owner/base",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, {}),
        ({"general.license": "other", "general.license.name": "llama3"}, {"licence": "llama3"}),
        ({"general.license": "other"}, {"licence": "other"}),
        ({"general.license": 7, "general.name": ["a"]}, {}),
        ({"general.license": " ", "general.name": "two\nlines"}, {"name": "two lines"}),
        ({"general.name": "\udcff"}, {"name": "?"}),
        ({"general.source.huggingface.repository": "a/b", "general.url": "https://c"}, {"repository": "a/b"}),
        ({"general.repo_url": "https://git.example.org/x"}, {"repository": "https://git.example.org/x"}),
        ({"general.base_model.0.name": "Base"}, {"base_model": "Base"}),
    ],
)
def test_what_a_gguf_says_badly_or_not_at_all_is_not_known(metadata: dict, expected: dict):
    found = provenance_from_gguf(metadata).to_dict()
    assert found == expected
    json.dumps(found).encode()


def test_a_gguf_file_is_opened_and_read(tmp_path: Path):
    assert provenance_of(write_gguf(tmp_path / "tiny.gguf")) == Provenance()
    writer = gguf.GGUFWriter(tmp_path / "named.gguf", "llama")
    writer.add_name("Named")
    writer.add_license("mit")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert provenance_of(tmp_path / "named.gguf") == Provenance(name="Named", licence="mit")


def test_the_model_card_is_read_up_to_its_end(folder: Path):
    (folder / "README.md").write_text(CARD)
    assert provenance_from_folder(folder) == Provenance(licence="apache-2.0", base_model="owner/base")


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("", {}),
        ("# no front matter\nlicense: mit\n", {}),
        ("---\nlicense: mit\n", {}),
        ("---\nlicense: [unclosed\n---\n", {}),
        ("---\n- a list\n---\n", {}),
        ("---\nlicense: !!python/object/apply:os.system [echo]\n---\n", {}),
        ("---\r\nlicense: mit\r\n---\r\n", {"licence": "mit"}),
        ("\ufeff---\nlicense: mit\n---", {"licence": "mit"}),
        ("---\nlicense: other\nlicense_name: qwen\nlicense_link: L\n---\n", {"licence": "qwen", "licence_url": "L"}),
        ("---\nlicense:\n- mit\n- apache-2.0\nbase_model: a/b\n---\n", {"licence": "mit", "base_model": "a/b"}),
    ],
)
def test_cards_of_all_kinds(folder: Path, card: str, expected: dict):
    (folder / "README.md").write_text(card, encoding="utf-8", newline="")
    assert provenance_from_folder(folder).to_dict() == expected


def test_a_card_that_is_no_text_is_left_out(folder: Path):
    (folder / "README.md").write_bytes(b"---\nlicense: \xff\n---\n")
    assert provenance_from_folder(folder) == Provenance()


def test_a_snapshot_of_the_hub_cache_tells_repository_and_revision(tmp_path: Path):
    folder = tmp_path / f"models--owner--my--tiny/snapshots/{COMMIT}"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"_name_or_path": "someone/else"}')
    assert provenance_from_folder(folder) == Provenance(repository="owner/my--tiny", revision=COMMIT)
    other = tmp_path / "models--owner--tiny/snapshots/main"
    other.mkdir(parents=True)
    assert provenance_from_folder(other) == Provenance()


def test_a_local_download_of_the_hub_client_tells_the_revision(folder: Path):
    metadata = folder / ".cache/huggingface/download/config.json.metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"{COMMIT}\netag\n1700000000.0\n")
    (folder / "config.json").write_text('{"_name_or_path": "owner/tiny"}')
    assert provenance_from_folder(folder) == Provenance(repository="owner/tiny", revision=COMMIT)
    metadata.write_text("damaged")
    assert provenance_from_folder(folder).revision is None


@pytest.mark.parametrize("path", ["/home/me/model", "./out", "~/model", "C:\\models\\x", ""])
def test_a_path_on_somebodys_disk_is_no_repository(folder: Path, path: str):
    (folder / "config.json").write_text(json.dumps({"_name_or_path": path}))
    assert provenance_from_folder(folder) == Provenance()


def test_what_a_download_remembered_goes_before_all_else(folder: Path):
    (folder / "config.json").write_text('{"_name_or_path": "someone/else"}')
    (folder / "README.md").write_text(CARD)
    remember_origin(folder, "owner/tiny", COMMIT)
    assert provenance_of(folder) == Provenance(
        licence="apache-2.0", repository="owner/tiny", revision=COMMIT, base_model="owner/base"
    )


def test_a_real_folder_without_a_card_says_nothing(tmp_path: Path):
    assert provenance_of(write_folder(tmp_path / "model")).to_dict() == {}


@pytest.mark.real_model
def test_a_catalog_model_has_the_licence_and_revision_of_the_catalog(smollm2: Path):
    model = load_catalog().model("smollm2-135m")
    found = provenance_of(smollm2)
    assert found.licence == "apache-2.0"
    assert (found.repository, found.revision) == (model.sources[0].repo_id, model.sources[0].revision)
    assert found.name


def test_a_bundle_records_licence_and_origin_of_its_models(tmp_path: Path):
    target = write_folder(tmp_path / "target")
    (target / "README.md").write_text("---\nlicense: mit\nbase_model: owner/base\n---\n")
    draft = write_gguf(tmp_path / "draft.gguf")
    assert run(["export", "--target", str(target), "--draft", str(draft), "-o", str(tmp_path / "bundle")]) == 0
    models = load_bundle(tmp_path / "bundle").manifest.models
    assert models["target"].source == {"name": "target", "licence": "mit", "base_model": "owner/base"}
    assert models["draft"].source["name"] == "draft.gguf"
    assert set(models["draft"].source) >= {"name", "sha256"}
