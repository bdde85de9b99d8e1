"""Where a source model comes from and under which licence: what its files say of themselves, never a guess."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pilotfish.export.gguf import GgufFile
from pilotfish.runtime.catalog import Catalog, HubSource, load_catalog

ORIGIN_FILE = ".pilotfish-origin.json"  # what `remember_origin` leaves in a folder fetched from the hub

_LOG = logging.getLogger(__name__)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPO_FOLDER = re.compile(r"models--(?P<owner>.+?)--(?P<name>.+)")
_HUB_URL = re.compile(r"https?://huggingface\.co/(?P<repo>[\w.-]+/[\w.-]+)")


@dataclass(frozen=True, slots=True)
class Provenance:
    """What is known of a model's origin; None is not known.

    `name` is the model's own name, `repository` a hub id or an address, `revision` a commit of it, `base_model` what it
    was made from. `licence` is an identifier such as `apache-2.0`; `licence_url` leads to the text.
    """

    name: str | None = None
    licence: str | None = None
    licence_url: str | None = None
    repository: str | None = None
    revision: str | None = None
    base_model: str | None = None

    def to_dict(self) -> dict[str, str]:
        """The fields that are known, as a manifest records them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def completed_by(self, other: Provenance) -> Provenance:
        """This, with what it does not know taken from `other`."""
        return replace(other, **self.to_dict())


def provenance_of(path: Path) -> Provenance:
    """The origin of a GGUF file or a Hugging Face folder. Where nothing is said, nothing is known; never an error.

    A catalog model that was downloaded has the catalog's licence and revision.
    """
    if path.is_dir():
        return provenance_from_folder(path)
    with GgufFile(path) as file:
        return _from_catalog(path, load_catalog()).completed_by(provenance_from_gguf(file.metadata))


def provenance_from_gguf(metadata: Mapping[str, Any]) -> Provenance:
    """The origin by the keys `general.*` of a GGUF file."""
    general = {key.removeprefix("general."): value for key, value in metadata.items() if key.startswith("general.")}
    address = _text(general.get("source.huggingface.repository")) or _repository(general.get("source.url"))
    return Provenance(
        name=_text(general.get("name")),
        licence=_licence(general.get("license"), general.get("license.name")),
        licence_url=_text(general.get("license.link")),
        repository=address or _repository(general.get("repo_url")) or _repository(general.get("url")),
        base_model=_repository(general.get("base_model.0.repo_url")) or _text(general.get("base_model.0.name")),
    )


def provenance_from_folder(folder: Path) -> Provenance:
    """The origin by where a Hugging Face folder lies, its model card, and its `config.json`, in this order."""
    card = _card(folder / "README.md")
    described = Provenance(
        name=_text(card.get("model_name")),
        licence=_licence(card.get("license"), card.get("license_name")),
        licence_url=_text(card.get("license_link")),
        base_model=_text(_first(card.get("base_model"))),
    )
    named = _text(_json(folder / "config.json").get("_name_or_path"))
    is_path = named is not None and (named.startswith((".", "/", "~")) or "\\" in named)
    by_config = Provenance(repository=None if is_path else named)
    return _remembered(folder).completed_by(_from_place(folder)).completed_by(described).completed_by(by_config)


def remember_origin(folder: Path, repository: str, revision: str) -> None:
    """Notes in a folder that was fetched from the hub where it came from. Raises OSError."""
    text = json.dumps({"repository": repository, "revision": revision})
    (folder / ORIGIN_FILE).write_text(text, encoding="utf-8")


def _remembered(folder: Path) -> Provenance:
    values = _json(folder / ORIGIN_FILE)
    return Provenance(repository=_text(values.get("repository")), revision=_text(values.get("revision")))


def _from_place(folder: Path) -> Provenance:
    """A snapshot of the hub client's cache is in `models--OWNER--NAME/snapshots/COMMIT`.

    A folder that the client was told to download to has the commit in a file for each file that it fetched.
    """
    folder = folder.absolute()
    repo = _REPO_FOLDER.fullmatch(folder.parent.parent.name)
    if folder.parent.name == "snapshots" and repo and _COMMIT.fullmatch(folder.name):
        return Provenance(repository=f"{repo['owner']}/{repo['name']}", revision=folder.name)
    fetched = folder / ".cache/huggingface/download/config.json.metadata"
    commit = _read(fetched).partition("\n")[0].strip()
    return Provenance(revision=commit if _COMMIT.fullmatch(commit) else None)


def _from_catalog(path: Path, catalog: Catalog) -> Provenance:
    """What the catalog says of a file that has the name and the size of one of its models."""
    num_bytes = path.stat().st_size
    model = next((m for m in catalog.models if (m.file_name, m.num_bytes) == (path.name, num_bytes)), None)
    if model is None:
        return Provenance()
    source = next((source for source in model.sources if isinstance(source, HubSource)), None)
    return Provenance(
        licence=model.licence.lower(),
        repository=source.repo_id if source else None,
        revision=source.revision if source else None,
    )


def _licence(identifier: object, name: object) -> str | None:
    """`other` says nothing; the name beside it does."""
    identifier = _text(_first(identifier))
    return _text(name) or identifier if identifier in (None, "other") else identifier


def _repository(value: object) -> str | None:
    """A hub id out of an address of the hub; any other address as it is."""
    text = _text(value)
    found = _HUB_URL.match(text) if text else None
    return found["repo"] if found else text


def _card(path: Path) -> Mapping[str, Any]:
    """The YAML between the first two lines of `---` of a model card; empty if there is none that can be read."""
    found = re.match(r"\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(\r?\n|$)", _read(path), re.DOTALL)
    if not found:
        return {}
    import yaml  # type: ignore[import-untyped]  # comes with huggingface_hub

    try:
        values = yaml.safe_load(found[1])
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        _LOG.warning("the front matter of %s is left out: %s", path, error)
        return {}
    return values if isinstance(values, dict) else {}


def _json(path: Path) -> Mapping[str, Any]:
    try:
        values = json.loads(_read(path) or "{}")
    except (ValueError, RecursionError) as error:
        _LOG.warning("%s is left out: %s", path, error)
        return {}
    return values if isinstance(values, dict) else {}


def _read(path: Path) -> str:
    """A text, or nothing if it is not there or not readable."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _first(value: object) -> object:
    return value[0] if isinstance(value, list) and value else value


def _text(value: object) -> str | None:
    """A string on one line, without lone surrogates, which no manifest could hold; None for anything else."""
    if not isinstance(value, str):
        return None
    return " ".join(value.encode("utf-8", "replace").decode().split()) or None
