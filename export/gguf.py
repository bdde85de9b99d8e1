"""Reads GGUF files: the metadata at once, tensors by rows from the mapped file.

Layout: magic, version, counts; key-value metadata; a record per tensor; padding to `general.alignment`; tensor data.
Versions 2 and 3, little endian. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilotfish.export.ggml_blocks import BLOCK_FORMATS, Bytes, Floats, dequantize
from pilotfish.runtime.errors import CheckpointError

MAGIC = b"GGUF"
MAX_DIMENSIONS = 4
MAX_LENGTH = 1 << 24  # of a string or an array; no vocabulary or chat template comes near

_BOOL, _STRING, _ARRAY = 7, 8, 9
_LENGTH = struct.Struct("<Q")
# fmt: off
_NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
}
_TENSOR_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
}
# fmt: on


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor in a mapped file. The shape is in NumPy order, (rows, columns) or (columns,).

    A row runs along the last axis. A tensor of one dimension is one row; more than two dimensions count as
    their product of rows. `rows` and `read` may be called from several threads; after the file is closed they
    raise ValueError.
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    _data: mmap.mmap = field(repr=False)

    @property
    def num_rows(self) -> int:
        """The product of all dimensions but the last."""
        return math.prod(self.shape[:-1])

    @property
    def bytes_per_row(self) -> int:
        """Size of a row in the file."""
        block = BLOCK_FORMATS[self.type_name]
        return self.shape[-1] // block.num_elements * block.num_bytes

    @property
    def stop(self) -> int:
        """The byte in the file after the tensor's last."""
        return self.offset + self.num_rows * self.bytes_per_row

    def rows(self, start: int, stop: int) -> Floats:
        """Dequantize rows `start` to `stop`: float32 (stop - start, columns). No other row is read."""
        return dequantize(self.stored_rows(start, stop), self.type_name)

    def stored_rows(self, start: int, stop: int) -> Bytes:
        """Rows `start` to `stop` as the file has them: uint8 (stop - start, bytes_per_row), a view of the file."""
        if not 0 <= start <= stop <= self.num_rows:
            raise ValueError(f"tensor {self.name} has rows 0 to {self.num_rows}, asked for {start} to {stop}")
        width = self.bytes_per_row
        data = np.frombuffer(self._data, np.uint8, (stop - start) * width, self.offset + start * width)
        return data.reshape(stop - start, width)

    def read(self) -> Floats:
        """Dequantize the whole tensor: float32 in its shape."""
        return self.rows(0, self.num_rows).reshape(self.shape)


class GgufFile:
    """An open GGUF file, mapped into memory; `close` it after the last read.

    Metadata values are int, float, bool, str, `list[str]` or a NumPy array. Bytes that are no UTF-8 become lone
    surrogates in a str, and `text.encode("utf-8", "surrogateescape")` gives back exactly what the file holds.
    Raises CheckpointError for a file that is damaged, incomplete or of a kind that is not supported.
    """

    def __init__(self, path: Path | str) -> None:
        """Map the file, read the metadata and the tensor records, and see that all tensor data is there."""
        self.path = Path(path)
        self._data = _map(self.path)
        try:
            reader = _HeaderReader(self.path, self._data)
            num_tensors, num_values = reader.counts()
            self.metadata: dict[str, object] = reader.metadata(num_values)
            _refuse_split(self.path, self.metadata)
            alignment = _alignment(self.path, self.metadata)
            self.tensors: dict[str, GgufTensor] = reader.tensors(num_tensors, alignment)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unmap the file. Idempotent; raises BufferError while another thread is reading a tensor."""
        self._data.close()

    def __enter__(self) -> GgufFile:
        """Return the open file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


