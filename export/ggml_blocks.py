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

# A piece, its quants and its scales together stay inside a core's second-level cache.
NUM_PIECE_ELEMENTS = 1 << 17


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """A block's size, and the function that writes blocks (B, num_bytes) as float32 (B, num_elements) in place."""

    num_elements: int
    num_bytes: int
    decode: Decode

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


def _planes(packed: Bytes, num_bits: int) -> Bytes:
    """Split bytes (B, G, width) into their fields of `num_bits`, lowest first: (B, G * 8 / num_bits * width)."""
    shifts = np.arange(0, 8, num_bits, dtype=np.uint8)[:, None]
    fields = packed[:, :, None, :] >> shifts
    fields &= np.uint8((1 << num_bits) - 1)
    return fields.reshape(len(packed), -1)


def _write_weights(out: Floats, quants: NDArray[np.integer], scales: Floats, offsets: Floats | None = None) -> None:
    """Fill `out` with `scales * quants + offsets`; every scale (B, G) covers an equal share of its block."""
    num_shared = out.shape[1] // scales.shape[1]
    np.copyto(out, quants)
    # Repeated scales and one long multiply are faster than a broadcast with a short inner loop.
    out *= np.repeat(scales, num_shared, axis=None).reshape(out.shape)
    if offsets is not None:
        out += np.repeat(offsets, num_shared, axis=None).reshape(out.shape)


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


def _decode_q8_0(blocks: Bytes, out: Floats) -> None:
    _write_weights(out, blocks[:, 2:].view(np.int8), _halves(blocks, 0, 2))


def _decode_q4_0(blocks: Bytes, out: Floats) -> None:
    _write_weights(out, _centred(_planes(blocks[:, None, 2:], 4), 8), _halves(blocks, 0, 2))


def _decode_q4_1(blocks: Bytes, out: Floats) -> None:
    _write_weights(out, _planes(blocks[:, None, 4:], 4), _halves(blocks, 0, 2), _halves(blocks, 2, 4))


def _five_bit_quants(high: Bytes, low: Bytes) -> Bytes:
    """Join 32 low nibbles (B, 16 bytes) with the fifth bits (B, 4 bytes, in element order)."""
    quants = _planes(low[:, None], 4)
    fifth = np.unpackbits(high.ravel(), bitorder="little").reshape(quants.shape)
    fifth <<= np.uint8(4)
    quants |= fifth
    return quants


def _decode_q5_0(blocks: Bytes, out: Floats) -> None:
    quants = _five_bit_quants(blocks[:, 2:6], blocks[:, 6:])
    _write_weights(out, _centred(quants, 16), _halves(blocks, 0, 2))


def _decode_q5_1(blocks: Bytes, out: Floats) -> None:
    quants = _five_bit_quants(blocks[:, 4:8], blocks[:, 8:])
    _write_weights(out, quants, _halves(blocks, 0, 2), _halves(blocks, 2, 4))


def _decode_q2_k(blocks: Bytes, out: Floats) -> None:
    factors = blocks[:, :16]
    scales = _halves(blocks, 80, 82) * (factors & np.uint8(15))
    offsets = -_halves(blocks, 82, 84) * (factors >> np.uint8(4))
    _write_weights(out, _planes(blocks[:, 16:80].reshape(-1, 2, 32), 2), scales, offsets)


def _decode_q3_k(blocks: Bytes, out: Floats) -> None:
    factors = _planes(blocks[:, None, 96:104], 4)
    factors |= _planes(blocks[:, None, 104:108], 2) << np.uint8(4)
    quants = _planes(blocks[:, 32:96].reshape(-1, 2, 32), 2)
    quants |= _planes(blocks[:, None, :32], 1) << np.uint8(2)
    _write_weights(out, _centred(quants, 4), _halves(blocks, 108, 110) * _centred(factors, 32))


def _scales_and_offsets(blocks: Bytes) -> tuple[Floats, Floats]:
    """Both (B, 8), from the 16-byte head that Q4_K and Q5_K share.

    Its twelve packed bytes hold eight 6-bit scales and eight 6-bit minimums: the first four of each whole, in the
    low bits of bytes 0–7; the last four as nibbles in bytes 8–11, with their two high bits on top of bytes 0–7.
    """
    first, last = blocks[:, 4:12], blocks[:, 12:16]
    late = _planes(last[:, None], 4) | (first >> np.uint8(6) << np.uint8(4))
    factors = np.concatenate([(first & np.uint8(63)).reshape(-1, 2, 4), late.reshape(-1, 2, 4)], axis=2)
    return _halves(blocks, 0, 2) * factors[:, 0], -_halves(blocks, 2, 4) * factors[:, 1]


def _decode_q4_k(blocks: Bytes, out: Floats) -> None:
    _write_weights(out, _planes(blocks[:, 16:].reshape(-1, 4, 32), 4), *_scales_and_offsets(blocks))


def _decode_q5_k(blocks: Bytes, out: Floats) -> None:
    quants = _planes(blocks[:, 48:].reshape(-1, 4, 32), 4)
    quants |= _planes(blocks[:, None, 16:48], 1) << np.uint8(4)
    _write_weights(out, quants, *_scales_and_offsets(blocks))


def _decode_q6_k(blocks: Bytes, out: Floats) -> None:
    quants = _planes(blocks[:, :128].reshape(-1, 2, 64), 4)
    quants |= _planes(blocks[:, 128:192].reshape(-1, 2, 32), 2) << np.uint8(4)
    scales = _halves(blocks, 208, 210) * blocks[:, 192:208].view(np.int8)
    _write_weights(out, _centred(quants, 32), scales)


BLOCK_FORMATS: Mapping[str, BlockFormat] = MappingProxyType(
    {
        "F32": BlockFormat(1, 4, _decode_f32),
        "F16": BlockFormat(1, 2, _decode_f16),
        "BF16": BlockFormat(1, 2, _decode_bf16),
        "Q8_0": BlockFormat(32, 34, _decode_q8_0),
        "Q4_0": BlockFormat(32, 18, _decode_q4_0),
        "Q4_1": BlockFormat(32, 20, _decode_q4_1),
        "Q5_0": BlockFormat(32, 22, _decode_q5_0),
        "Q5_1": BlockFormat(32, 24, _decode_q5_1),
        "Q2_K": BlockFormat(256, 84, _decode_q2_k),
        "Q3_K": BlockFormat(256, 110, _decode_q3_k),
        "Q4_K": BlockFormat(256, 144, _decode_q4_k),
        "Q5_K": BlockFormat(256, 176, _decode_q5_k),
        "Q6_K": BlockFormat(256, 210, _decode_q6_k),
    }
)
