"""Turns quantized GGUF blocks into float32.

A row of a GGUF tensor is a run of blocks. A block packs a fixed number of small integers (quants) with the scales
that turn them into weights: `weight = scale * quant`, or `scale * quant + offset`. In the K formats a block of 256
holds groups of 16 or 32 elements, each with a small integer scale that multiplies the block's own float16 scale.

Axis letters: `B` blocks, `G` groups of elements that share a scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.errors import CheckpointError

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Decode = Callable[[Bytes, Floats], None]
# Quants in runs (runs, B, W), and scales and, if the type has any, offsets, both (B, G).
Parts = tuple[NDArray[np.uint8] | NDArray[np.int8], Floats, Floats | None]
Split = Callable[[Bytes], Parts]

# One MiB of float32: large enough for threads to overlap, small enough for a core's second-level cache.
NUM_PIECE_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """A block's size, and the function that writes blocks (B, num_bytes) as float32 (B, num_elements) in place.

    `split` of a quantized type takes blocks apart: runs of quants, laid end to end, are the elements of a block.
    """

    num_elements: int
    num_bytes: int
    decode: Decode
    split: Split | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an empty block."""
        if self.num_elements < 1 or self.num_bytes < 1:
            raise ValueError(f"a block needs elements and bytes, got {self.num_elements} and {self.num_bytes}")


