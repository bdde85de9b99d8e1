"""Lets a device prepare for the shapes of a plan: TensorRT builds its engines, CUDA records its graphs."""

from __future__ import annotations

import numpy as np

from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.errors import Cancelled, DeviceError

TOLERANCE = 0.05  # of the largest logit: kernels may round differently; a wrong position changes more


def warm_up(decoder: Decoder) -> None:
    """Runs a pass of each shape that rounds mostly have, over places behind the tokens in the cache, which stay.

    The widest and the narrowest come first: TensorRT's engine is built for the widths between those that it has met.
    `DeviceError` if a pass cannot be recorded. A plan of free widths needs nothing.
    """
    before, room = decoder.length, decoder.context_length - decoder.length
    widths = [width for width in decoder.plan.widths if width <= room]
    try:
        for width in (*widths[:-2:-1], *widths[:-1]):
            for num_rows in sorted({1, width}):
                decoder.forward([0] * width, num_rows, num_largest=1)
                decoder.rollback(before)
        if decoder.plan.records:
            _require_true_lengths(decoder)
    except (Cancelled, DeviceError):
        raise
    except Exception as error:  # ONNX Runtime raises a different class for each status code
        if not decoder.plan.records:
            raise
        raise DeviceError(
            f"a pass of this model cannot be recorded as a CUDA graph: {error}; load it without CUDA graphs"
        ) from error
    finally:
        decoder.rollback(before)


def _require_true_lengths(decoder: Decoder) -> None:
    """`DeviceError` if the graph takes a length or position from the total that the host tells.

    That is constant in recorded passes. Passes wider than all that are recorded have the true one, and are compared.
    """
    before, widest = decoder.length, decoder.plan.widths[-1]
    num_tokens = widest + 1
    if decoder.context_length - before < 2 * num_tokens:
        return
    ids = np.random.default_rng(0).integers(0, decoder.vocab_size, 2 * num_tokens).tolist()
    decoder.forward(ids[:num_tokens], 0)
    expected = decoder.forward(ids[num_tokens:], num_tokens)[:widest].copy()
    decoder.rollback(before + num_tokens)
    found = decoder.forward(ids[num_tokens:-1], widest)
    if np.abs(found - expected).max() > TOLERANCE * np.abs(expected).max():
        raise DeviceError(
            "a pass of this model cannot be recorded as a CUDA graph: its graph computes with "
            "total_sequence_length, which must not change in one; load it without CUDA graphs"
        )
