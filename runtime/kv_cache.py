"""The keys and values of one model: device buffers of fixed capacity and one length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.bundle import ModelEntry
from pilotfish.runtime.bus import Bus
from pilotfish.runtime.errors import CacheFileError


class KvCache:
    """One buffer of shape (1, H, capacity, D) for each layer's keys and for its values.

    The graph reads a buffer as past and writes it as present, in place. `length` tokens are valid; what lies behind
    them is left over from rejected tokens, is never read, and is overwritten by the next forward.
    """

    def __init__(self, model: ModelEntry, capacity: int, bus: Bus) -> None:
        """Allocates all buffers on the device of `bus`, zeroed where it is the CPU."""
        self._bus = bus
        self.capacity = capacity
        self.length = 0
        self._dtype = model.cache_dtype
        self._num_kv_heads, self._head_dim = model.num_kv_heads, model.head_dim
        shape = self.tokens_shape(capacity)
        names = model.tensors
        self.buffers: dict[tuple[str, str], Any] = {
            (past.format(layer=layer), present.format(layer=layer)): bus.allocate(shape, model.cache_dtype)
            for layer in range(model.num_layers)
            for past, present in (
                (names.past_key, names.present_key),
                (names.past_value, names.present_value),
            )
        }

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers on the host; `CacheFileError` for bfloat16, which NumPy has not."""
        if self._dtype == "bfloat16":
            raise CacheFileError(
                "caches in bfloat16 can be neither saved nor restored; export with fp16 instead of bf16"
            )
        return np.dtype(self._dtype)

    def rollback(self, length: int) -> None:
        """Makes the cache hold exactly its first `length` tokens. Copies nothing."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length}: the cache holds {self.length} tokens")
        self.length = length

    def tokens_shape(self, length: int) -> tuple[int, int, int, int]:
        """The shape of one layer's keys, or of its values, of `length` tokens: (1, H, length, D)."""
        return (1, self._num_kv_heads, length, self._head_dim)

    def read_tokens(self) -> Iterator[NDArray[Any]]:
        """Copies what the cache holds to the host, in the order of `buffers`: arrays of (1, H, length, D)."""
        _ = self.dtype  # says what is wrong where NumPy cannot have it
        for buffer in self.buffers.values():
            yield self._bus.read(buffer)[:, :, : self.length].copy()

    def write_tokens(self, length: int, arrays: Iterable[NDArray[Any]]) -> None:
        """Makes the cache hold exactly the `length` tokens that `read_tokens` gave, in place.

        Takes one array at a time. The cache is empty meanwhile, and stays so if `arrays` raises, or if an array has
        another shape or dtype or exceeds the capacity, which is a `ValueError`.
        """
        self.length = 0
        shape = self.tokens_shape(length)
        for buffer, array in zip(self.buffers.values(), arrays, strict=True):
            if array.shape != shape or array.dtype != self.dtype:
                raise ValueError(f"cannot write {array.dtype} {array.shape}: {self.dtype} {shape} is needed")
            host = self._bus.read(buffer)
            host[:, :, :length] = array
            if host.ctypes.data != buffer.data_ptr():  # only on the CPU is `host` the buffer itself
                self._bus.write(buffer, host)
        self.length = length
