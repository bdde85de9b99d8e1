"""Weight quantization, row by row: float rows in, packed rows and scales out.

Axis letters: `R` output rows, `K` input columns, `B` block size, `G` = K / B blocks in a row.
Every recipe rounds to nearest and is symmetric, so a row never depends on its neighbours and rows can be streamed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.errors import OptionError

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the weights of all projections, the embedding and the head are stored.

    | name | weights | activations | the matrix product |
    |---|---|---|---|
    | `fp32` | float32 | float32 | Gemm |
    | `int8`, `int4` | blocks of `block_size` share one scale | float32, rounded inside the kernel | MatMulNBits |
    | `w8a8` | one scale for each output row | 8 bits, one scale for each token | QGemm |

    In `w8a8` the scale of an activation belongs to its own token. With one scale for the whole block, a token's logits
    would depend on the drafted tokens beside it and speculation would change the output.
    """

    name: str
    bits: int
    block_size: int = 0

    def __str__(self) -> str:
        return f"{self.name}-b{self.block_size}" if self.block_size else self.name


RECIPES = ("fp32", "int8", "int4", "w8a8")
BLOCK_SIZES = (16, 32, 64, 128)


def parse_recipe(text: str) -> Recipe:
    """`fp32`, `w8a8`, `int8`, `int4`, the last two optionally with a block size as in `int4-b128` (default 32)."""
    name, _, block = text.partition("-b")
    if name not in RECIPES:
        raise OptionError(f"unknown recipe {text!r}; choose one of {', '.join(RECIPES)}")
    if name in ("fp32", "w8a8"):
        if block:
            raise OptionError(f"recipe {text!r}: {name} has no block size; write {name!r}")
        return Recipe(name, 32 if name == "fp32" else 8)
    block_size = int(block) if block.isdecimal() else 0 if block else 32
    if block_size not in BLOCK_SIZES:
        raise OptionError(f"recipe {text!r}: the block size must be one of {BLOCK_SIZES}")
    return Recipe(name, 4 if name == "int4" else 8, block_size)


def quantize_blocks(weights: Floats, bits: int, block_size: int) -> tuple[NDArray[np.uint8], Floats]:
    """(R, K) → packed (R, G, B · bits / 8) and scales (R, G), with zero point 2^(bits − 1).

    The element of a block that is largest in magnitude maps to the most negative code exactly, so all codes are used.
    A last block that is not full is padded with zeros. The low half of a byte is the earlier element.
    """
    num_rows, num_columns = weights.shape
    if padding := -num_columns % block_size:
        weights = np.pad(weights, ((0, 0), (0, padding)))
    # One block is a column from here on, since NumPy reduces along the first axis much faster than along a short last.
    blocks = np.ascontiguousarray(weights.reshape(-1, block_size).T)
    zero_point = 1 << (bits - 1)
    high, low = blocks.max(axis=0), blocks.min(axis=0)
    scales = np.where(high > -low, high, low) / np.float32(-zero_point)
    blocks *= np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    blocks += np.float32(zero_point + 0.5)  # a truncating cast after this rounds half up
    np.minimum(blocks, 2 * zero_point - 1, out=blocks)
    codes = blocks.astype(np.uint8)
    if bits == 4:
        codes = codes[0::2] | (codes[1::2] * np.uint8(16))
    packed = np.ascontiguousarray(codes.T)
    return packed.reshape(num_rows, -1, block_size * bits // 8), scales.reshape(num_rows, -1)


def quantize_rows(weights: Floats) -> tuple[NDArray[np.int8], Floats]:
    """(R, K) → int8 (R, K) in −127…127 and scales (R,)."""
    scales = np.maximum(weights.max(axis=1), -weights.min(axis=1)) / np.float32(127)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales != 0)
    codes = weights * inverse[:, None]
    return np.rint(codes, out=codes).astype(np.int8), scales
