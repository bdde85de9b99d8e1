"""Quantization: rounding error within half a step, full use of the codes, and names that are checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pilotfish.export.block_search import search_blocks
from pilotfish.export.ggml_blocks import BLOCK_FORMATS, dequantize
from pilotfish.export.quantize import Layout, Packed, Recipe, pack, parse_recipe, quantize_blocks, quantize_rows
from pilotfish.export.source_blocks import SOURCE_LAYOUTS, repack
from pilotfish.runtime.errors import OptionError

VALUES = st.floats(-1000, 1000, width=32, allow_subnormal=False).map(lambda value: value if abs(value) > 1e-6 else 0.0)
LAYOUTS = {"int8": Layout("blocks", 8, 32), "int4": Layout("blocks", 4, 32, zero_points=True)}
each_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def fields(packed: np.ndarray, bits: int) -> np.ndarray:
    """The numbers in the last axis of bytes, as integers."""
    if bits == 8:
        return packed.astype(np.int32)
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1).astype(np.int32)


def restored(packed: Packed, layout: Layout) -> np.ndarray:
    """The weights that a kernel sees, by the definition of a layout: float32 (R, G, B)."""
    codes, num_blocks = fields(packed.codes, layout.bits), packed.codes.shape[1]
    zeros = layout.zero_point
    if packed.zero_points is not None:
        zeros = fields(packed.zero_points, layout.bits)[:, :num_blocks, None]
    offsets = 0 if packed.offsets is None else packed.offsets[..., None]
    return packed.scales[..., None] * (codes - zeros) + offsets


@given(weights=arrays(np.float32, (3, 64), elements=VALUES))
def test_rounding_to_nearest_is_off_by_at_most_half_a_step(weights: np.ndarray):
    packed = pack(weights, LAYOUTS["int8"])
    assert packed.codes.shape == (3, 2, 32)
    blocks, step = weights.reshape(3, 2, 32), np.abs(packed.scales)[..., None]
    # The side of zero opposite the peak has one code less, so a value there may be a whole step away.
    slack = step * np.where(blocks * packed.scales[..., None] > 0, 1.001, 0.501) + 1e-6
    assert (np.abs(restored(packed, LAYOUTS["int8"]) - blocks) <= slack).all()


@given(weights=arrays(np.float32, (3, 64), elements=VALUES))
def test_the_search_is_off_by_little_more_than_half_a_step(weights: np.ndarray):
    """In the mean square of a block, by the step that spans it exactly, zero included."""
    layout = LAYOUTS["int4"]
    blocks = weights.reshape(3, 2, 32)
    step = (np.maximum(blocks.max(axis=2), 0) - np.minimum(blocks.min(axis=2), 0)) / 15
    error = restored(pack(weights, layout), layout) - blocks
    assert (np.sqrt(np.square(error).mean(axis=2)) <= 0.6 * step + 1e-20).all()


def test_the_search_gains_on_weights_as_models_have_them():
    """Against rounding to nearest with a zero in the middle, on normal weights."""
    blocks = np.random.default_rng(0).normal(size=(32, 4096)).astype(np.float32)
    codes, scales = quantize_blocks(blocks.copy(), 4)
    plain = np.square((codes.astype(np.float32) - 8) * scales - blocks).sum()
    codes, scales, zeros = search_blocks(blocks, 4)
    found = np.square((codes.astype(np.float32) - zeros) * scales - blocks).sum()
    assert found < 0.85 * plain


def test_the_largest_element_of_a_block_is_kept_exactly():
    weights = np.random.default_rng(0).normal(size=(4, 128)).astype(np.float32)
    layout = Layout("blocks", 8, 64)
    blocks, found = weights.reshape(4, 2, 64), restored(pack(weights, layout), layout)
    peaks = np.abs(blocks).argmax(axis=2)[..., None]
    np.testing.assert_allclose(np.take_along_axis(found, peaks, 2), np.take_along_axis(blocks, peaks, 2), rtol=1e-6)


@each_layout
def test_a_last_block_that_is_not_full_is_padded(layout: Layout):
    packed = pack(np.ones((2, 40), np.float32), layout)
    found = restored(packed, layout)
    assert found.shape == (2, 2, 32)
    np.testing.assert_allclose(found.reshape(2, 64)[:, :40], 1, rtol=1e-6)
    assert (found[:, 1, 8:] == 0).all()


@pytest.mark.parametrize("num_columns", [32, 96])
def test_an_odd_number_of_zero_points_is_padded(num_columns: int):
    layout = LAYOUTS["int4"]
    weights = np.random.default_rng(1).uniform(1, 3, size=(3, num_columns)).astype(np.float32)
    packed = pack(weights, layout)
    assert packed.zero_points.shape == (3, (num_columns // 32 + 1) // 2)
    assert np.abs(restored(packed, layout).reshape(3, -1) - weights).mean() < 0.07  # a step is 0.2, so 0.05 if evenly


@pytest.mark.parametrize(
    "layout", [*LAYOUTS.values(), Layout("rows", 8, activation_bits=16), Layout("float", 32)], ids=str
)
@pytest.mark.parametrize("shape", [(5, 96), (3, 256)])
def test_the_bytes_of_a_layout_are_told_beforehand(layout: Layout, shape: tuple[int, int]):
    packed = pack(np.ones(shape, np.float32), layout)
    arrays = (packed.codes, packed.scales, packed.zero_points, packed.offsets)
    assert layout.tensor_bytes(*shape) == tuple(array.nbytes for array in arrays if array is not None)


def test_every_quantized_type_of_a_gguf_has_a_layout():
    assert {name for name, block in BLOCK_FORMATS.items() if block.split} == set(SOURCE_LAYOUTS)


@pytest.mark.parametrize("type_name", SOURCE_LAYOUTS)
def test_the_blocks_of_a_gguf_keep_their_weights(type_name: str):
    """To the last bits of float32; 512 columns, in two rows of random bytes with finite scales."""
    block, layout = BLOCK_FORMATS[type_name], SOURCE_LAYOUTS[type_name]
    rng = np.random.default_rng(3)
    data = rng.integers(0, 256, size=(2, 512 // block.num_elements, block.num_bytes), dtype=np.uint8)
    halves = {"Q8_0": [0], "Q4_0": [0], "Q5_0": [0], "Q4_1": [0, 2], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2],
              "Q2_K": [80, 82], "Q3_K": [108], "Q6_K": [208]}  # fmt: skip
    for start in halves[type_name]:
        scales = rng.uniform(0.5, 2, size=data.shape[:2]).astype(np.float16)
        data[:, :, start : start + 2] = scales[..., None].view(np.uint8)
    data = data.reshape(2, -1)
    expected = dequantize(data, type_name)
    found = restored(repack(data, type_name), layout).reshape(2, -1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@given(weights=arrays(np.float32, (4, 32), elements=VALUES))
def test_rows_are_off_by_at_most_half_a_step(weights: np.ndarray):
    codes, scales = quantize_rows(weights)
    assert codes.min() >= -127
    assert (np.abs(codes * scales[:, None] - weights) <= scales[:, None] * 0.501 + 1e-6).all()


def test_zeros_stay_zeros():
    for layout in LAYOUTS.values():
        for tiny in (0, 1e-45, -1e-38):
            assert np.abs(restored(pack(np.full((1, 32), tiny, np.float32), layout), layout)).max() < 1e-30
    codes, scales = quantize_rows(np.zeros((1, 32), np.float32))
    assert not codes.any()
    assert not scales.any()


def test_recipes_have_names():
    assert parse_recipe("int4-b128") == Recipe("int4", 4, 128)
    assert str(parse_recipe("int8")) == "int8-b32"
    assert str(parse_recipe("w8a8")) == "w8a8"
    assert str(parse_recipe("w8a16")) == "w8a16"
    assert parse_recipe("fp16").floats == parse_recipe("int4-b128-fp16").floats == "float16"
    for text in ("fp16", "bf16", "int4-b128-fp16", "source-bf16", "int4-mixed-b64-bf16"):
        assert str(parse_recipe(text)) == text
    assert str(parse_recipe("int4-mixed-b64")) == "int4-mixed-b64"


@pytest.mark.parametrize(
    "text",
    [
        "int5",
        "",
        "int4-b33",
        "int4-bx",
        "w8a8-b32",
        "w8a16-b32",
        "fp16-b32",
        "w8a8-fp16",
        "fp32-fp16",
        "fp16-fp16",
        "bf16-fp16",
        "int4-fp16-b32",
        "int4-b-fp16",
        "fp32-b32",
        "source-b32",
        "int4-b",
    ],
)
def test_other_names_are_refused(text: str):
    with pytest.raises(OptionError, match="recipe"):
        parse_recipe(text)