class _HeaderReader:
    """Reads the values before the tensor data one after the other; never past the end of the file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path, self._data, self._position, self._size = path, data, 0, len(data)

    def counts(self) -> tuple[int, int]:
        """Number of tensors and of metadata values, after magic and version proved right."""
        found = self._data[: len(MAGIC)]
        if found != MAGIC[: len(found)]:
            raise CheckpointError(
                f"{self._path} is no GGUF file: it starts with {found!r}; give a .gguf file or a Hugging Face folder"
            )
        self._take(len(MAGIC))
        version = self._integer("<I")
        if version and version & 0xFFFF == 0:
            raise CheckpointError(f"{self._path} is a big-endian GGUF file; give the little-endian one")
        if version not in (2, 3):
            raise CheckpointError(
                f"{self._path} has GGUF version {version}, versions 2 and 3 are supported; convert the model again"
            )
        return self._integer("<Q"), self._integer("<Q")

    def metadata(self, count: int) -> dict[str, object]:
        """The next `count` keys and values."""
        values: dict[str, object] = {}
        for _ in range(count):
            key = self._string()
            if key in values:
                raise self._damaged(f"metadata key {key!r} occurs twice")
            values[key] = self._value(key)
        return values

    def tensors(self, count: int, alignment: int) -> dict[str, GgufTensor]:
        """The next `count` tensors; the data begins at the first multiple of `alignment` after their records."""
        records: dict[str, tuple[tuple[int, ...], str, int]] = {}
        for _ in range(count):
            name = self._string()
            if name in records:
                raise self._damaged(f"tensor {name!r} occurs twice")
            shape = self._shape(name)
            records[name] = (shape, self._type_name(name, shape[-1]), self._offset(name, alignment))
        start = -(-self._position // alignment) * alignment
        tensors = {
            name: GgufTensor(name, shape, type_name, start + offset, self._data)
            for name, (shape, type_name, offset) in records.items()
        }
        stop = max((tensor.stop for tensor in tensors.values()), default=0)
        if stop > self._size:
            raise self._truncated(stop)
        return tensors

    def _shape(self, name: str) -> tuple[int, ...]:
        num_dimensions = self._integer("<I")
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            raise self._damaged(f"tensor {name!r} has {num_dimensions} dimensions")
        shape = tuple(self._integer("<Q") for _ in range(num_dimensions))[::-1]
        if 0 in shape:
            raise self._damaged(f"tensor {name!r} has the empty shape {shape}")
        return shape

    def _type_name(self, name: str, num_columns: int) -> str:
        number = self._integer("<I")
        type_name = _TENSOR_TYPES.get(number, f"number {number}")
        if type_name not in BLOCK_FORMATS:
            raise CheckpointError(
                f"{self._path}: tensor {name!r} is of type {type_name}, which is not supported; "
                f"get the model in one of {', '.join(BLOCK_FORMATS)}"
            )
        block_size = BLOCK_FORMATS[type_name].num_elements
        if num_columns % block_size:
            raise self._damaged(f"tensor {name!r} has {num_columns} columns, {type_name} packs {block_size} at once")
        return type_name

    def _offset(self, name: str, alignment: int) -> int:
        offset = self._integer("<Q")
        if offset % alignment:
            raise self._damaged(f"the data of tensor {name!r} starts at {offset}, no multiple of {alignment}")
        return offset

    def _value(self, key: str) -> object:
        kind = self._integer("<I")
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._numbers(key, kind, 1)[0].item()
        kind, count = self._integer("<I"), self._integer("<Q")
        return self._strings(count) if kind == _STRING else self._numbers(key, kind, count)

    def _numbers(self, key: str, kind: int, count: int) -> NDArray[Any]:
        if kind not in _NUMBERS:
            raise self._damaged(f"metadata {key!r} holds values of the unknown type {kind}")
        dtype = np.dtype(_NUMBERS[kind])
        numbers = np.frombuffer(self._data, dtype, count, self._take(count, dtype.itemsize))
        return numbers.astype(np.bool_ if kind == _BOOL else dtype.newbyteorder("="))

    def _strings(self, count: int) -> list[str]:
        self._position = self._take(count, _LENGTH.size)  # no string takes less, so a damaged count ends here
        return [self._string() for _ in range(count)]

    def _string(self) -> str:
        (length,) = _LENGTH.unpack_from(self._data, self._take(_LENGTH.size))
        start = self._take(length)
        return self._data[start : start + length].decode("utf-8", "surrogateescape")

    def _integer(self, layout: str) -> int:
        value: int = struct.unpack_from(layout, self._data, self._take(struct.calcsize(layout)))[0]
        return value

    def _take(self, count: int, item_size: int = 1) -> int:
        """Step over `count` items; returns where they start. Raises before anything of their size is made."""
        start, stop = self._position, self._position + count * item_size
        if stop > self._size:
            raise self._truncated(stop)
        if count > MAX_LENGTH:
            raise self._damaged(f"a string or an array at byte {start} has the length {count}")
        self._position = stop
        return start

    def _truncated(self, stop: int) -> CheckpointError:
        return CheckpointError(
            f"{self._path} is truncated: {stop} bytes are needed, the file has {self._size}; download it again"
        )

    def _damaged(self, reason: str) -> CheckpointError:
        return CheckpointError(f"{self._path} is damaged: {reason}; download it again")


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise CheckpointError(f"{path} is empty (0 bytes); download it again") from None
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror}); give a .gguf file or a Hugging Face folder"
        ) from error


def _refuse_split(path: Path, metadata: dict[str, object]) -> None:
    count = metadata.get("split.count", 1)
    if isinstance(count, int) and count > 1:
        raise CheckpointError(
            f"{path} is one of {count} parts of a split GGUF; merge them with "
            "`llama-gguf-split --merge FIRST_PART MERGED.gguf` and give the merged file"
        )


def _alignment(path: Path, metadata: dict[str, object]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if isinstance(alignment, int) and alignment > 0 and alignment & (alignment - 1) == 0:
        return alignment
    raise CheckpointError(
        f"{path} is damaged: general.alignment is {alignment!r}, not a power of two; download it again"
    )
