"""What an export will take, told before it begins: bytes of each data file, disk space, memory at a context length.

The order and the shapes of what is stored are those of `graph.py` and `weights.py`; a test exports every recipe and
family and compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from pilotfish.export.graph import PADDING_POSITIONS
from pilotfish.export.outline import AnyOutline, Outline, TracedOutline
from pilotfish.export.quantize import Layout, Recipe
from pilotfish.export.weight_file import ALIGNMENT, INLINE_BYTES
from pilotfish.runtime.bundle import FLOAT_BYTES, by_role
from pilotfish.runtime.decoder import MAX_WIDTH
from pilotfish.runtime.engine import DEFAULT_CONTEXT_LENGTH
from pilotfish.runtime.errors import OptionError

NPY_HEADER_BYTES, ID_BYTES = 128, 8  # of the file with the ids of a trimmed head
GRAPH_BYTES = 2 << 20  # room for the two graphs of a model, which take a few kilobytes a layer


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What one model takes.

    `num_first_layers` is that of a draft which reads its target's data file, `num_head_ids` is how many tokens a
    trimmed head has; both are None for a model as it is.
    """

    outline: AnyOutline
    recipe: Recipe
    num_first_layers: int | None = None
    num_head_ids: int | None = None

    @property
    def num_layers(self) -> int:
        """The layers that it computes."""
        return self.num_first_layers or self.outline.config.num_layers

    @property
    def num_parameters(self) -> int:
        """Elements of the matrices that it reads."""
        head_ids = self.num_head_ids or 0
        if isinstance(self.outline, TracedOutline):
            return self.outline.num_parameters + head_ids * self.outline.vocabulary.num_columns
        config = self.outline.config
        whole = replace(self.outline, config=replace(config, num_layers=self.num_layers)).num_parameters
        if not head_ids:
            return whole
        return whole + (head_ids - (0 if self.outline.is_tied else config.vocab_size)) * config.hidden_size

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that it reads, alignment included. Each session packs its own, so memory holds them."""
        is_tied = isinstance(self.outline, TracedOutline) or self.outline.is_tied
        has_head = not is_tied and self.num_head_ids is None
        return _aligned(_stored(self.outline, self.recipe, self.num_layers, has_head)) + self._trimmed_bytes

    @property
    def data_bytes(self) -> int:
        """Bytes of its data files, and of the ids of a trimmed head; without what it reads of its target's.

        Exact with a builder, nearly so for a traced model, of which a trimmed head counts beside the whole.
        """
        return self._trimmed_bytes if self.num_first_layers else self.weight_bytes

    @property
    def _trimmed_bytes(self) -> int:
        if self.num_head_ids is None:
            return 0
        if isinstance(self.outline, TracedOutline):
            matrix = _section(self.recipe.layout(), self.num_head_ids, self.outline.vocabulary.num_columns, False)
        else:
            part = ("embedding" if self.outline.is_tied else "head", self.num_head_ids)
            matrix = _matrix(self.outline, self.recipe, (part,), self.outline.config.hidden_size, -1)
        small = (num_bytes for each in matrix for num_bytes in _added(each))
        return _aligned(small) + NPY_HEADER_BYTES + ID_BYTES * self.num_head_ids

    def cache_bytes(self, context_length: int) -> int:
        """Bytes of keys and values that the runtime allocates for a context of so many tokens."""
        config = self.outline.config
        per_token = 2 * self.num_layers * config.num_kv_heads * config.head_dim * FLOAT_BYTES[self.recipe.floats]
        return per_token * (min(context_length, config.max_positions) + MAX_WIDTH)


@dataclass(frozen=True, slots=True)
class ExportSize:
    """What a bundle of a target and its drafts takes."""

    target: ModelSize
    drafts: tuple[ModelSize, ...] = ()

    @property
    def models(self) -> dict[str, ModelSize]:
        """The models by role, as in a manifest."""
        return by_role(self.target, self.drafts)

    @property
    def disk_bytes(self) -> int:
        """Bytes of the whole bundle: the data files exactly, the tokenizer, and room for graphs and manifest."""
        tokenizer = self.target.outline.tokenizer
        texts = len(tokenizer.tokenizer_json.encode()) + len((tokenizer.chat_template or "").encode())
        return texts + sum(model.data_bytes + GRAPH_BYTES for model in self.models.values())

    def memory_bytes(self, context_length: int) -> int:
        """Bytes of weights and caches at a context length in tokens; what ONNX Runtime works with comes on top."""
        return sum(model.weight_bytes + model.cache_bytes(context_length) for model in self.models.values())

    def context_length(self, wanted: int | None) -> int:
        """`wanted`, or what the runtime takes by default; `OptionError` if the target does not allow it."""
        most = self.target.outline.config.max_positions
        if wanted is None:
            return min(most, DEFAULT_CONTEXT_LENGTH)
        if not 2 <= wanted <= most:
            raise OptionError(f"context length {wanted} is not between 2 and the model's {most}")
        return wanted


def _aligned(tensor_bytes: Iterable[int]) -> int:
    """Bytes of a data file of such tensors."""
    position = 0
    for num_bytes in tensor_bytes:
        position += -position % ALIGNMENT + num_bytes
    return position


def _stored(outline: AnyOutline, recipe: Recipe, num_layers: int, has_head: bool) -> Iterator[int]:
    """Bytes of each tensor of the first layers and around them; of a traced model those of all layers."""
    if isinstance(outline, TracedOutline):
        yield from _traced(outline, recipe)
    else:
        yield from _built(outline, recipe, num_layers, has_head)


def _traced(outline: TracedOutline, recipe: Recipe) -> Iterator[int]:
    for matrix in outline.matrices:
        yield from _section(recipe.layout(), matrix.num_rows, matrix.num_columns, matrix.has_bias)
    for num_elements in outline.floats:
        yield from _added(num_elements * FLOAT_BYTES["float32"])


def _built(outline: Outline, recipe: Recipe, num_layers: int, has_head: bool) -> Iterator[int]:
    """In the order in which they are written."""
    config, float_bytes = outline.config, FLOAT_BYTES[recipe.floats]
    table = (config.max_positions + PADDING_POSITIONS) * config.rope.width // 2
    yield from _added(table * float_bytes)
    yield from _added(table * float_bytes)
    yield from _matrix(outline, recipe, (("embedding", config.vocab_size),), config.hidden_size, -1)
    for layer in range(num_layers):
        yield from _layer(outline, recipe, layer)
    yield from _added(config.hidden_size * float_bytes)
    if has_head:
        yield from _matrix(outline, recipe, (("head", config.vocab_size),), config.hidden_size, -1)


def _layer(outline: Outline, recipe: Recipe, layer: int) -> Iterator[int]:
    config, float_bytes = outline.config, FLOAT_BYTES[recipe.floats]
    norm, width = config.hidden_size * float_bytes, config.num_heads * config.head_dim
    yield from _added(norm)
    yield from _matrix(outline, recipe, config.qkv_parts, config.hidden_size, layer)
    for _ in range(2 if config.qk_norm else 0):
        yield from _added(config.head_dim * float_bytes)
    yield from _matrix(outline, recipe, (("o", config.hidden_size),), width, layer)
    yield from _added(norm)
    yield from _matrix(outline, recipe, config.gate_up_parts, config.hidden_size, layer)
    yield from _matrix(outline, recipe, (("down", config.hidden_size),), config.intermediate_size, layer)


def _matrix(
    outline: Outline, recipe: Recipe, parts: tuple[tuple[str, int], ...], num_columns: int, layer: int
) -> Iterator[int]:
    """Bytes of a matrix of `parts`, each (stem, rows). Those that follow each other in one layout are stored as one."""

    def layout(part: tuple[str, int]) -> Layout:
        return recipe.layout(part[0], layer, outline.config.num_layers, outline.layouts.get((part[0], layer)))

    for key, group in groupby(parts, layout):
        section = tuple(group)
        num_rows = sum(rows for _, rows in section)
        has_bias = any((stem, layer) in outline.biased for stem, _ in section)
        yield from _section(key, num_rows, num_columns, has_bias)


def _section(layout: Layout, num_rows: int, num_columns: int, has_bias: bool) -> Iterator[int]:
    yield from layout.tensor_bytes(num_rows, num_columns)
    if layout.kind == "rows":  # their zero points
        yield from _added(num_rows)
    if has_bias:
        yield from _added(num_rows * layout.float_bytes)


def _added(num_bytes: int) -> Iterator[int]:
    """A small tensor stays inside the graph."""
    if num_bytes >= INLINE_BYTES:
        yield num_bytes
