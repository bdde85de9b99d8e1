"""The way between host and device: arrays that cross it do so here, and are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.session import import_onnxruntime

ELEMENT_TYPES = {"float32": 1, "int32": 6, "int64": 7, "float16": 10, "bfloat16": 16}  # by their numbers in ONNX


class Bus:
    """The device of one model, and how many bytes went there and came from there.

    On the CPU, where nothing has to cross, bytes count as if it had to.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.num_to_device = 0
        self.num_to_host = 0

    def allocate(self, shape: tuple[int, ...], dtype: str) -> Any:
        """An `OrtValue` on the device, zeroed where it is the CPU."""
        ort = import_onnxruntime()
        if self.device == "cpu":
            return ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype))
        return ort.OrtValue.ortvalue_from_shape_and_type(shape, ELEMENT_TYPES[dtype], "cuda", 0)

    def over(self, array: NDArray[Any]) -> Any:
        """An `OrtValue` on the device of the shape and type of `array`; on the CPU it is the array itself."""
        if self.device == "cpu":
            return import_onnxruntime().OrtValue.ortvalue_from_numpy(array)
        return self.allocate(array.shape, array.dtype.name)

    def write(self, value: Any, array: NDArray[Any]) -> None:
        """Replaces what `value` holds, in place."""
        value.update_inplace(array)
        self.num_to_device += array.nbytes

    def read(self, value: Any) -> NDArray[Any]:
        """What `value` holds: a copy, or on the CPU its memory itself, which lives as long as `value`."""
        array: NDArray[Any] = value.numpy()
        self.num_to_host += array.nbytes
        return array

    def read_into(self, array: NDArray[Any], value: Any) -> NDArray[Any]:
        """Makes `array` hold what `value` holds, unless that is `over` it, and returns it."""
        found = self.read(value)
        if found.ctypes.data != array.ctypes.data:
            np.copyto(array, found)
        return array
