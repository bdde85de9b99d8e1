"""Recipes, the layouts that they give to each matrix, and the packing of float rows into a layout.

Axis letters: `R` output rows, `K` input columns, `B` block size, `G` = K / B blocks in a row.
A row never depends on its neighbours, so rows can be streamed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pilotfish.export.block_search import TINY, search_blocks
from pilotfish.runtime.bundle import FLOAT_BYTES
from pilotfish.runtime.errors import OptionError

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Layout:
    """How one matrix is stored, and by that, how it is multiplied.

    | kind | codes | scales | zero points | offsets |
    |---|---|---|---|---|
    | `float` | `floats` (R, K) | | | |
    | `rows` | int8 (R, K) | (R,) | | |
    | `blocks` | uint8 (R, G, B · bits / 8) | (R, G) | packed codes (R, ⌈G · bits / 8⌉) | (R, G) |

    Of two codes in a byte the low half is the first. A weight of `blocks` is scale · (code − zero point) + offset.
    Without `zero_points` that is 2^(bits − 1); without `offsets` there is none. `rows` go with activations of
    `activation_bits`, 8 or 16, all others with activations that are `floats`, as scales, offsets and biases are.
    """

    kind: Literal["float", "rows", "blocks"]
    bits: int
    block_size: int = 0
    zero_points: bool = False
    offsets: bool = False
    activation_bits: int = 32
    floats: str = "float32"

    @property
    def float_bytes(self) -> int:
        """Bytes of one of `floats`."""
        return FLOAT_BYTES[self.floats]

    @property
    def zero_point(self) -> int:
        """The code of a block's zero where no zero points are stored."""
        return 1 << (self.bits - 1)

    def num_blocks(self, num_columns: int) -> int:
        """Blocks in a row; the last one is padded with zeros."""
        return -(-num_columns // self.block_size)

    def tensor_bytes(self, num_rows: int, num_columns: int) -> tuple[int, ...]:
        """Bytes of the codes, scales, zero points and offsets of a matrix, as far as there are any, in that order."""
        if self.kind == "float":
            return (num_rows * num_columns * self.float_bytes,)
        if self.kind == "rows":
            return num_rows * num_columns, self.float_bytes * num_rows
        num_blocks = self.num_blocks(num_columns)
        sizes = [num_blocks * self.block_size * self.bits // 8, self.float_bytes * num_blocks]
        sizes += [-(-num_blocks * self.bits // 8)] if self.zero_points else []
        sizes += [self.float_bytes * num_blocks] if self.offsets else []
        return tuple(num_rows * size for size in sizes)


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows in a layout, which says the shapes. Floats are float32 until they are written."""

    codes: NDArray[Any]
    scales: NDArray[Any] | None = None
    zero_points: Bytes | None = None
    offsets: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the weights of all projections, the embedding and the head are stored.

    | name | weights | activations | the matrix product |
    |---|---|---|---|
    | `fp32` | float32 | float32 | Gemm |
    | `int8` | 8 bits, blocks of `block_size` share a scale | float32, rounded inside the kernel | MatMulNBits |
    | `int4` | 4 bits, blocks of `block_size` share a scale and a zero point | as `int8` | MatMulNBits |
    | `int4-mixed` | as `int4`; embedding, head and half of all v and down as `int8` | as `int8` | both |
    | `source` | the blocks of a quantized GGUF as they are; as `int8` what is not quantized there | as `int8` | both |
    | `w8a8` | 8 bits, one scale for each output row | 8 bits, one scale for each token | QGemm |
    | `w8a16` | as `w8a8` | 15 bits in two parts of 8, one scale for each token | QGemm of twice the rows |
    | `fp16`, `bf16` | `floats` | `floats` | Gemm |

    `floats` is the type of all that is not rounded to integers: activations, scales, norms and caches. The recipes in
    blocks compute with float16 or bfloat16, which GPUs are fast at, where their name ends in `-fp16` or `-bf16`.

    In `w8a8` and `w8a16` the scale of an activation belongs to its own token. With one scale for the whole block, a
    token's logits would depend on the drafted tokens beside it and speculation would change the output.
    """

    name: str
    bits: int
    block_size: int = 0
    floats: str = "float32"

    def __str__(self) -> str:
        text = f"{self.name}-b{self.block_size}" if self.block_size else self.name
        has_suffix = self.floats != "float32" and not self.name.endswith(_SUFFIXES[self.floats])
        return f"{text}-{_SUFFIXES[self.floats]}" if has_suffix else text

    def layout(self, stem: str = "", layer: int = -1, num_layers: int = 0, source: Layout | None = None) -> Layout:
        """The layout of a weight: `stem` is a key of `WEIGHT_NAMES`, empty if that is not known.

        `source` is that of the weight's own blocks if it comes quantized, which the recipe `source` keeps.
        """
        return replace(self._layout(stem, layer, num_layers, source), floats=self.floats)

    def _layout(self, stem: str, layer: int, num_layers: int, source: Layout | None) -> Layout:
        if self.name == "source" and source is not None:
            return source
        if self.name in _UNBLOCKED:
            return _UNBLOCKED[self.name]
        if self.name == "int8" or (self.name == "int4-mixed" and _is_sensitive(stem, layer, num_layers)):
            return Layout("blocks", 8, self.block_size if self.name == "int8" else 32)
        return Layout("blocks", 4, self.block_size, zero_points=True)


_UNBLOCKED = {
    "fp32": Layout("float", 32),
    "fp16": Layout("float", 16),
    "bf16": Layout("float", 16),
    "w8a8": Layout("rows", 8, activation_bits=8),
    "w8a16": Layout("rows", 8, activation_bits=16),
    "source": Layout("blocks", 8, 32),
}
_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "int8": 8, "int4": 4, "int4-mixed": 4, "w8a8": 8, "w8a16": 8, "source": 8}
_SUFFIXES = {"float16": "fp16", "bfloat16": "bf16"}
RECIPES = tuple(_BITS)
BLOCK_SIZES = (16, 32, 64, 128)


def parse_recipe(text: str) -> Recipe:
    """A recipe by its name; those in blocks optionally with a size and a type of floats, as in `int4-b128-fp16`.

    Blocks have 32 weights unless a size is given.
    """
    stem, floats = text, "float32"
    for dtype, suffix in _SUFFIXES.items():
        if text.endswith(suffix):
            stem, floats = text.removesuffix(f"-{suffix}"), dtype
    name, separator, block = stem.partition("-b")
    if name not in _BITS:
        raise OptionError(f"unknown recipe {text!r}; choose one of {', '.join(RECIPES)}")
    if floats != "float32" and stem != text and name not in ("int8", "int4", "int4-mixed", "source"):
        raise OptionError(f"recipe {text!r}: {name} computes with numbers of its own; write {name!r}")
    if name in _UNBLOCKED:
        if separator:
            raise OptionError(f"recipe {text!r}: {name} has no block size; write {name!r}")
        return Recipe(name, _BITS[name], floats=floats)
    block_size = int(block) if block.isdecimal() else 0 if separator else 32
    if block_size not in BLOCK_SIZES:
        raise OptionError(f"recipe {text!r}: the block size must be one of {BLOCK_SIZES}")
    return Recipe(name, _BITS[name], block_size, floats)


def _is_sensitive(stem: str, layer: int, num_layers: int) -> bool:
    """Whether rounding a weight to 4 bits costs more than most.

    v and down of the first and last eighth of the layers and of every third between: `use_more_bits` of llama.cpp's
    K_M recipes.
    """
    if stem not in ("v", "down"):
        return stem in ("embedding", "head")
    eighth = num_layers // 8
    return layer < eighth or layer >= num_layers - eighth or (layer - eighth) % 3 == 2


def pack(weights: Floats, layout: Layout) -> Packed:
    """Rounds float32 rows (R, K) into a layout without offsets."""
    if layout.kind == "float":
        return Packed(weights)
    if layout.kind == "rows":
        return Packed(*quantize_rows(weights))
    num_rows, num_columns = weights.shape
    if padding := -num_columns % layout.block_size:
        weights = np.pad(weights, ((0, 0), (0, padding)))
    # One block is a column from here on, since NumPy reduces along the first axis much faster than along a short last.
    blocks = np.ascontiguousarray(weights.reshape(-1, layout.block_size).T)
    if not layout.zero_points:
        codes, scales = quantize_blocks(blocks, layout.bits)
        return Packed(pack_codes(codes, layout, num_rows), scales.reshape(num_rows, -1))
    codes, scales, zeros = search_blocks(blocks, layout.bits)
    zero_points = pack_fields(zeros.reshape(num_rows, -1), layout.bits)
    return Packed(pack_codes(codes, layout, num_rows), scales.reshape(num_rows, -1), zero_points)


def pack_codes(codes: Bytes, layout: Layout, num_rows: int) -> Bytes:
    """Codes (B, R · G), a block being a column, as `Layout` has them."""
    if layout.bits == 4:
        codes = codes[0::2] | (codes[1::2] * np.uint8(16))
    return np.ascontiguousarray(codes.T).reshape(num_rows, -1, len(codes))


def pack_fields(fields: Bytes, bits: int) -> Bytes:
    """Numbers of `bits` each, (R, G), packed by rows into bytes: (R, ⌈G · bits / 8⌉)."""
    if bits == 8:
        return fields
    if fields.shape[1] % 2:
        fields = np.pad(fields, ((0, 0), (0, 1)))
    return fields[:, 0::2] | (fields[:, 1::2] * np.uint8(16))


def quantize_blocks(blocks: Floats, bits: int) -> tuple[Bytes, Floats]:
    """(B, number of blocks), overwritten, → codes of the same shape and a scale a block; zero is the code 2^(bits − 1).

    Rounds to nearest. The element of a block that is largest in magnitude maps to the most negative code exactly, so
    all codes are used.
    """
    zero_point = 1 << (bits - 1)
    high, low = blocks.max(axis=0), blocks.min(axis=0)
    scales = np.where(high > -low, high, low) / np.float32(-zero_point)
    blocks *= np.divide(1, scales, out=np.zeros_like(scales), where=np.abs(scales) > TINY)
    blocks += np.float32(zero_point + 0.5)  # a truncating cast after this rounds half up
    np.minimum(blocks, 2 * zero_point - 1, out=blocks)
    return blocks.astype(np.uint8), scales


def quantize_rows(weights: Floats) -> tuple[NDArray[np.int8], Floats]:
    """(R, K) → int8 (R, K) in −127…127 and scales (R,)."""
    scales = np.maximum(weights.max(axis=1), -weights.min(axis=1)) / np.float32(127)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > TINY)
    codes = weights * inverse[:, None]
    return np.rint(codes, out=codes).astype(np.int8), scales
