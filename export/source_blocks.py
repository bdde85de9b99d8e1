"""The blocks of a quantized GGUF in layouts that ONNX Runtime multiplies with: the same numbers, rounded only once.

A weight of a GGUF block is scale · quant, or scale · quant + offset, and so is one of ours. Types of 5 and 6 bits take
8 of ours, the least that the kernels have. Where there is an offset, quants are shifted to be symmetric about the code
that stands for zero, since the kernels round activations in proportion to the codes.

Axis letters: `R` rows, `B` elements that share a scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from pilotfish.export.ggml_blocks import BLOCK_FORMATS, Bytes
from pilotfish.export.gguf import GgufTensor
from pilotfish.export.quantize import Layout, Packed, pack_codes

# The layout of each quantized type, the smallest that holds it exactly.
SOURCE_LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "Q8_0": Layout("blocks", 8, 32),
        "Q4_0": Layout("blocks", 4, 32),
        "Q4_1": Layout("blocks", 4, 32, offsets=True),
        "Q5_0": Layout("blocks", 8, 32),
        "Q5_1": Layout("blocks", 8, 32, offsets=True),
        "Q2_K": Layout("blocks", 4, 16, offsets=True),
        "Q3_K": Layout("blocks", 4, 16),
        "Q4_K": Layout("blocks", 4, 32, offsets=True),
        "Q5_K": Layout("blocks", 8, 32, offsets=True),
        "Q6_K": Layout("blocks", 8, 16),
    }
)
# The middle of the quants of the types with an offset; those of the others are symmetric about 0.
_MIDDLES = {"Q4_1": 8, "Q5_1": 16, "Q2_K": 2, "Q4_K": 8, "Q5_K": 16}


@dataclass(frozen=True, slots=True)
class PackedSource:
    """`rows(start, stop)` reads those rows in `layout`; their weights are the source's, times `multiplier`."""

    layout: Layout
    read: Callable[[int, int], Packed]
    multiplier: float = 1.0

    def rows(self, start: int, stop: int) -> Packed:
        """The rows in `layout`."""
        packed = self.read(start, stop)
        if self.multiplier == 1 or packed.scales is None:
            return packed
        offsets = None if packed.offsets is None else packed.offsets * np.float32(self.multiplier)
        return replace(packed, scales=packed.scales * np.float32(self.multiplier), offsets=offsets)


def packed_source(tensor: GgufTensor) -> PackedSource | None:
    """The tensor in its layout, or None if it is not quantized."""
    if tensor.type_name not in SOURCE_LAYOUTS:
        return None
    type_name = tensor.type_name
    return PackedSource(
        SOURCE_LAYOUTS[type_name], lambda start, stop: repack(tensor.stored_rows(start, stop), type_name)
    )


def repack(data: Bytes, type_name: str) -> Packed:
    """GGUF rows, uint8 (R, bytes_per_row), in the layout of their type."""
    block, layout = BLOCK_FORMATS[type_name], SOURCE_LAYOUTS[type_name]
    if block.split is None:
        raise ValueError(f"{type_name} is not quantized")
    quants, scales, offsets = block.split(data.reshape(-1, block.num_bytes))
    middle, num_rows = _MIDDLES.get(type_name, 0), len(data)
    # Quants are at most 8 bits, so that a sum that wraps around is right.
    codes = quants.view(np.uint8) + np.uint8(layout.zero_point - middle)
    by_block = codes.transpose(1, 0, 2).reshape(-1, layout.block_size)
    if offsets is not None:
        offsets = (offsets + np.float32(middle) * scales).reshape(num_rows, -1)
    return Packed(pack_codes(by_block.T, layout, num_rows), scales.reshape(num_rows, -1), offsets=offsets)
