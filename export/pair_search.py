"""Looks for drafts that fit a target: among given models, the catalog, what was downloaded, and local folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pilotfish.export.inventory import take_inventory
from pilotfish.export.outline import AnyOutline, find_outline
from pilotfish.export.pairing import Pairing, difference, pair_tokenizers
from pilotfish.export.quantize import Recipe
from pilotfish.export.sizes import ModelSize
from pilotfish.runtime.catalog import Catalog
from pilotfish.runtime.errors import OptionError, PilotfishError


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model beside a target. Without an `outline` it could not be looked at, and without a `pairing` it cannot draft.

    `fault` says why, or why only text can pass. `source` is what `export --draft` takes. `ratio` is its number of
    parameters ÷ the target's.
    """

    source: str
    outline: AnyOutline | None = None
    pairing: Pairing | None = None
    fault: str = ""
    ratio: float = 0.0
    data_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether it can draft for the target, with ids or with text."""
        return self.pairing is not None

    @property
    def passes_text(self) -> bool:
        """Whether it can, but with a tokenizer of its own."""
        return self.pairing is not None and self.pairing.passes_text

    @property
    def is_worth_trying(self) -> bool:
        """Whether it fits and is smaller than the target."""
        return self.fits and self.ratio < 1

    @property
    def verdict(self) -> str:
        """One clause: fits, or not; `fault` says why not."""
        if self.pairing is None:
            return "cannot draft for the target" if self.outline else "cannot be looked at"
        note = "" if self.ratio < 1 else "; but it is not smaller than the target"
        return f"{'works' if self.passes_text else 'fits'}: {self.pairing}{note}"


def find_drafts(target: AnyOutline, sources: Iterable[str], downloads: Path, recipe: Recipe) -> list[Candidate]:
    """The models of `sources` beside the target: those that share its ids first, the smaller the earlier.

    Fetches no weights. A model that cannot be looked at is listed with the reason, never an error.
    """
    candidates = [_look_at(target, source, downloads, recipe) for source in sources]
    others = [each for each in candidates if each.outline is None or not _is_same_file(each.outline, target)]

    def order(each: Candidate) -> tuple[object, ...]:
        return not each.fits, each.passes_text, not each.is_worth_trying, each.ratio or 9e9, each.source

    return sorted(others, key=order)


def sources_to_try(given: Sequence[str], catalog: Catalog, cache: Path, folders: Sequence[Path]) -> list[str]:
    """What `export --draft` takes, each once: the given ones, the catalog's, the downloaded ones, those in `folders`.

    `OptionError` if one of `folders` is none.
    """
    downloads = cache / "downloads"
    downloaded = [str(entry.path) for entry in take_inventory(cache).downloads]
    local = [str(path) for folder in folders for path in models_in(folder)]
    by_place: dict[str, str] = {}
    for source in (*given, *catalog.model_names, *downloaded, *local):
        is_named = source in catalog.model_names
        place = downloads / catalog.model(source).file_name if is_named else Path(source).expanduser()
        by_place.setdefault(str(place.resolve()), source)
    return list(by_place.values())


def models_in(folder: Path) -> list[Path]:
    """The model that `folder` is, or the GGUF files and Hugging Face folders directly in it."""
    if not folder.is_dir():
        raise OptionError(f"{folder} is not a folder; give one that has models in it")
    if (folder / "config.json").is_file():
        return [folder]
    return sorted(path for path in folder.iterdir() if path.suffix == ".gguf" or (path / "config.json").is_file())


def _look_at(target: AnyOutline, source: str, downloads: Path, recipe: Recipe) -> Candidate:
    try:
        outline = find_outline(source, downloads)
    except PilotfishError as error:
        return Candidate(source, fault=str(error))
    ratio, data_bytes = outline.num_parameters / target.num_parameters, ModelSize(outline, recipe).data_bytes
    try:
        pairing = pair_tokenizers(target.tokenizer.tokenizer_json, outline.tokenizer.tokenizer_json)
    except PilotfishError as error:
        return Candidate(source, outline, None, str(error), ratio, data_bytes)
    fault = f"{difference(pairing.match)}. So drafts pass as text" if pairing.passes_text else ""
    return Candidate(source, outline, pairing, fault, ratio, data_bytes)


def _is_same_file(outline: AnyOutline, target: AnyOutline) -> bool:
    if outline.path is None or target.path is None:
        return outline.name == target.name
    return outline.path.resolve() == target.path.resolve()
