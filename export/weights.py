"""Projections on their way to the data file: several weights fused into one matrix, quantized piece by piece."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilotfish.export.checkpoint import Checkpoint, Tensor
from pilotfish.export.quantize import Recipe, quantize_blocks, quantize_rows
from pilotfish.export.weight_file import WeightFile

Floats = NDArray[np.float32]
Progress = Callable[[int], None]
Piece = tuple[NDArray[Any], Floats | None]  # packed rows, and their scales if the recipe has any

PIECE_ELEMENTS = 1 << 18  # about what stays in a core's cache from reading to packing


@dataclass(frozen=True, slots=True)
class Matrix:
    """One or more weights of shape (rows, num_columns) stacked by rows, with their biases if the model has any."""

    parts: tuple[Tensor, ...]
    biases: tuple[Tensor | None, ...]
    num_columns: int

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


def matrix(checkpoint: Checkpoint, stems: tuple[tuple[str, int], ...], num_columns: int, layer: int = -1) -> Matrix:
    """The weights of `stems`, each (name, rows), as one matrix; `CheckpointError` if one is missing or misshapen."""
    parts = tuple(checkpoint.get(stem, (rows, num_columns), layer) for stem, rows in stems)
    biases = tuple(
        checkpoint.get(stem, (rows,), layer, "bias") if checkpoint.has_bias(stem, layer) else None
        for stem, rows in stems
    )
    return Matrix(parts, biases, num_columns)


def multiplied(weights: Matrix, multiplier: float) -> Matrix:
    """The matrix, and its bias, times a number: a scaling of the product that costs nothing when the model runs."""
    if multiplier == 1:
        return weights

    def part(tensor: Tensor) -> Tensor:
        return replace(tensor, rows=lambda start, stop: tensor.rows(start, stop) * np.float32(multiplier))

    biases = tuple(part(bias) if bias else None for bias in weights.biases)
    return Matrix(tuple(part(tensor) for tensor in weights.parts), biases, weights.num_columns)


@dataclass(frozen=True, slots=True)
class Stored:
    """Where the packed rows of a matrix begin in the data file, and where its scales do, if it has any."""

    offset: int
    scales_offset: int


class WeightWriter:
    """Quantizes matrices by one recipe on all cores, and writes them in order without ever holding one whole."""

    def __init__(self, file: WeightFile, recipe: Recipe, progress: Progress) -> None:
        """`progress` is told the number of elements of each piece that was written."""
        self.file, self.recipe, self.progress = file, recipe, progress

    def write(self, name: str, weights: Matrix) -> Stored:
        """Stores `name`, and `name.scales`, `name.zeros`, `name.bias` as far as the recipe and the model have them."""
        scales: list[Floats] = []
        offset = scales_offset = self.file.begin()
        dtype: np.dtype[Any] = np.dtype(np.float32)
        for codes, piece_scales in self._pieces(weights):
            self.file.append(codes)
            dtype = codes.dtype
            if piece_scales is not None:
                scales.append(piece_scales)
            self.progress(codes.shape[0] * weights.num_columns)
        self.file.describe(name, dtype, (weights.num_rows, *self._row_shape(weights)), offset)
        if scales:
            scales_offset = self.file.begin()
            self.file.append(np.concatenate(scales))
            self.file.describe(f"{name}.scales", np.dtype(np.float32), self._scales_shape(weights), scales_offset)
        if self.recipe.name == "w8a8":
            self.file.add(f"{name}.zeros", np.zeros(weights.num_rows, np.int8))
        if weights.has_bias:
            self.file.add(f"{name}.bias", weights.bias())
        return Stored(offset, scales_offset)

    def describe_as_table(self, name: str, weights: Matrix, stored: Stored) -> tuple[str, str]:
        """Declares the packed rows and their scales a second time, in the shapes that an embedding look-up wants."""
        (num_blocks, block_bytes), rows = self._row_shape(weights), weights.num_rows
        table_shape, scales_shape = (rows, num_blocks * block_bytes), (rows, num_blocks)
        table = self.file.describe(f"{name}.table", np.dtype(np.uint8), table_shape, stored.offset)
        scales = self.file.describe(f"{name}.table_scales", np.dtype(np.float32), scales_shape, stored.scales_offset)
        return table, scales

    def _row_shape(self, weights: Matrix) -> tuple[int, ...]:
        if not self.recipe.block_size:
            return (weights.num_columns,)
        num_blocks = -(-weights.num_columns // self.recipe.block_size)
        return (num_blocks, self.recipe.block_size * self.recipe.bits // 8)

    def _scales_shape(self, weights: Matrix) -> tuple[int, ...]:
        return (weights.num_rows, self._row_shape(weights)[0]) if self.recipe.block_size else (weights.num_rows,)

    def _pieces(self, weights: Matrix) -> Iterator[Piece]:
        """Packed pieces in order, a few at a time in flight."""
        rows_each = max(PIECE_ELEMENTS // weights.num_columns, 1)
        num_threads = os.cpu_count() or 1
        with ThreadPoolExecutor(num_threads) as pool:
            waiting: deque[Future[Piece]] = deque()
            for part in weights.parts:
                for start in range(0, part.shape[0], rows_each):
                    waiting.append(pool.submit(self._pack, part, start, min(start + rows_each, part.shape[0])))
                    if len(waiting) > 2 * num_threads:
                        yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _pack(self, part: Tensor, start: int, stop: int) -> Piece:
        rows = part.rows(start, stop)
        if self.recipe.name == "fp32":
            return rows, None
        if self.recipe.name == "w8a8":
            return quantize_rows(rows)
        return quantize_blocks(rows, self.recipe.bits, self.recipe.block_size)
