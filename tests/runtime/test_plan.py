"""A decoder of few shapes gives the same rows as one of any, and what is bound stays within bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pilotfish.runtime.binding import MOST_KEPT
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.decoder import MAX_WIDTH, Decoder
from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.plan import MOST_PADDING, ROUND_WIDTHS, Plan, plan_for
from support.tiny_models import tiny_bundle

IDS = np.random.default_rng(7).integers(0, 300, 60).tolist()
FEW = Plan((2, 4, 8, 40))


@pytest.fixture(scope="module", params=["fp32", "w8a8", "int8-fp16"])
def bundle_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("tiny"), request.param, draft_noise=None)


def decoder(bundle_path: Path, plan: Plan | None = None, context_length: int = 300, **options) -> Decoder:
    model = load_bundle(bundle_path).manifest.target
    where = bundle_path / model.graph
    return Decoder(model, where, device="cpu", context_length=context_length, plan=plan, **options)


def rows_of(decoder: Decoder, block: int) -> np.ndarray:
    decoder.rollback(0)
    blocks = [IDS[start : start + block] for start in range(0, len(IDS), block)]
    return np.concatenate([decoder.forward(part, len(part)).copy() for part in blocks])


def test_a_width_is_the_next_and_beyond_them_the_number_itself():
    assert [FEW.padded(number) for number in (0, 1, 2, 3, 5, 8, 9, 40, 41)] == [2, 2, 2, 4, 8, 8, 40, 40, 41]
    assert [Plan().padded(number) for number in (0, 1, 2, 7)] == [0, 1, 2, 7]


@pytest.mark.parametrize("widths", [(0,), (2, 2), (3, 2), (1, MOST_PADDING + 2), (-1, 1)])
def test_widths_ascend_by_no_more_than_a_graph_has_positions_for(widths: tuple[int, ...]):
    with pytest.raises(OptionError, match="must ascend"):
        Plan(widths)


def test_a_device_has_the_plan_that_suits_it():
    assert plan_for("cpu") == plan_for("cuda") == Plan()
    widths = plan_for("tensorrt").widths
    assert widths[: len(ROUND_WIDTHS)] == ROUND_WIDTHS
    assert widths[-1] == MAX_WIDTH  # no pass is wider, so TensorRT meets no other shape
    assert plan_for("cuda", cuda_graphs=True) == Plan(ROUND_WIDTHS, records=True)


@pytest.mark.parametrize("block", [2, 3, 7, 8, 30])
def test_padded_passes_give_the_rows_of_free_ones(bundle_path: Path, block: int):
    with decoder(bundle_path) as free, decoder(bundle_path, FEW) as few:
        expected = rows_of(free, block)
        np.testing.assert_array_equal(rows_of(few, block), expected)
        few.rollback(20)
        few.forward([5, 6, 7], 1)
        few.rollback(20)
        np.testing.assert_array_equal(few.forward(IDS[20:26], 3), rows_of(free, 20)[23:26])


def test_few_shapes_are_bound_of_few_widths(bundle_path: Path):
    with decoder(bundle_path, FEW) as few:
        for number in range(1, 41):
            for num_logits in {0, 1, number // 2, number}:
                few.rollback(0)
                assert len(few.forward(IDS[:number], num_logits)) == num_logits
                assert few.length == number
        kept = set(few._bindings._kept)
        assert {width for width, _ in kept} == set(FEW.widths)
        assert {rows for _, rows in kept} <= {2, 4, 8}


def test_free_widths_keep_no_more_than_a_few_shapes_and_no_megabytes(bundle_path: Path):
    with decoder(bundle_path) as free:
        for number in range(1, 61):
            free.rollback(0)
            free.forward(IDS[:number], number)
            free.rollback(0)
            free.forward(IDS[:number], 0)
        assert free._bindings.num_kept == MOST_KEPT
        kept = free._bindings.of(60, 1)
        assert free._bindings.of(60, 1) is kept


def test_at_the_end_of_the_longest_context_there_is_room_to_pad(bundle_path: Path):
    most = load_bundle(bundle_path).manifest.target.max_positions
    ids = np.random.default_rng(0).integers(0, 300, most).tolist()
    with decoder(bundle_path, context_length=most) as free, decoder(bundle_path, plan_for("tensorrt"), most) as few:
        for each in (free, few):
            each.forward(ids[: most - 66], 0)
        np.testing.assert_array_equal(few.forward(ids[most - 66 :], 2), free.forward(ids[most - 66 :], 2))
        assert few.length == most
        few.rollback(most - 2)
        free.rollback(most - 2)
        np.testing.assert_array_equal(few.forward(ids[most - 2 :], 2), free.forward(ids[most - 2 :], 2))
