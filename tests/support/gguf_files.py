"""GGUF bytes put together by hand, also the damaged ones that a proper writer refuses to write."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
F32 = 0


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """What the header says of a tensor: `dimensions` in GGUF order (columns first)."""

    name: str
    dimensions: tuple[int, ...]
    type_number: int
    offset: int = 0

    def encode(self) -> bytes:
        sizes = struct.pack(f"<I{len(self.dimensions)}Q", len(self.dimensions), *self.dimensions)
        return gguf_string(self.name) + sizes + struct.pack("<IQ", self.type_number, self.offset)


def gguf_string(text: str | bytes) -> bytes:
    encoded = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(encoded)) + encoded


def gguf_value(key: str, kind: int, encoded: bytes) -> bytes:
    """One metadata entry with the value already encoded."""
    return gguf_string(key) + struct.pack("<I", kind) + encoded


def gguf_array(key: str, kind: int, count: int, items: bytes) -> bytes:
    """One metadata entry that claims `count` items."""
    return gguf_value(key, ARRAY, struct.pack("<IQ", kind, count) + items)


def gguf_bytes(
    values: Sequence[bytes] = (),
    records: Sequence[TensorRecord] = (),
    data: bytes = b"",
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    """A whole file; nothing in it is made to agree with anything else."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(records), len(values))
    head += b"".join(values) + b"".join(record.encode() for record in records)
    return head + bytes(-len(head) % alignment) + data
