"""The external data file of one graph: tensors appended in turn, aligned so that they can be mapped into memory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from pilotfish.runtime.bus import ELEMENT_TYPES

ALIGNMENT = 65_536  # the coarsest mapping granularity of the platforms ONNX Runtime maps files on
INLINE_BYTES = 1024  # smaller tensors stay inside the graph


def numpy_dtype(floats: str) -> np.dtype[Any]:
    """The NumPy type of a recipe's `floats`; bfloat16 is one of the package ml_dtypes."""
    dtype: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(ELEMENT_TYPES[floats]))
    return dtype


def stored_bytes(graph_path: Path) -> int:
    """Bytes of the weights that a graph reads from data files, alignment included; other graphs may read them too."""
    places = (
        {entry.key: entry.value for entry in tensor.external_data}
        for tensor in onnx.load(graph_path, load_external_data=False).graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    )
    sections = {(at["location"], at["offset"], int(at["length"])) for at in places}  # one may have several shapes
    return sum(num_bytes + -num_bytes % ALIGNMENT for _, _, num_bytes in sections)


class WeightFile:
    """Writes `path` from front to back and describes each tensor as an ONNX initializer that points into it."""

    def __init__(self, path: Path) -> None:
        """Creates `path`; one that exists is an error, since appending to it would corrupt it."""
        self.path = path
        self.initializers: list[onnx.TensorProto] = []
        self._file = path.open("xb")
        self._digest = hashlib.sha256()
        self._position = 0

    def add(self, name: str, array: NDArray[Any]) -> str:
        """Stores a whole array and returns its name."""
        if array.nbytes < INLINE_BYTES:
            self.initializers.append(onnx.numpy_helper.from_array(array, name))
            return name
        offset = self.begin()
        self.append(array)
        return self.describe(name, array.dtype, array.shape, offset)

    def begin(self) -> int:
        """Moves to the next aligned position, where a tensor may start, and returns it."""
        self._write(bytes(-self._position % ALIGNMENT))
        return self._position

    def append(self, array: NDArray[Any]) -> None:
        """Writes the next rows of the tensor begun last."""
        self._write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b"")

    def describe(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int) -> str:
        """Declares the bytes at `offset` to be a tensor; the same bytes may be declared under several shapes."""
        tensor = onnx.TensorProto(name=name, dims=shape, data_type=onnx.helper.np_dtype_to_tensor_dtype(dtype))
        tensor.data_location = onnx.TensorProto.EXTERNAL
        num_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        for key, value in (("location", self.path.name), ("offset", offset), ("length", num_bytes)):
            tensor.external_data.add(key=key, value=str(value))
        self.initializers.append(tensor)
        return name

    def close(self) -> None:
        """Closes the file; idempotent."""
        self._file.close()

    @property
    def sha256(self) -> str:
        """Checksum of all that was written."""
        return self._digest.hexdigest()

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._digest.update(data)
        self._position += len(data)

    def __enter__(self) -> WeightFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
