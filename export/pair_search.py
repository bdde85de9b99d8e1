"""Looks for drafts that fit a target: among given models, the catalog, what was downloaded, and local folders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pilotfish.export.inventory import take_inventory
from pilotfish.export.outline import AnyOutline, find_outline
from pilotfish.export.pairing import VocabularyMatch, check_pair, compare_vocabularies, vocabulary_of
from pilotfish.export.quantize import Recipe
from pilotfish.export.sizes import ModelSize
from pilotfish.runtime.catalog import Catalog
from pilotfish.runtime.errors import OptionError, PairingError, PilotfishError


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model beside a target. Without an `outline` it could not be looked at, and `fault` says why.

    `source` is what `export --draft` takes. `ratio` is its number of parameters ÷ the target's.
    """

    source: str
    outline: AnyOutline | None = None
    match: VocabularyMatch | None = None
    fault: str = ""
    ratio: float = 0.0
    data_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Whether it can draft for the target: a shared vocabulary."""
        return self.match is not None and self.match.is_accepted

    @property
    def is_worth_trying(self) -> bool:
        """Whether it fits and is smaller than the target."""
        return self.fits and self.ratio < 1

    @property
    def verdict(self) -> str:
        """One clause: fits, or not; `fault` says why not."""
        if self.match is None:
            return "cannot be looked at"
        if not self.fits:
            return f"another vocabulary: {len(self.match.differing)} of {self.match.num_compared} token ids differ"
        masked = f", {len(self.match.masked_ids)} masked" if self.match.masked_ids else ""
        note = "" if self.ratio < 1 else "; but it is not smaller than the target"
        return f"fits: {self.match.num_shared} token ids shared{masked}{note}"


def find_drafts(target: AnyOutline, sources: Iterable[str], downloads: Path, recipe: Recipe) -> list[Candidate]:
    """The models of `sources` beside the target: those that fit first, the smaller the earlier.

    Fetches no weights. A model that cannot be looked at is listed with the reason, never an error.
    """
    texts = vocabulary_of(target.tokenizer.tokenizer_json)
    candidates = [_look_at(target, texts, source, downloads, recipe) for source in sources]
    others = [each for each in candidates if each.outline is None or not _is_same_file(each.outline, target)]
    return sorted(others, key=lambda each: (not each.fits, not each.is_worth_trying, each.ratio or 9e9, each.source))


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


def _look_at(
    target: AnyOutline, texts: Sequence[str | None], source: str, downloads: Path, recipe: Recipe
) -> Candidate:
    try:
        outline = find_outline(source, downloads)
        draft_texts = vocabulary_of(outline.tokenizer.tokenizer_json)
    except PilotfishError as error:
        return Candidate(source, fault=str(error))
    match, fault = compare_vocabularies(texts, draft_texts), ""
    try:
        check_pair(texts, draft_texts)
    except PairingError as error:
        fault = str(error)
    ratio = outline.num_parameters / target.num_parameters
    return Candidate(source, outline, match, fault, ratio, ModelSize(outline, recipe).data_bytes)


def _is_same_file(outline: AnyOutline, target: AnyOutline) -> bool:
    if outline.path is None or target.path is None:
        return outline.name == target.name
    return outline.path.resolve() == target.path.resolve()
