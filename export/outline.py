"""What can be known of a source model without its weights: its shape, its vocabulary, which weights it has."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pilotfish.export import hub
from pilotfish.export.checkpoint import Checkpoint, open_checkpoint, read_json
from pilotfish.export.config_json import config_from_hugging_face
from pilotfish.export.download import resolve_source
from pilotfish.export.graph import vocabulary_matrices
from pilotfish.export.llama import WEIGHT_NAMES, DecoderConfig
from pilotfish.export.quantize import Layout
from pilotfish.export.tokenizer_files import TokenizerFiles, tokenizer_from_folder
from pilotfish.export.traced import require_tracing
from pilotfish.runtime.catalog import load_catalog
from pilotfish.runtime.errors import OptionError, UnsupportedModelError

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Outline:
    """A source model without its weights.

    `is_tied` says that embedding and head will be one matrix. `biased` holds (stem, layer) of the projections that have
    a bias, with layer -1 for the head; `layouts` has what the recipe `source` makes of the matrices that are quantized.
    `path` is None for a model of the hub that is not on this machine.
    """

    name: str
    config: DecoderConfig
    tokenizer: TokenizerFiles
    is_tied: bool
    biased: frozenset[tuple[str, int]]
    path: Path | None = None
    layouts: Mapping[tuple[str, int], Layout] = field(default_factory=dict)

    @property
    def num_parameters(self) -> int:
        """Elements of all matrices; a tied head counts once. Norms and biases, well under 1 %, are left out."""
        config = self.config
        attention = config.num_heads * config.head_dim
        rows = sum(rows for _, rows in config.qkv_parts + config.gate_up_parts)
        layer = config.hidden_size * (rows + attention + config.intermediate_size)
        vocabulary = config.vocab_size * config.hidden_size
        return config.num_layers * layer + vocabulary * (1 if self.is_tied else 2)


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What the caches of a model look like, and how many positions it has."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    max_positions: int


@dataclass(frozen=True, slots=True)
class MatrixShape:
    """A matrix as the export stores it, with what is merged into it."""

    num_rows: int
    num_columns: int
    has_bias: bool = False


@dataclass(frozen=True, slots=True)
class TracedOutline:
    """A model without a builder, without its weights.

    `matrices` are those that a recipe changes, `floats` the numbers of elements of the other weights. `path` is as in
    `Outline`.
    """

    name: str
    config: CacheShape
    tokenizer: TokenizerFiles
    matrices: tuple[MatrixShape, ...]
    floats: tuple[int, ...]
    path: Path | None = None

    @property
    def num_parameters(self) -> int:
        """Elements of all weights but the biases; a tied head counts once."""
        return sum(self.floats) + sum(matrix.num_rows * matrix.num_columns for matrix in self.matrices)

    @property
    def vocabulary(self) -> MatrixShape:
        """The embedding, as far as shapes tell: the matrix with the most rows."""
        return max(self.matrices, key=lambda matrix: matrix.num_rows)


AnyOutline = Outline | TracedOutline


def outline_of(checkpoint: Checkpoint) -> Outline:
    """The outline of an open model. Compares a few rows of embedding and head, and reads no other weight."""
    config = checkpoint.config
    embedding, head = vocabulary_matrices(checkpoint)
    tensors = {place: checkpoint.find(*place) for place in _places(config)}
    tensors["embedding", -1] = embedding.parts[0]  # which is the head if that is the finer copy of a tied pair
    return Outline(
        name=checkpoint.path.name,
        config=config,
        tokenizer=checkpoint.tokenizer,
        is_tied=head is embedding,
        biased=frozenset(place for place in _places(config) if checkpoint.has_bias(*place)),
        path=checkpoint.path,
        layouts={place: tensor.packed.layout for place, tensor in tensors.items() if tensor and tensor.packed},
    )


def outline_of_path(path: Path) -> AnyOutline:
    """The outline of a GGUF file or a Hugging Face folder.

    `CheckpointError` if it cannot be read, `OptionError` if it is to be traced and the packages for that are missing.
    """
    try:
        with open_checkpoint(path) as checkpoint:
            return outline_of(checkpoint)
    except UnsupportedModelError as error:
        require_tracing(path, error)
        return outline_to_trace(path.name, path, path)


def find_outline(text: str, directory: Path, *, hub_endpoint: str | None = None) -> AnyOutline:
    """The outline of what `text` means to `export`: a path, a catalog name, or a hub id. Fetches no weights.

    What was downloaded to `directory` before is used. Raises `OptionError` for a catalog model that is not there yet,
    and `CheckpointError` or `DownloadError` for what is not found or not readable.
    """
    path = Path(text).expanduser()
    if text and path.exists():
        return outline_of_path(path)
    catalog = load_catalog()
    if text in catalog.model_names:
        model = catalog.model(text)
        if not (file := directory / model.file_name).exists():
            raise OptionError(
                f"{text} is not on this machine yet ({model.num_bytes:,} bytes); run `pilotfish pull {text}` first"
            )
        return outline_of_path(file)
    if (folder := directory / text.replace("/", "--")).is_dir():
        return outline_of_path(folder)
    if text.count("/") == 1 and not text.endswith(".gguf"):
        return _outline_from_hub(text, hub_endpoint)
    return outline_of_path(resolve_source(text, directory))  # which knows best what to say of such a text


def _outline_from_hub(repo_id: str, endpoint: str | None) -> AnyOutline:
    repository = hub.find_repository(repo_id, endpoint=endpoint)
    with tempfile.TemporaryDirectory(prefix="pilotfish-") as work:
        folder = hub.fetch_model_folder(repository, Path(work), with_weights=False, endpoint=endpoint)
        return outline_without_weights(repo_id, folder)


def outline_without_weights(name: str, folder: Path) -> AnyOutline:
    """The outline that a Hugging Face folder gives whose weights are not there.

    Whether the head is tied is then what `config.json` says, or else the index of the weights; without either it counts
    as untied, so that a size comes out too large rather than too small.
    """
    values = read_json(folder / "config.json")
    try:
        config = config_from_hugging_face(values)
    except UnsupportedModelError as error:
        require_tracing(folder, error)
        return outline_to_trace(name, folder, None)
    biased = config.biased or frozenset()
    return Outline(
        name=name,
        config=config,
        tokenizer=tokenizer_from_folder(folder),
        is_tied=_is_tied(values, folder / INDEX),
        biased=frozenset(place for place in _places(config) if place[0] in biased),
    )


def outline_to_trace(name: str, folder: Path, path: Path | None) -> TracedOutline:
    """The outline of the model in `folder`, which has no builder; `path` is as in `Outline`."""
    from pilotfish.export.traced_outline import outline_traced  # imports PyTorch

    return outline_traced(name, folder, path)


def _is_tied(values: Mapping[str, Any], index: Path) -> bool:
    if isinstance(is_tied := values.get("tie_word_embeddings"), bool):
        return is_tied
    return index.exists() and "lm_head.weight" not in read_json(index).get("weight_map", {})


def _places(config: DecoderConfig) -> list[tuple[str, int]]:
    """(stem, layer) of all matrices; layer is -1 outside the layers."""
    layers = range(config.num_layers)
    stems = [stem for stem in config.stems if not stem.endswith("norm")]
    return [(stem, layer) for stem in stems for layer in (layers if "{layer}" in WEIGHT_NAMES[stem][0] else (-1,))]