def dequantize(data: Bytes, type_name: str, out: Floats | None = None) -> Floats:
    """Dequantize uint8 (rows, bytes_per_row) into float32 (rows, columns), in pieces that stay in the cache.

    `out`, when given, is filled and returned; it must be C-contiguous. C-contiguous `data` is not copied. Safe to
    call from several threads. A non-finite scale gives non-finite weights. Raises CheckpointError for a type that
    is not in `BLOCK_FORMATS`, ValueError for arrays of the wrong dtype or shape.
    """
    block = block_format(type_name)
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] % block.num_bytes:
        raise ValueError(
            f"{type_name} needs uint8 rows of whole {block.num_bytes}-byte blocks, got {data.dtype} {data.shape}"
        )
    shape = (data.shape[0], data.shape[1] // block.num_bytes * block.num_elements)
    if out is None:
        out = np.empty(shape, np.float32)
    elif out.dtype != np.float32 or out.shape != shape or not out.flags.c_contiguous:
        raise ValueError(f"out must be C-contiguous float32 {shape}, got {out.dtype} {out.shape}")
    blocks = data.reshape(-1, block.num_bytes)
    weights = out.reshape(-1, block.num_elements)
    stride = max(1, NUM_PIECE_ELEMENTS // block.num_elements)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(blocks), stride):
            block.decode(blocks[start : start + stride], weights[start : start + stride])
    return out


def block_format(type_name: str) -> BlockFormat:
    """The format called `type_name`; raises CheckpointError with the supported names when there is none."""
    try:
        return BLOCK_FORMATS[type_name]
    except KeyError:
        supported = ", ".join(BLOCK_FORMATS)
        raise CheckpointError(
            f"tensor type {type_name} is not supported; requantize the model to one of {supported}"
        ) from None


def _halves(blocks: Bytes, start: int, stop: int) -> Floats:
    return blocks[:, start:stop].view("<f2").astype(np.float32)


def _fields(packed: Bytes, num_bits: int, position: int = 0) -> Bytes:
    """Split bytes into fields of `num_bits`, lowest first, and leave every field's lowest bit at `position`.

    `packed` is (B, G, R, W): all lowest fields of a group come before all second fields, so elements are ordered
    (B, G, field, R, W). Returned as runs (G * fields * R, B, W): with the blocks inside, each operation here is one
    long loop, and only `_write_weights` walks short runs.
    """
    num_blocks, num_groups, num_runs, width = packed.shape
    source = np.ascontiguousarray(packed.transpose(1, 2, 0, 3))
    fields = np.empty((num_groups, 8 // num_bits, num_runs, num_blocks, width), np.uint8)
    for index in range(fields.shape[1]):
        distance = index * num_bits - position
        if distance >= 0:
            np.right_shift(source, np.uint8(distance), out=fields[:, index])
        else:
            # NumPy vectorizes the multiplication of bytes, but not their shift to the left.
            np.multiply(source, np.uint8(1 << -distance), out=fields[:, index])
    fields &= np.uint8(((1 << num_bits) - 1) << position)
    return fields.reshape(-1, num_blocks, width)


def _write_weights(out: Floats, quants: NDArray[np.integer], scales: Floats, offsets: Floats | None = None) -> None:
    """Fill `out` with `scales * quants + offsets`; quants are runs (runs, B, W), the others (B, G)."""
    num_runs, num_blocks, width = quants.shape
    np.copyto(out.reshape(num_blocks, num_runs, width), quants.transpose(1, 0, 2))
    groups = out.reshape(num_blocks, scales.shape[1], -1)
    groups *= _spread(scales, groups.shape[2])
    if offsets is not None:
        groups += _spread(offsets, groups.shape[2])


def _spread(values: Floats, num_shared: int) -> Floats:
    """Shape (B, G) so that it broadcasts over the `num_shared` elements of each group."""
    if num_shared >= 32:
        return values[:, :, None]
    # A loop over so few elements costs more than to repeat the values and multiply in one long loop.
    return np.repeat(values, num_shared, axis=None).reshape(*values.shape, num_shared)


def _centred(quants: Bytes, centre: int) -> NDArray[np.int8]:
    """Subtract `centre` in place; the difference wraps into the int8 range."""
    quants -= np.uint8(centre)
    return quants.view(np.int8)


def _decode_f32(blocks: Bytes, out: Floats) -> None:
    np.copyto(out, blocks.view("<f4"))


def _decode_f16(blocks: Bytes, out: Floats) -> None:
    np.copyto(out, blocks.view("<f2"))


def _decode_bf16(blocks: Bytes, out: Floats) -> None:
    bits = out.view(np.uint32)
    np.copyto(bits, blocks.view("<u2"))
    bits <<= np.uint32(16)


def _split_q8_0(blocks: Bytes) -> Parts:
    return blocks[None, :, 2:].view(np.int8), _halves(blocks, 0, 2), None


def _split_q4_0(blocks: Bytes) -> Parts:
    quants = _fields(blocks[:, 2:].reshape(-1, 1, 1, 16), 4)
    return _centred(quants, 8), _halves(blocks, 0, 2), None


def _split_q4_1(blocks: Bytes) -> Parts:
    quants = _fields(blocks[:, 4:].reshape(-1, 1, 1, 16), 4)
    return quants, _halves(blocks, 0, 2), _halves(blocks, 2, 4)


def _five_bit_quants(fifth: Bytes, low: Bytes) -> Bytes:
    """Join low nibbles (B, 16 bytes) with the fifth bits (B, 4 bytes, in element order): runs (2, B, 16)."""
    quants = _fields(low.reshape(-1, 1, 1, 16), 4)
    halves = np.ascontiguousarray(fifth.view(np.uint16).T)  # the two bytes of each run, run by run
    bits = np.unpackbits(halves.view(np.uint8), bitorder="little")
    bits *= np.uint8(16)
    quants |= bits.reshape(quants.shape)
    return quants


def _split_q5_0(blocks: Bytes) -> Parts:
    quants = _five_bit_quants(blocks[:, 2:6], blocks[:, 6:])
    return _centred(quants, 16), _halves(blocks, 0, 2), None


def _split_q5_1(blocks: Bytes) -> Parts:
    quants = _five_bit_quants(blocks[:, 4:8], blocks[:, 8:])
    return quants, _halves(blocks, 0, 2), _halves(blocks, 2, 4)


def _split_q2_k(blocks: Bytes) -> Parts:
    factors = blocks[:, :16]
    scales = _halves(blocks, 80, 82) * (factors & np.uint8(15))
    offsets = -_halves(blocks, 82, 84) * (factors >> np.uint8(4))
    return _fields(blocks[:, 16:80].reshape(-1, 2, 1, 32), 2), scales, offsets


def _split_q3_k(blocks: Bytes) -> Parts:
    factors = _fields(blocks[:, 96:104].reshape(-1, 1, 2, 4), 4)
    factors |= _fields(blocks[:, 104:108].reshape(-1, 1, 1, 4), 2, position=4)
    scales = _halves(blocks, 108, 110) * _centred(factors, 32).transpose(1, 0, 2).reshape(-1, 16)
    quants = _fields(blocks[:, 32:96].reshape(-1, 2, 1, 32), 2)
    quants |= _fields(blocks[:, :32].reshape(-1, 1, 1, 32), 1, position=2)
    return _centred(quants, 4), scales, None


def _scales_and_offsets(blocks: Bytes) -> tuple[Floats, Floats]:
    """Both (B, 8), from the 16-byte head that Q4_K and Q5_K share.

    Its last twelve bytes, three words of four, hold eight 6-bit scales and eight 6-bit minimums. The low six bits
    of word 0 are scales 0-3, those of word 1 are minimums 0-3. Word 2 has the low nibbles of scales 4-7 and of
    minimums 4-7, whose two high bits sit on top of words 0 and 1.
    """
    scales, minimums, nibbles = np.ascontiguousarray(blocks[:, 4:16]).view(np.uint32).T
    six, four, two = np.uint32(0x3F3F3F3F), np.uint32(0x0F0F0F0F), np.uint32(0x30303030)
    words = [
        scales & six,
        nibbles & four | scales >> 2 & two,
        minimums & six,
        nibbles >> 4 & four | minimums >> 2 & two,
    ]
    factors = np.stack(words, axis=1).view(np.uint8)
    return _halves(blocks, 0, 2) * factors[:, :8], -_halves(blocks, 2, 4) * factors[:, 8:]


def _split_q4_k(blocks: Bytes) -> Parts:
    return _fields(blocks[:, 16:].reshape(-1, 4, 1, 32), 4), *_scales_and_offsets(blocks)


def _split_q5_k(blocks: Bytes) -> Parts:
    quants = _fields(blocks[:, 48:].reshape(-1, 4, 1, 32), 4)
    quants |= _fields(blocks[:, 16:48].reshape(-1, 1, 1, 32), 1, position=4)
    return quants, *_scales_and_offsets(blocks)


def _split_q6_k(blocks: Bytes) -> Parts:
    quants = _fields(blocks[:, :128].reshape(-1, 2, 2, 32), 4)
    quants |= _fields(blocks[:, 128:192].reshape(-1, 2, 1, 32), 2, position=4)
    scales = _halves(blocks, 208, 210) * blocks[:, 192:208].view(np.int8)
    return _centred(quants, 32), scales, None


def _quantized(num_elements: int, num_bytes: int, split: Split) -> BlockFormat:
    return BlockFormat(num_elements, num_bytes, lambda blocks, out: _write_weights(out, *split(blocks)), split)


BLOCK_FORMATS: Mapping[str, BlockFormat] = MappingProxyType(
    {
        "F32": BlockFormat(1, 4, _decode_f32),
        "F16": BlockFormat(1, 2, _decode_f16),
        "BF16": BlockFormat(1, 2, _decode_bf16),
        "Q8_0": _quantized(32, 34, _split_q8_0),
        "Q4_0": _quantized(32, 18, _split_q4_0),
        "Q4_1": _quantized(32, 20, _split_q4_1),
        "Q5_0": _quantized(32, 22, _split_q5_0),
        "Q5_1": _quantized(32, 24, _split_q5_1),
        "Q2_K": _quantized(256, 84, _split_q2_k),
        "Q3_K": _quantized(256, 110, _split_q3_k),
        "Q4_K": _quantized(256, 144, _split_q4_k),
        "Q5_K": _quantized(256, 176, _split_q5_k),
        "Q6_K": _quantized(256, 210, _split_q6_k),
    }
)
