"""The bundle contract: a folder with `pilotfish.json`, one folder of graph and weights for each model, a tokenizer.

Drafts have the target's token ids, or one tokenizer of their own in the folder of the first.

Export writes what `manifest_to_json` gives; the runtime reads it with `load_bundle` and takes every tensor name and
shape from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pilotfish.runtime.errors import BundleError

T = TypeVar("T")

FORMAT_VERSION = 2  # 1, with one draft at most and no tokenizer of its own, is read too
MANIFEST = "pilotfish.json"
OWN_TOKENS_ROOM = 1.25  # a draft with a tokenizer of its own may cut a text into more tokens
FLOAT_BYTES = MappingProxyType({"float32": 4, "float16": 2, "bfloat16": 2})  # of a number, by its type


@dataclass(frozen=True, slots=True)
class TensorNames:
    """Names of the graph's inputs and outputs; `{layer}` stands for the layer number.

    Graphs of older releases have no `next_id`, int64 (1, 1): the most likely token after the last row.
    """

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
    next_id: str = "next_id"
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

    `heads` names a file beside the graph: the same graph, which also gives `num_largest_logits` of a row's largest
    logits, their ids, and log Σ exp over the row. In bundles of older releases the graph itself does, where `heads` is
    None, or nothing does, where the number is 0. `parity` is None in those that measured none.
    `head_ids` names a file beside the graph with the token ids that the head of a draft was trimmed to, in the order of
    the columns of its logits (`rows.py`); None for a head of all `vocab_size` ids. `masked_ids` of a draft mean another
    text to the target. `weight_bytes` are those of the weights that a session reads, which a draft may share with its
    target on disk; 0 in bundles of releases that did not count them.
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
    heads: str | None = None
    head_ids: str | None = None
    masked_ids: tuple[int, ...] = ()
    weight_bytes: int = 0

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
    """What `pilotfish.json` says.

    Of `drafts` the first drafts for the target, and each further one for the one before it; a bundle without any drafts
    by lookup only. `draft_tokenizer` is there if the drafts have ids of their own, and what they write passes as text.
    """

    created_by: str
    target: ModelEntry
    tokenizer: TokenizerEntry
    files: Mapping[str, FileEntry]
    drafts: tuple[ModelEntry, ...] = ()
    draft_tokenizer: TokenizerEntry | None = None

    def __post_init__(self) -> None:
        if self.draft_tokenizer is not None and (self.draft is None or self.draft.masked_ids):
            raise BundleError("draft_tokenizer belongs to drafts that have ids of their own, of which none is masked")

    @property
    def draft(self) -> ModelEntry | None:
        """The draft of the target; None if there is none."""
        return self.drafts[0] if self.drafts else None

    @property
    def vocab_size(self) -> int:
        """How many of the target's ids can be generated: those that are tokens and that it has logits of."""
        return min(self.tokenizer.num_tokens, self.target.vocab_size)

    def tokenizer_of(self, model: ModelEntry) -> TokenizerEntry:
        """The tokenizer whose ids a model of the bundle reads."""
        is_draft = any(model is draft for draft in self.drafts)
        return self.draft_tokenizer if self.draft_tokenizer and is_draft else self.tokenizer

    def context_of(self, model: ModelEntry, context_length: int) -> int:
        """The context that a model of the bundle is loaded with, where the target's holds so many tokens."""
        has_own_ids = self.tokenizer_of(model) is not self.tokenizer
        return min(int(context_length * (OWN_TOKENS_ROOM if has_own_ids else 1)), model.max_positions)

    @property
    def models(self) -> dict[str, ModelEntry]:
        """The models that there are by role: `target`, `draft`, `draft-2`, `draft-3`, …"""
        return by_role(self.target, self.drafts)

    def weight_bytes(self, role: str) -> int:
        """Bytes of the weights that the model of a role reads into memory."""
        files = (file.size for name, file in self.files.items() if name.startswith(f"{role}/"))
        return self.models[role].weight_bytes or sum(files)

    def with_models(self, models: Mapping[str, ModelEntry]) -> Manifest:
        """The same manifest with other entries, by role."""
        return replace(self, target=models["target"], drafts=tuple(models.values())[1:])


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle on disk whose manifest was read and whose files are all there."""

    path: Path
    manifest: Manifest


def by_role(target: T, drafts: Sequence[T]) -> dict[str, T]:
    """What belongs to each model of a bundle, by its role; the target first."""
    roles = ["draft", *(f"draft-{level}" for level in range(2, len(drafts) + 1))]
    return {"target": target} | dict(zip(roles, drafts, strict=False))


def manifest_to_json(manifest: Manifest) -> str:
    """The text of `pilotfish.json`."""
    return json.dumps({"format": FORMAT_VERSION, **asdict(manifest)}, indent=2, ensure_ascii=False) + "\n"


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
    if version not in (1, FORMAT_VERSION):
        raise BundleError(
            f"{path} has bundle format {version!r}; this release reads formats 1 and {FORMAT_VERSION}; export it again"
        )
    try:
        values = _from_format_1(values) if version == 1 else values
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
        drafts=tuple(_model(draft) for draft in values["drafts"]),
        tokenizer=_tokenizer(values["tokenizer"]),
        files={name: FileEntry(**entry) for name, entry in values["files"].items()},
        draft_tokenizer=_tokenizer(values["draft_tokenizer"]) if values.get("draft_tokenizer") else None,
    )


def _from_format_1(values: Mapping[str, Any]) -> Mapping[str, Any]:
    draft = values.get("draft")
    drafts = [draft | {"masked_ids": values.get("masked_draft_ids", ())}] if draft else []
    return {**values, "drafts": drafts}


def _tokenizer(values: Mapping[str, Any]) -> TokenizerEntry:
    return TokenizerEntry(**{**values, "end_token_ids": tuple(values["end_token_ids"])})


def _model(values: Mapping[str, Any]) -> ModelEntry:
    parity = ParityReport(**values["parity"]) if values.get("parity") else None
    masked_ids = tuple(values.get("masked_ids", ()))
    tensors = TensorNames(**values["tensors"])
    return ModelEntry(**{**values, "tensors": tensors, "parity": parity, "masked_ids": masked_ids})
