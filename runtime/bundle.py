"""The bundle contract: a folder with `pilotfish.json`, one folder of graph and weights for each model, a tokenizer.

A draft has the target's token ids, or a tokenizer of its own in its folder. The latter is format 2, which releases that
know format 1 only must not take for it; all other bundles are still written in format 1.

Export writes what `manifest_to_json` gives; the runtime reads it with `load_bundle` and takes every tensor name and
shape from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pilotfish.runtime.errors import BundleError

FORMAT_VERSIONS = (1, 2)
MANIFEST = "pilotfish.json"
FLOAT_BYTES = MappingProxyType({"float32": 4, "float16": 2, "bfloat16": 2})  # of a number, by its type


@dataclass(frozen=True, slots=True)
class TensorNames:
    """Names of the graph's inputs and outputs; `{layer}` stands for the layer number."""

    input_ids: str = "input_ids"
    logits_rows: str = "logits_rows"
    seqlens_k: str = "seqlens_k"
    total_sequence_length: str = "total_sequence_length"
    past_key: str = "past_key_values.{layer}.key"
    past_value: str = "past_key_values.{layer}.value"
    logits: str = "logits"
    largest_logits: str = "largest_logits"
    largest_ids: str = "largest_ids"
    log_sum_exp: str = "log_sum_exp"
    present_key: str = "present.{layer}.key"
    present_value: str = "present.{layer}.value"


