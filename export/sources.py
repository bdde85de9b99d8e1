"""A model on its way into a bundle: built from its weights where there is a builder, or traced from transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pilotfish.export.checkpoint import Checkpoint, open_checkpoint
from pilotfish.export.graph import build_decoder
from pilotfish.export.llama import DecoderConfig
from pilotfish.export.outline import outline_of, outline_to_trace
from pilotfish.export.quantize import Recipe
from pilotfish.export.reference import reference_logits
from pilotfish.export.sizes import GRAPH_BYTES, ModelSize
from pilotfish.export.tokenizer_files import TokenizerFiles
from pilotfish.export.traced import require_float32, require_tracing, write_traced
from pilotfish.export.weights import Progress
from pilotfish.runtime.bundle import ModelEntry
from pilotfish.runtime.errors import UnsupportedModelError

Floats = NDArray[np.float32]

GRAPH_NAME, DATA_NAME = "model.onnx", "model.onnx.data"


class Source(Protocol):
    """A model and the recipe it is to be stored with.

    `num_weights` counts the elements of its matrices, `reference` says what computes its logits.
    """

    @property
    def path(self) -> Path:
        """The file or folder it is read from."""

    @property
    def recipe(self) -> Recipe:
        """How its weights are to be stored."""

    @property
    def tokenizer(self) -> TokenizerFiles:
        """Its tokenizer."""

    @property
    def num_weights(self) -> int:
        """Elements of its matrices, as its files have them."""

    @property
    def num_bytes(self) -> int:
        """Bytes of its graph and data file at most, as far as that can be told before they are written."""

    @property
    def reference(self) -> str:
        """What computes its logits, for the parity report."""

    def write(self, folder: Path, role: str, progress: Progress) -> tuple[Mapping[str, str], ModelEntry]:
        """Writes its graph and weights into the folder of a bundle, in which it has a `role`: `target` or `draft`.

        Returns the sha256 of files by name, as far as they are known, and the entry of a manifest, in which `source`
        says nothing but what was made of it. Names are relative to `folder`. `progress` is called with the number of
        elements finished since the last call.
        """

    def logits(self, token_ids: Sequence[int], progress: Progress) -> Floats:
        """The logits of its own weights after each of N tokens: (N, V)."""

    def close(self) -> None:
        """Closes its files."""


@dataclass(frozen=True, slots=True)
class BuiltSource:
    """An open checkpoint of a family that has a builder."""

    checkpoint: Checkpoint
    recipe: Recipe
    reference: str = "float32 reference"

    @property
    def path(self) -> Path:
        """The file or folder it is read from."""
        return self.checkpoint.path

    @property
    def tokenizer(self) -> TokenizerFiles:
        """Its tokenizer."""
        return self.checkpoint.tokenizer

    @property
    def num_weights(self) -> int:
        """Elements of its matrices, as its files have them."""
        shapes = (tensor.shape for tensor in self.checkpoint.tensors.values())
        return sum(shape[0] * shape[1] for shape in shapes if len(shape) == 2)

    @property
    def num_bytes(self) -> int:
        """As in `Source`; exact but for the graph."""
        return ModelSize(outline_of(self.checkpoint), self.recipe).data_bytes + GRAPH_BYTES

    def write(self, folder: Path, role: str, progress: Progress) -> tuple[Mapping[str, str], ModelEntry]:
        """As in `Source`."""
        (folder / role).mkdir()
        digest = build_decoder(self.checkpoint, self.recipe, folder / role, progress)
        return {f"{role}/{DATA_NAME}": digest}, built_entry(self.checkpoint.config, self.recipe, f"{role}/{GRAPH_NAME}")

    def logits(self, token_ids: Sequence[int], progress: Progress) -> Floats:
        """As in `Source`."""
        return reference_logits(self.checkpoint, token_ids, progress)

    def close(self) -> None:
        """Closes the checkpoint."""
        self.checkpoint.close()


@dataclass(frozen=True, slots=True)
class TracedSource:
    """A Hugging Face folder whose model transformers computes; needs the extra `torch`."""

    path: Path
    recipe: Recipe
    tokenizer: TokenizerFiles
    num_weights: int
    num_bytes: int
    reference: str = "PyTorch"

    def write(self, folder: Path, role: str, progress: Progress) -> tuple[Mapping[str, str], ModelEntry]:
        """As in `Source`; `CheckpointError` if the architecture cannot keep the contract."""
        (folder / role).mkdir()
        digest, entry = write_traced(self.path, self.recipe, folder / role, progress)
        return {f"{role}/{DATA_NAME}": digest}, replace(entry, graph=f"{role}/{entry.graph}")

    def logits(self, token_ids: Sequence[int], progress: Progress) -> Floats:
        """As in `Source`; loads the model once more."""
        from pilotfish.export.traced_gate import eager_logits
        from pilotfish.export.traced_model import load_model

        logits = eager_logits(load_model(self.path), list(token_ids))
        progress(self.num_weights)
        return logits

    def close(self) -> None:
        """Nothing is open between the calls."""


def built_entry(config: DecoderConfig, recipe: Recipe, graph: str) -> ModelEntry:
    """The manifest's entry of a graph that `graph.py` built."""
    return ModelEntry(
        graph=graph,
        family=config.family,
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
        max_positions=config.max_positions,
        recipe=str(recipe),
        source={},
        cache_dtype=recipe.floats,
    )


def open_source(path: Path, recipe: Recipe) -> Source:
    """Opens a GGUF file or a Hugging Face folder.

    `CheckpointError` says why one cannot be read. A folder without a builder is traced; `OptionError` if that needs
    packages which are not installed, and says what the builder has not.
    """
    try:
        return BuiltSource(open_checkpoint(path), recipe)
    except UnsupportedModelError as error:
        require_tracing(path, error)
        require_float32(path, recipe)
        return _traced_source(path, recipe)


def _traced_source(path: Path, recipe: Recipe) -> TracedSource:
    outline = outline_to_trace(path.name, path, path)
    num_bytes = ModelSize(outline, recipe).data_bytes + GRAPH_BYTES
    return TracedSource(path, recipe, outline.tokenizer, outline.num_parameters, num_bytes)
