"""Projections on their way to the data file: several weights fused into one matrix, packed piece by piece."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilotfish.export.checkpoint import Checkpoint, Tensor
from pilotfish.export.quantize import Layout, Packed, Recipe, pack
from pilotfish.export.weight_file import WeightFile, numpy_dtype

Floats = NDArray[np.float32]
Progress = Callable[[int], None]

PIECE_ELEMENTS = 1 << 18  # about what stays in a core's cache from reading to packing


@dataclass(frozen=True, slots=True)
class Matrix:
    """One or more weights of shape (rows, num_columns) stacked by rows, with their biases if the model has any.

    `stems`, one for each part, `layer` and `num_layers` say where in the model it is, for recipes that ask; they are
    left out if that is not known.
    """

    parts: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]
    num_columns: int
    stems: tuple[str, ...] = ()
    layer: int = -1
    num_layers: int = 0

    @property
    def num_rows(self) -> int:
        """Rows of all parts together: the width of the projection's output."""
        return sum(part.shape[0] for part in self.parts)

    @property
    def has_bias(self) -> bool:
        """Whether any part has a bias; the others then count as zero."""
        return any(self.biases)

    def bias(self) -> Floats:
        """The stacked bias, float32 (num_rows,)."""
        pairs = zip(self.parts, self.biases, strict=True)
        return np.concatenate([b.read() if b else np.zeros(p.shape[0], np.float32) for p, b in pairs])


@dataclass(frozen=True, slots=True)
class Section:
    """Parts of a matrix that follow each other and have one layout: they are stored, and multiplied with, as one."""

    suffix: str  # to the name of the matrix; empty if there is one section
    layout: Layout
    weights: Matrix


def sections(recipe: Recipe, weights: Matrix) -> tuple[Section, ...]:
    """The matrix by layouts, in order."""

    def layout(index: int) -> Layout:
        packed = weights.parts[index].packed
        stem = weights.stems[index] if weights.stems else ""
        return recipe.layout(stem, weights.layer, weights.num_layers, packed.layout if packed else None)

    groups = [(key, list(indices)) for key, indices in groupby(range(len(weights.parts)), layout)]
    return tuple(
        Section(
            f".{number}" if len(groups) > 1 else "",
            key,
            replace(
                weights,
                parts=tuple(weights.parts[i] for i in indices),
                biases=tuple(weights.biases[i] for i in indices),
                stems=tuple(weights.stems[i] for i in indices) if weights.stems else (),
            ),
        )
        for number, (key, indices) in enumerate(groups)
    )


def matrix(checkpoint: Checkpoint, stems: tuple[tuple[str, int], ...], num_columns: int, layer: int = -1) -> Matrix:
    """The weights of `stems`, each (name, rows), as one matrix; `CheckpointError` if one is missing or misshapen."""
    parts = tuple(checkpoint.get(stem, (rows, num_columns), layer) for stem, rows in stems)
    biases = tuple(
        checkpoint.get(stem, (rows,), layer, "bias") if checkpoint.has_bias(stem, layer) else None
        for stem, rows in stems
    )
    names = tuple(stem for stem, _ in stems)
    return Matrix(parts, biases, num_columns, names, layer, checkpoint.config.num_layers)


def multiplied(weights: Matrix, multiplier: float) -> Matrix:
    """The matrix, and its bias, times a number: a scaling of the product that costs nothing when the model runs."""
    if multiplier == 1:
        return weights

    def part(tensor: Tensor) -> Tensor:
        packed = replace(tensor.packed, multiplier=multiplier) if tensor.packed else None
        return replace(
            tensor, rows=lambda start, stop: tensor.rows(start, stop) * np.float32(multiplier), packed=packed
        )

    biases = tuple(part(bias) if bias else None for bias in weights.biases)
    return replace(weights, parts=tuple(part(tensor) for tensor in weights.parts), biases=biases)


@dataclass(frozen=True, slots=True)
class Stored:
    """Where in the data file the codes, the scales and the zero points of a section begin, as far as there are any."""

    offset: int
    scales_offset: int = 0
    zero_points_offset: int = 0


