"""Quantization: rounding error within half a step, full use of the codes, and names that are checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pilotfish.export.quantize import Recipe, parse_recipe, quantize_blocks, quantize_rows
from pilotfish.runtime.errors import OptionError

VALUES = st.floats(-1000, 1000, width=32)


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    if bits == 8:
        return packed.astype(np.int32) - 128
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:2], -1).astype(np.int32) - 8


@pytest.mark.parametrize("bits", [4, 8])
@given(weights=arrays(np.float32, (3, 64), elements=VALUES))
def test_blocks_are_off_by_at_most_half_a_step(bits: int, weights: np.ndarray):
    packed, scales = quantize_blocks(weights, bits, 32)
    assert packed.shape == (3, 2, 32 * bits // 8)
    restored = unpacked(packed, bits) * scales[..., None]
    error = np.abs(restored - weights.reshape(3, 2, 32))
    step = np.abs(scales)[..., None]
    # The side of zero opposite the peak has one code less, so a value there may be a whole step away.
    assert (error <= step * np.where(weights.reshape(3, 2, 32) * scales[..., None] > 0, 1.001, 0.501) + 1e-6).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_the_largest_element_of_a_block_is_kept_exactly(bits: int):
    weights = np.random.default_rng(0).normal(size=(4, 128)).astype(np.float32)
    packed, scales = quantize_blocks(weights, bits, 64)
    restored = (unpacked(packed, bits) * scales[..., None]).reshape(4, 2, 64)
    blocks = weights.reshape(4, 2, 64)
    peaks = np.abs(blocks).argmax(axis=2)[..., None]
    np.testing.assert_allclose(np.take_along_axis(restored, peaks, 2), np.take_along_axis(blocks, peaks, 2), rtol=1e-6)


def test_a_last_block_that_is_not_full_is_padded():
    packed, scales = quantize_blocks(np.ones((2, 40), np.float32), 8, 32)
    assert (packed.shape, scales.shape) == ((2, 2, 32), (2, 2))
    assert (unpacked(packed, 8)[:, 1, 8:] == 0).all()


@given(weights=arrays(np.float32, (4, 32), elements=VALUES))
def test_rows_are_off_by_at_most_half_a_step(weights: np.ndarray):
    codes, scales = quantize_rows(weights)
    assert codes.min() >= -127
    assert (np.abs(codes * scales[:, None] - weights) <= scales[:, None] * 0.501 + 1e-6).all()


def test_zeros_stay_zeros():
    for bits in (4, 8):
        packed, scales = quantize_blocks(np.zeros((1, 32), np.float32), bits, 32)
        assert not (unpacked(packed, bits) * scales[..., None]).any()
    codes, scales = quantize_rows(np.zeros((1, 32), np.float32))
    assert not codes.any()
    assert not scales.any()


def test_recipes_have_names():
    assert parse_recipe("int4-b128") == Recipe("int4", 4, 128)
    assert str(parse_recipe("int8")) == "int8-b32"
    assert str(parse_recipe("w8a8")) == "w8a8"


@pytest.mark.parametrize("text", ["int5", "", "int4-b33", "int4-bx", "w8a8-b32", "fp32-b32"])
def test_other_names_are_refused(text: str):
    with pytest.raises(OptionError, match="recipe"):
        parse_recipe(text)