@dataclass(frozen=True, slots=True)
class ParityReport:
    """How near a graph's logits came, on `num_tokens` of a text sample, to its source's and to its own.

    Against the source, None where that was not at hand: mean and maximum Kullback-Leibler divergence of the source's
    next-token distribution from the graph's, in nats; the part of the positions with the same most probable token; and
    the source's perplexity. `reference` says what computed the source's logits.

    Against itself, each the maximum absolute difference of two logits: blocks after a cache and one uncached pass,
    blocks and single tokens, blocks before and after a rollback over other tokens. `largest_logit` is the maximum
    magnitude. Nothing was measured if `verified` is false.
    """

    verified: bool
    num_tokens: int = 0
    reference: str | None = None
    mean_kl: float | None = None
    max_kl: float | None = None
    top1_agreement: float | None = None
    perplexity: float | None = None
    reference_perplexity: float | None = None
    cached_equals_uncached: float | None = None
    block_equals_single: float | None = None
    after_rollback: float | None = None
    largest_logit: float | None = None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model of a bundle: where its graph is, what its caches look like, and where it came from.

    `num_largest_logits` is how many of a row's largest logits the graph also gives, with their ids and log Σ exp over
    the row; 0 in bundles of releases that had no such outputs. `parity` is None in those that measured none.
    `head_ids` names a file beside the graph with the token ids that the head of a draft was trimmed to, in the order of
    the columns of its logits (`rows.py`); None for a head of all `vocab_size` ids.
    """

    graph: str
    family: str
    num_layers: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    recipe: str
    source: Mapping[str, str]
    cache_dtype: str = "float32"
    tensors: TensorNames = field(default_factory=TensorNames)
    parity: ParityReport | None = None
    num_largest_logits: int = 0
    head_ids: str | None = None

    def __post_init__(self) -> None:
        for name in ("num_layers", "num_kv_heads", "head_dim", "vocab_size", "max_positions"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise BundleError(f"{name} is {value!r}; a positive whole number is needed")
        if self.cache_dtype not in FLOAT_BYTES:
            raise BundleError(f"cache_dtype is {self.cache_dtype!r}; it is one of {', '.join(FLOAT_BYTES)}")

    @property
    def cache_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token takes in the caches of all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * FLOAT_BYTES[self.cache_dtype]


@dataclass(frozen=True, slots=True)
class TokenizerEntry:
    """The tokenizer file and what is around it."""

    file: str
    num_tokens: int
    end_token_ids: tuple[int, ...]
    chat_template: str | None = None
    bos_token: str | None = None
    eos_token: str | None = None
    add_bos: bool = False


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Size in bytes and checksum of one file of the bundle."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What `pilotfish.json` says. `draft` is None in a bundle that drafts by lookup only.

    `draft_tokenizer` is there if the draft has ids of its own, and drafts pass as text; `masked_draft_ids` are the ids
    that a draft with the target's ids must not propose.
    """

    created_by: str
    target: ModelEntry
    tokenizer: TokenizerEntry
    files: Mapping[str, FileEntry]
    draft: ModelEntry | None = None
    masked_draft_ids: tuple[int, ...] = ()
    draft_tokenizer: TokenizerEntry | None = None

    def __post_init__(self) -> None:
        if self.draft_tokenizer is not None and (self.draft is None or self.masked_draft_ids):
            raise BundleError("draft_tokenizer belongs to a draft that has ids of its own, of which none is masked")

    @property
    def format_version(self) -> int:
        """The first format that can say this."""
        return FORMAT_VERSIONS[0] if self.draft_tokenizer is None else FORMAT_VERSIONS[1]

    @property
    def vocab_size(self) -> int:
        """How many of the target's ids can be generated: those that are tokens and that it has logits of."""
        return min(self.tokenizer.num_tokens, self.target.vocab_size)

    def tokenizer_of(self, model: ModelEntry) -> TokenizerEntry:
        """The tokenizer whose ids a model of the bundle reads."""
        return self.draft_tokenizer if self.draft_tokenizer and model is self.draft else self.tokenizer

    @property
    def models(self) -> dict[str, ModelEntry]:
        """The models that there are by role, `target` and `draft`."""
        return {"target": self.target} | ({"draft": self.draft} if self.draft else {})


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle on disk whose manifest was read and whose files are all there."""

    path: Path
    manifest: Manifest


def manifest_to_json(manifest: Manifest) -> str:
    """The text of `pilotfish.json`."""
    values = asdict(manifest)
    if manifest.draft_tokenizer is None:
        del values["draft_tokenizer"]
    return json.dumps({"format": manifest.format_version, **values}, indent=2, ensure_ascii=False) + "\n"


def load_bundle(path: Path) -> Bundle:
    """Reads a bundle folder and checks its version and the size of every file; `BundleError` if anything is off."""
    manifest_path = path / MANIFEST
    if not manifest_path.is_file():
        raise BundleError(f"{path} is not a bundle: it has no {MANIFEST}; make one with `pilotfish export`")
    try:
        values = json.loads(manifest_path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BundleError(f"{manifest_path} is not valid JSON ({error}); export the bundle again") from error
    version = values.get("format") if isinstance(values, dict) else None
    if version not in FORMAT_VERSIONS:
        raise BundleError(
            f"{path} has bundle format {version!r}; this release reads format "
            f"{' and '.join(map(str, FORMAT_VERSIONS))}; export it again"
        )
    try:
        manifest = _manifest(values)
    except (KeyError, TypeError, AttributeError, BundleError) as error:
        raise BundleError(f"{manifest_path} is damaged ({error}); export the bundle again") from error
    for name, entry in manifest.files.items():
        file = path / name
        size = file.stat().st_size if file.is_file() else None
        if size != entry.size:
            found = "is missing" if size is None else f"has {size} bytes instead of {entry.size}"
            raise BundleError(f"{file} {found}; export the bundle again")
    return Bundle(path, manifest)


def _manifest(values: Mapping[str, Any]) -> Manifest:
    return Manifest(
        created_by=values["created_by"],
        target=_model(values["target"]),
        draft=_model(values["draft"]) if values.get("draft") else None,
        tokenizer=_tokenizer(values["tokenizer"]),
        files={name: FileEntry(**entry) for name, entry in values["files"].items()},
        masked_draft_ids=tuple(values.get("masked_draft_ids", ())),
        draft_tokenizer=_tokenizer(values["draft_tokenizer"]) if values.get("draft_tokenizer") else None,
    )


def _tokenizer(values: Mapping[str, Any]) -> TokenizerEntry:
    return TokenizerEntry(**{**values, "end_token_ids": tuple(values["end_token_ids"])})


def _model(values: Mapping[str, Any]) -> ModelEntry:
    parity = ParityReport(**values["parity"]) if values.get("parity") else None
    return ModelEntry(**{**values, "tensors": TensorNames(**values["tensors"]), "parity": parity})
