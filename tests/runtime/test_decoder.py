"""A decoder gives the same logits however its tokens arrive, and moves nothing when it rolls back."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.decoder import MAX_WIDTH, Decoder
from pilotfish.runtime.exactness import exact_widths
from support.tiny_models import tiny_bundle

IDS = np.random.default_rng(7).integers(0, 300, 40).tolist()
TOLERANCE = 2e-4  # float32 rounding between kernels of different width, on logits of about ±50
# Quantized products round activations. A kernel of one row can move a value that lies between two codes by the last bit
# of float32, on some processors, and so to the other code: rarely one of 8 bits, often but by little one of 15.
ROUNDING, OFTEN = 0.2, 5e-3
RECIPES = ("fp32", "int8", "int4", "int4-b16", "w8a8", "w8a16")


@pytest.fixture(scope="module", params=RECIPES)
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    bundle = load_bundle(tiny_bundle(tmp_path_factory.mktemp("tiny"), request.param, draft_noise=None))
    model = bundle.manifest.target
    with Decoder(model, bundle.path / model.graph, device="cpu", context_length=500) as opened:
        yield opened


def all_logits(decoder: Decoder, ids: list[int], block: int) -> np.ndarray:
    decoder.rollback(0)
    blocks = [ids[start : start + block] for start in range(0, len(ids), block)]
    return np.concatenate([decoder.forward(part, len(part)).copy() for part in blocks])


@pytest.mark.parametrize("block", [1, 2, 3, 7, 16])
def test_blocks_equal_one_pass(decoder: Decoder, block: int):
    differences = np.abs(all_logits(decoder, IDS, block) - all_logits(decoder, IDS, 40)).max(axis=1)
    assert differences.max() < (TOLERANCE if block > 1 else ROUNDING)
    assert np.median(differences) < (TOLERANCE if block > 1 else OFTEN)


def test_a_rollback_leaves_no_trace(decoder: Decoder):
    expected = all_logits(decoder, IDS, 8)
    decoder.rollback(16)
    decoder.forward([5, 6, 7, 8, 9, 10, 11], 7)
    decoder.rollback(16)
    rest = np.concatenate([decoder.forward(IDS[start : start + 8], 8).copy() for start in range(16, 40, 8)])
    np.testing.assert_array_equal(rest, expected[16:])


def test_only_the_asked_for_rows_come_back(decoder: Decoder):
    expected = all_logits(decoder, IDS, 40)
    decoder.rollback(0)
    assert decoder.forward(IDS[:20], 0).shape == (0, decoder.vocab_size)
    np.testing.assert_allclose(decoder.forward(IDS[20:], 3), expected[-3:], atol=TOLERANCE)


def test_padding_changes_neither_length_nor_shape(decoder: Decoder):
    expected = all_logits(decoder, IDS, 40)
    decoder.rollback(0)
    decoder.exact_widths = (4,)
    try:
        rows = np.concatenate([decoder.forward([token_id], 1).copy() for token_id in IDS])
    finally:
        decoder.exact_widths = ()
    assert decoder.length == 40
    np.testing.assert_allclose(rows, expected, atol=TOLERANCE)


def test_more_tokens_than_one_pass_takes(decoder: Decoder):
    ids = (IDS * 12)[: MAX_WIDTH + 150]
    expected = all_logits(decoder, ids, 100)[-5:]
    decoder.rollback(0)
    np.testing.assert_allclose(decoder.forward(ids, 5), expected, atol=TOLERANCE)
    assert decoder.length == len(ids)


def test_in_the_exact_widths_rows_are_bit_identical(decoder: Decoder):
    decoder.rollback(0)
    decoder.exact_widths = exact_widths(decoder)
    try:
        reference = all_logits(decoder, IDS, 16)
        for block in (1, 2, 3, 5, decoder.exact_widths[-1]):
            np.testing.assert_array_equal(all_logits(decoder, IDS, block), reference)
    finally:
        decoder.exact_widths = ()


def kernel(*tiles: int) -> Callable[[int], list[int]]:
    """Which tile computes each row of a forward of so many: the largest tiles first, then smaller ones for the rest."""

    def rows(width: int) -> list[int]:
        found: list[int] = []
        for tile in tiles:
            found += [tile] * ((width - len(found)) // tile * tile)
        return found

    return rows


def one_below(least: int) -> Callable[[int], list[int]]:
    """A kernel for narrow forwards, and another for all from `least` on."""
    return lambda width: [int(width < least)] * width


KERNELS = {
    "one row apart": (one_below(2), (*range(2, 19),)),
    "narrow ones apart": (one_below(5), (*range(5, 19),)),
    "up to the only one": (one_below(9), (*range(9, 19),)),
    "too wide ones": (one_below(10), (9,)),
    "tiles of two": (kernel(2, 1), (*range(2, 19, 2),)),
    "tiles of three": (kernel(3, 1), (*range(3, 19, 3),)),
    "tiles of four": (kernel(4, 1), (4, 8, 12, 16)),
    "tiles of four and two": (kernel(4, 2, 1), (4, 8, 12, 16)),
    "each width apart": (lambda width: [width] * width, (9,)),
    "each place apart": (lambda width: [*range(width)], (9,)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_widths_in_which_a_row_depends_on_the_others_are_left_out(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch, name: str
):
    rows, widths = KERNELS[name]
    forward = decoder.forward

    def disturbed(ids: list[int], num_logits: int) -> np.ndarray:
        return forward(ids, num_logits) + np.array(rows(len(ids))[len(ids) - num_logits :])[:, None]

    decoder.rollback(0)
    decoder.exact_widths = (7,)
    monkeypatch.setattr(decoder, "forward", disturbed)
    try:
        assert exact_widths(decoder) == widths
        assert decoder.exact_widths == (7,)
    finally:
        decoder.exact_widths = ()
    assert decoder.length == 0


def test_a_forward_is_padded_to_the_next_exact_width(decoder: Decoder):
    decoder.exact_widths = (2, 4, 8)
    try:
        assert [decoder.padded(number) for number in (0, 1, 2, 3, 4, 5, 8, 9)] == [2, 2, 2, 4, 4, 8, 8, 9]
    finally:
        decoder.exact_widths = ()


def test_a_round_moves_and_allocates_no_cache(decoder: Decoder):
    decoder.rollback(0)
    decoder.forward(IDS, 5)
    addresses = [buffer.data_ptr() for buffer in decoder.cache.buffers.values()]
    cache_bytes = decoder.cache.capacity * 2 * 16 * 4
    tracemalloc.start()
    for _ in range(5):
        decoder.rollback(30)
        decoder.forward(IDS[30:35], 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [buffer.data_ptr() for buffer in decoder.cache.buffers.values()] == addresses
    assert peak < cache_bytes / 2


def test_misuse_is_refused(decoder: Decoder):
    decoder.rollback(0)
    with pytest.raises(ValueError, match="cannot roll back to 3"):
        decoder.rollback(3)
    with pytest.raises(ValueError, match="exceed the context of 500"):
        decoder.forward([1] * 501, 0)
    with pytest.raises(ValueError, match="2 rows of logits of 1 tokens"):
        decoder.forward([1], 2)


def test_a_tensor_name_comes_from_the_manifest(tmp_path: Path):
    path = tiny_bundle(tmp_path, draft_noise=None)
    manifest = path / "pilotfish.json"
    manifest.write_text(manifest.read_text().replace('"logits": "logits"', '"logits": "scores"'))
    bundle = load_bundle(path)
    model = bundle.manifest.target
    with pytest.raises(Exception, match="scores"):
        Decoder(model, bundle.path / model.graph, device="cpu", context_length=64).forward([1], 1)