class WeightWriter:
    """Packs matrices by one recipe on all cores, and writes them in order without ever holding one whole."""

    def __init__(self, file: WeightFile, recipe: Recipe, progress: Progress) -> None:
        """`progress` is told the number of elements of each piece that was written."""
        self.file, self.recipe, self.progress = file, recipe, progress

    def write(self, name: str, weights: Matrix) -> tuple[Stored, ...]:
        """Stores each section under `name` and its suffix.

        Beside the codes these are `.scales`, `.zero_points`, `.offsets` and `.bias` as far as its layout and the model
        have them, and `.zeros` for the product of `rows`.
        """
        return tuple(
            self._write_section(f"{name}{section.suffix}", section) for section in sections(self.recipe, weights)
        )

    def _write_section(self, name: str, section: Section) -> Stored:
        layout, weights = section.layout, section.weights
        offset = self.file.begin()
        pieces = []
        for piece in self._pieces(section):
            self.file.append(piece.codes)
            self.progress(piece.codes.shape[0] * weights.num_columns)
            pieces.append(replace(piece, codes=piece.codes[:0]))
        codes = pieces[0].codes
        self.file.describe(name, codes.dtype, (weights.num_rows, *codes.shape[1:]), offset)
        scales_offset = self._write_all(f"{name}.scales", [piece.scales for piece in pieces])
        zero_points_offset = self._write_all(f"{name}.zero_points", [piece.zero_points for piece in pieces])
        self._write_all(f"{name}.offsets", [piece.offsets for piece in pieces])
        if layout.kind == "rows":
            self.file.add(f"{name}.zeros", np.zeros(weights.num_rows, np.int8))
        if weights.has_bias:
            self.add_floats(f"{name}.bias", weights.bias())
        return Stored(offset, scales_offset, zero_points_offset)

    def add_floats(self, name: str, array: Floats) -> str:
        """Stores a whole array in the recipe's type of floats and returns its name."""
        return self.file.add(name, array.astype(numpy_dtype(self.recipe.floats)))

    def _write_all(self, name: str, arrays: Sequence[NDArray[Any] | None]) -> int:
        """Stores the arrays one behind the other, if there are any; returns where they begin."""
        present = [array for array in arrays if array is not None]
        if not present:
            return 0
        offset = self.file.begin()
        for array in present:
            self.file.append(array)
        shape = (sum(len(array) for array in present), *present[0].shape[1:])
        self.file.describe(name, present[0].dtype, shape, offset)
        return offset

    def describe_as_table(self, name: str, section: Section, stored: Stored) -> tuple[str, ...]:
        """Declares codes, scales and zero points a second time, in the shapes that an embedding look-up wants."""
        layout, rows = section.layout, section.weights.num_rows
        num_blocks = layout.num_blocks(section.weights.num_columns)
        width = num_blocks * layout.block_size * layout.bits // 8
        table = self.file.describe(f"{name}.table", np.dtype(np.uint8), (rows, width), stored.offset)
        scales = self.file.describe(
            f"{name}.table_scales", numpy_dtype(layout.floats), (rows, num_blocks), stored.scales_offset
        )
        return (table, scales, f"{name}.zero_points") if layout.zero_points else (table, scales)

    def _pieces(self, section: Section) -> Iterator[Packed]:
        """Packed pieces in order, a few at a time in flight."""
        weights = section.weights
        rows_each = max(PIECE_ELEMENTS // weights.num_columns, 1)
        num_threads = os.cpu_count() or 1
        with ThreadPoolExecutor(num_threads) as pool:
            waiting: deque[Future[Packed]] = deque()
            for part in weights.parts:
                for start in range(0, part.shape[0], rows_each):
                    stop = min(start + rows_each, part.shape[0])
                    waiting.append(pool.submit(self._pack, section.layout, part, start, stop))
                    if len(waiting) > 2 * num_threads:
                        yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _pack(self, layout: Layout, part: Tensor, start: int, stop: int) -> Packed:
        if self.recipe.name == "source" and part.packed:
            packed = part.packed.rows(start, stop)
        else:
            packed = pack(part.rows(start, stop), layout)
        return _with_floats(packed, layout)


def _with_floats(packed: Packed, layout: Layout) -> Packed:
    """The same rows, their floats being of the layout's type."""
    dtype = numpy_dtype(layout.floats)
    return Packed(
        packed.codes.astype(dtype, copy=False) if layout.kind == "float" else packed.codes,
        None if packed.scales is None else packed.scales.astype(dtype, copy=False),
        packed.zero_points,
        None if packed.offsets is None else packed.offsets.astype(dtype, copy=False),
    )
