"""The keys and values of one model: device buffers of fixed capacity and one length."""

from __future__ import annotations

from typing import Any

import numpy as np

from pilotfish.runtime.bundle import ModelEntry
from pilotfish.runtime.session import import_onnxruntime


class KvCache:
    """One buffer of shape (1, H, capacity, D) for each layer's keys and for its values.

    The graph reads a buffer as past and writes it as present, in place. `length` tokens are valid; what lies behind
    them is left over from rejected tokens, is never read, and is overwritten by the next forward.
    """

    def __init__(self, model: ModelEntry, capacity: int, device: str) -> None:
        """Allocates all buffers on `device`, zeroed where it is the CPU."""
        self.capacity = capacity
        self.length = 0
        shape = (1, model.num_kv_heads, capacity, model.head_dim)
        names = model.tensors
        self.buffers: dict[tuple[str, str], Any] = {
            (past.format(layer=layer), present.format(layer=layer)): _allocate(shape, model.cache_dtype, device)
            for layer in range(model.num_layers)
            for past, present in (
                (names.past_key, names.present_key),
                (names.past_value, names.present_value),
            )
        }

    def rollback(self, length: int) -> None:
        """Makes the cache hold exactly its first `length` tokens. Copies nothing."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length}: the cache holds {self.length} tokens")
        self.length = length


def _allocate(shape: tuple[int, ...], dtype: str, device: str) -> Any:
    ort = import_onnxruntime()
    if device == "cpu":
        return ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype))
    return ort.OrtValue.ortvalue_from_shape_and_type(shape, np.dtype(dtype).type, "cuda", 0)
