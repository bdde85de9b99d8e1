from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from pilotfish.export.ggml_blocks import BLOCK_FORMATS, NUM_PIECE_ELEMENTS, BlockFormat, dequantize
from pilotfish.runtime.errors import CheckpointError

NUM_BLOCKS_PER_ROW = 3
FORMATS = list(BLOCK_FORMATS)
QUANTIZED = [name for name, block in BLOCK_FORMATS.items() if block.num_elements > 1]
# type → byte at which each float16 of a block starts
HALVES = {
    "F16": (0,),
    "Q8_0": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


def random_rows(type_name: str, num_rows: int, seed: int = 0) -> NDArray[np.uint8]:
    """Rows of random blocks: every quant and group scale occurs, and all floats are finite."""
    rng = np.random.default_rng(seed)
    block = BLOCK_FORMATS[type_name]
    blocks = rng.integers(0, 256, (num_rows * NUM_BLOCKS_PER_ROW, block.num_bytes), dtype=np.uint8)
    for start in HALVES.get(type_name, ()):
        halves = rng.normal(0, 0.1, len(blocks)).astype("<f2")
        blocks[:, start : start + 2] = halves[:, None].view(np.uint8)
    if type_name == "F32":
        blocks[:] = rng.normal(size=(len(blocks), 1)).astype("<f4").view(np.uint8)
    if type_name == "BF16":
        blocks[:] = rng.normal(size=(len(blocks), 1)).astype("<f4").view(np.uint8)[:, 2:]
    return blocks.reshape(num_rows, -1)


def reference(data: NDArray[np.uint8], type_name: str) -> NDArray[np.float32]:
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType[type_name])


@pytest.mark.parametrize("type_name", FORMATS)
def test_equals_the_gguf_package_bit_for_bit(type_name: str) -> None:
    data = random_rows(type_name, 64)
    expected = reference(data, type_name)
    assert np.isfinite(expected).all()
    weights = dequantize(data, type_name)
    assert weights.dtype == np.float32
    assert weights.shape == (64, NUM_BLOCKS_PER_ROW * BLOCK_FORMATS[type_name].num_elements)
    np.testing.assert_array_equal(weights, expected)


@pytest.mark.parametrize("type_name", FORMATS)
def test_block_sizes_are_those_of_the_gguf_package(type_name: str) -> None:
    block = BLOCK_FORMATS[type_name]
    expected = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_name]]
    assert (block.num_elements, block.num_bytes) == expected


@pytest.mark.parametrize("type_name", QUANTIZED)
def test_every_byte_of_a_block_counts(type_name: str) -> None:
    block = BLOCK_FORMATS[type_name]
    one = random_rows(type_name, 1)[:, : block.num_bytes]
    before = dequantize(one, type_name)
    for position in range(block.num_bytes):
        changed = one.copy()
        changed[0, position] ^= 0x11
        assert not np.array_equal(dequantize(changed, type_name), before), position


def test_a_block_worked_out_by_hand() -> None:
    packed = np.arange(16, dtype=np.uint8) | np.uint8(0xF0)
    block = np.concatenate([np.array([0.5], "<f2").view(np.uint8), packed])[None]
    expected = np.concatenate([(np.arange(16) - 8) * 0.5, np.full(16, 3.5)])
    np.testing.assert_array_equal(dequantize(block, "Q4_0")[0], expected.astype(np.float32))


@pytest.mark.parametrize("type_name", FORMATS)
def test_pieces_join_without_a_seam(type_name: str) -> None:
    columns = NUM_BLOCKS_PER_ROW * BLOCK_FORMATS[type_name].num_elements
    data = random_rows(type_name, 2 * NUM_PIECE_ELEMENTS // columns + 5)
    weights = dequantize(data, type_name)
    assert weights.size > 2 * NUM_PIECE_ELEMENTS
    np.testing.assert_array_equal(weights, reference(data, type_name))


@pytest.mark.parametrize("type_name", FORMATS)
def test_fills_the_given_array_and_leaves_the_data(type_name: str) -> None:
    data = random_rows(type_name, 4)
    data.flags.writeable = False
    out = np.full(reference(data, type_name).shape, np.nan, np.float32)
    assert dequantize(data, type_name, out) is out
    np.testing.assert_array_equal(out, reference(data, type_name))


@pytest.mark.parametrize("type_name", FORMATS)
def test_reads_rows_at_odd_addresses_and_with_gaps(type_name: str) -> None:
    data = random_rows(type_name, 6)
    wide = np.zeros((6, data.shape[1] + 3), np.uint8)
    wide[:, 1:-2] = data
    np.testing.assert_array_equal(dequantize(wide[:, 1:-2], type_name), reference(data, type_name))


@pytest.mark.parametrize("type_name", FORMATS)
def test_no_rows_give_no_rows(type_name: str) -> None:
    block = BLOCK_FORMATS[type_name]
    assert dequantize(np.empty((0, block.num_bytes), np.uint8), type_name).shape == (0, block.num_elements)


@pytest.mark.parametrize("type_name", FORMATS)
def test_random_bits_give_the_same_values_and_no_warning(type_name: str) -> None:
    block = BLOCK_FORMATS[type_name]
    data = np.random.default_rng(1).integers(0, 256, (4096, block.num_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = reference(data, type_name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = dequantize(data, type_name)
    np.testing.assert_array_equal(weights, expected)


def test_threads_do_not_disturb_each_other() -> None:
    jobs = [(random_rows(name, 200, seed), name) for seed in range(3) for name in FORMATS]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda job: dequantize(*job), jobs))
    for (data, name), weights in zip(jobs, results, strict=True):
        np.testing.assert_array_equal(weights, reference(data, name))


def test_an_unknown_type_is_named_with_the_supported_ones() -> None:
    with pytest.raises(CheckpointError, match=r"IQ4_XS.*Q4_K, Q5_K, Q6_K"):
        dequantize(np.zeros((1, 136), np.uint8), "IQ4_XS")


@pytest.mark.parametrize("data", [np.zeros((1, 145), np.uint8), np.zeros(144, np.uint8), np.zeros((1, 144), np.int8)])
def test_data_of_another_shape_or_dtype_is_refused(data: NDArray[np.uint8]) -> None:
    with pytest.raises(ValueError, match="144-byte blocks"):
        dequantize(data, "Q4_K")


@pytest.mark.parametrize(
    "out",
    [np.zeros((1, 255), np.float32), np.zeros((1, 256), np.float64), np.zeros((1, 512), np.float32)[:, ::2]],
)
def test_an_unfit_output_is_refused(out: NDArray[np.float32]) -> None:
    with pytest.raises(ValueError, match=r"out must be C-contiguous float32 \(1, 256\)"):
        dequantize(np.zeros((1, 144), np.uint8), "Q4_K", out)


def test_an_empty_block_is_refused() -> None:
    with pytest.raises(ValueError, match="elements and bytes"):
        BlockFormat(0, 2, lambda blocks, out: None)
