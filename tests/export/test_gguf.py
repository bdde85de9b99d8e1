from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from pilotfish.export import gguf as own
from pilotfish.export.gguf import GgufFile
from pilotfish.runtime.errors import CheckpointError
from support.gguf_files import (
    ARRAY,
    BOOL,
    F32,
    FLOAT32,
    STRING,
    UINT32,
    TensorRecord,
    gguf_array,
    gguf_bytes,
    gguf_string,
    gguf_value,
)

TOKENS = ["<s>", "Ġthe", "é", "日本", "", "a\nb", "\x00", "😀"]
Q8_0, IQ4_XS = 8, 23


@pytest.fixture
def weights() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    return {
        "token_embd.weight": rng.normal(size=(40, 256)).astype(np.float32),
        "norm.weight": rng.normal(size=64).astype(np.float32),
        "experts.weight": rng.normal(size=(2, 3, 32)).astype(np.float32),
    }


@pytest.fixture
def model(tmp_path: Path, weights: dict[str, NDArray[np.float32]]) -> Path:
    """A file of the gguf package's own writer."""
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -100)
    writer.add_uint16("u16", 60_000)
    writer.add_int16("i16", -30_000)
    writer.add_uint32("u32", 4_000_000_000)
    writer.add_int32("i32", -2_000_000_000)
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_bool("no", False)
    writer.add_string("text", "日本 text")
    writer.add_array("tokens", TOKENS)
    writer.add_array("kinds", [1, 3, -6])
    writer.add_array("scores", [0.5, -1.25])
    writer.add_array("flags", [True, False, True])
    kind = gguf.GGMLQuantizationType.Q8_0
    embedding = gguf.quants.quantize(weights["token_embd.weight"], kind)
    writer.add_tensor("token_embd.weight", embedding, raw_dtype=kind)
    writer.add_tensor("norm.weight", weights["norm.weight"])
    writer.add_tensor("experts.weight", weights["experts.weight"].astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    return path


def tiny(num_columns: int = 8, **changes: Any) -> bytes:
    """A file with one value of each kind and one F32 vector that ends with the file."""
    values = [
        gguf_value("general.architecture", STRING, gguf_string("llama")),
        gguf_value("flag", BOOL, b"\x01"),
        gguf_value("scale", FLOAT32, struct.pack("<f", 0.25)),
        gguf_array("numbers", UINT32, 3, struct.pack("<3I", 1, 2, 3)),
        gguf_array("tokens", STRING, 2, gguf_string("a") + gguf_string("bc")),
    ]
    data = np.arange(num_columns, dtype="<f4").tobytes()
    records = [TensorRecord("vector", (num_columns,), F32)]
    whole: dict[str, Any] = {"values": values, "records": records, "data": data}
    return gguf_bytes(**(whole | changes))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("u8", 200),
        ("i8", -100),
        ("u16", 60_000),
        ("i16", -30_000),
        ("u32", 4_000_000_000),
        ("i32", -2_000_000_000),
        ("u64", 2**64 - 1),
        ("i64", -(2**63)),
        ("f32", 0.5),
        ("f64", 0.1),
        ("yes", True),
        ("no", False),
        ("text", "日本 text"),
        ("general.architecture", "llama"),
        ("tokens", TOKENS),
    ],
)
def test_metadata_become_plain_values(model: Path, key: str, expected: object) -> None:
    with GgufFile(model) as file:
        assert file.metadata[key] == expected
        assert type(file.metadata[key]) is type(expected)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("kinds", np.array([1, 3, -6], np.int32)),
        ("scores", np.array([0.5, -1.25], np.float32)),
        ("flags", np.array([True, False, True])),
    ],
)
def test_numeric_arrays_become_numpy_arrays(model: Path, key: str, expected: NDArray[Any]) -> None:
    with GgufFile(model) as file:
        found = file.metadata[key]
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_tensors_are_read_back(model: Path, weights: dict[str, NDArray[np.float32]]) -> None:
    with GgufFile(model) as file:
        assert file.path == model
        described = {name: (t.name, t.shape, t.type_name) for name, t in file.tensors.items()}
        assert described == {
            "token_embd.weight": ("token_embd.weight", (40, 256), "Q8_0"),
            "norm.weight": ("norm.weight", (64,), "F32"),
            "experts.weight": ("experts.weight", (2, 3, 32), "F16"),
        }
        for name, tensor in file.tensors.items():
            assert tensor.read().dtype == np.float32
            assert tensor.read().shape == weights[name].shape
            np.testing.assert_allclose(tensor.read(), weights[name], atol=0.02)
        np.testing.assert_array_equal(file.tensors["norm.weight"].read(), weights["norm.weight"])


def test_rows_are_the_slices_of_the_whole(model: Path) -> None:
    with GgufFile(model) as file:
        tensor = file.tensors["token_embd.weight"]
        whole = tensor.read()
        for start, stop in [(0, 40), (0, 1), (39, 40), (7, 21), (5, 5), (40, 40)]:
            np.testing.assert_array_equal(tensor.rows(start, stop), whole[start:stop])


def test_a_vector_is_one_row_and_leading_dimensions_multiply(model: Path) -> None:
    with GgufFile(model) as file:
        vector, experts = file.tensors["norm.weight"], file.tensors["experts.weight"]
        assert (vector.num_rows, experts.num_rows) == (1, 6)
        np.testing.assert_array_equal(vector.rows(0, 1), vector.read()[None])
        np.testing.assert_array_equal(experts.rows(2, 5), experts.read().reshape(6, 32)[2:5])


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 41)])
def test_rows_out_of_range_are_refused(model: Path, start: int, stop: int) -> None:
    with GgufFile(model) as file, pytest.raises(ValueError, match="rows 0 to 40, asked for"):
        file.tensors["token_embd.weight"].rows(start, stop)


def test_threads_read_one_tensor_together(model: Path) -> None:
    with GgufFile(model) as file:
        tensor = file.tensors["token_embd.weight"]
        whole = tensor.read()
        with ThreadPoolExecutor(4) as pool:
            pieces = pool.map(lambda start: tensor.rows(start, start + 2), list(range(0, 40, 2)) * 20)
            np.testing.assert_array_equal(np.concatenate(list(pieces)), np.tile(whole, (20, 1)))


def test_what_was_read_outlives_the_file(model: Path, weights: dict[str, NDArray[np.float32]]) -> None:
    with GgufFile(model) as file:
        tensor = file.tensors["norm.weight"]
        vector = tensor.read()
        kinds = file.metadata["kinds"]
    file.close()
    model.unlink()
    np.testing.assert_array_equal(vector, weights["norm.weight"])
    np.testing.assert_array_equal(np.asarray(kinds), [1, 3, -6])
    with pytest.raises(ValueError, match="closed"):
        tensor.read()


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_are_read(tmp_path: Path, version: int) -> None:
    with GgufFile(str(write(tmp_path, tiny(version=version)))) as file:
        assert file.metadata["tokens"] == ["a", "bc"]
        np.testing.assert_array_equal(file.tensors["vector"].read(), np.arange(8))


def test_bytes_that_are_no_utf8_survive(tmp_path: Path) -> None:
    raw = [b"\xff\xfe", "é".encode()[:1], b"ok", b"\xed\xa0\x80"]
    items = b"".join(gguf_string(text) for text in raw)
    with GgufFile(write(tmp_path, tiny(values=[gguf_array("tokens", STRING, len(raw), items)]))) as file:
        tokens = file.metadata["tokens"]
    assert isinstance(tokens, list)
    assert [text.encode("utf-8", "surrogateescape") for text in tokens] == raw


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_the_alignment_of_the_file_is_used(tmp_path: Path, alignment: int) -> None:
    values = [gguf_value("general.alignment", UINT32, struct.pack("<I", alignment))]
    with GgufFile(write(tmp_path, tiny(values=values, alignment=alignment))) as file:
        np.testing.assert_array_equal(file.tensors["vector"].read(), np.arange(8))


def test_empty_arrays_at_the_end_of_a_file_without_tensors(tmp_path: Path) -> None:
    values = [gguf_array("a", STRING, 0, b""), gguf_array("b", UINT32, 0, b"")]
    with GgufFile(write(tmp_path, gguf_bytes(values, alignment=1))) as file:
        assert file.metadata["a"] == []
        assert np.asarray(file.metadata["b"]).shape == (0,)
        assert file.tensors == {}


def test_padding_after_the_last_tensor_may_be_missing(tmp_path: Path) -> None:
    with GgufFile(write(tmp_path, tiny(num_columns=3))) as file:
        np.testing.assert_array_equal(file.tensors["vector"].read(), [0, 1, 2])


def test_every_prefix_of_a_file_is_refused(tmp_path: Path) -> None:
    content = tiny()
    with GgufFile(write(tmp_path, content)):
        pass
    for length in range(len(content)):
        with pytest.raises(CheckpointError, match="download it again") as caught:
            GgufFile(write(tmp_path, content[:length]))
        assert f"{length}" in str(caught.value)


def test_a_file_cut_in_its_tensors_says_what_is_missing(model: Path) -> None:
    content = model.read_bytes()
    with GgufFile(model) as file:
        needed = max(tensor.stop for tensor in file.tensors.values())
    model.write_bytes(content[: needed - 1])
    with pytest.raises(CheckpointError, match=f"{needed} bytes are needed, the file has {needed - 1}; download"):
        GgufFile(model)


def test_a_flipped_byte_of_the_header_is_refused_or_still_reads_whole(tmp_path: Path) -> None:
    content, num_refused = tiny(), 0
    for position in range(len(content) - 32):
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(content)
            damaged[position] ^= mask
            try:
                with GgufFile(write(tmp_path, bytes(damaged))) as file:
                    for tensor in file.tensors.values():
                        assert tensor.read().shape == tensor.shape
            except CheckpointError:
                num_refused += 1
    assert num_refused > len(content)


@pytest.mark.parametrize("content", [b"PK\x03\x04 a zip file", b"<!DOCTYPE html>", b"GGML"])
def test_another_kind_of_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path, content)
    with pytest.raises(CheckpointError) as caught:
        GgufFile(path)
    assert str(path) in str(caught.value)
    assert repr(content[:4]) in str(caught.value)
    assert "give a .gguf file or a Hugging Face folder" in str(caught.value)


@pytest.mark.parametrize("name", ["", "missing.gguf"])
def test_a_folder_or_a_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=r"cannot be read \(.*\); give a .gguf file"):
        GgufFile(tmp_path / name)


BIG = 1 << 60
ALIGNMENTS = [0, 3, 48, 2**31 + 1]
DAMAGED = {
    "version 1": (tiny(version=1), "has GGUF version 1, versions 2 and 3 are supported"),
    "version 4": (tiny(version=4), "has GGUF version 4"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian GGUF file; give the little-endian"),
    "hostile number of values": (b"GGUF" + struct.pack("<IQQ", 3, 0, BIG), "truncated"),
    "hostile number of tensors": (b"GGUF" + struct.pack("<IQQ", 3, BIG, 0), "truncated"),
    "hostile key": (tiny(values=[struct.pack("<Q", BIG) + b"key"]), "truncated: 115292150460684"),
    "hostile string": (tiny(values=[gguf_value("a", STRING, struct.pack("<Q", BIG))]), "truncated"),
    "hostile strings": (tiny(values=[gguf_array("a", STRING, BIG, b"")]), "truncated"),
    "hostile last string": (
        tiny(values=[gguf_array("a", STRING, 2, gguf_string("x") + struct.pack("<Q", BIG))]),
        "truncated",
    ),
    "hostile numbers": (tiny(values=[gguf_array("a", UINT32, BIG, b"")]), "truncated"),
    "hostile number of bytes": (tiny(values=[gguf_array("a", 0, 2**64 - 1, b"")]), "truncated"),
    "nested array": (
        tiny(values=[gguf_array("a", ARRAY, 1, bytes(12))]),
        "'a' holds values of the unknown type 9",
    ),
    "unknown value type": (
        tiny(values=[gguf_value("a", 13, bytes(8))]),
        "'a' holds values of the unknown type 13",
    ),
    "key twice": (tiny(values=[gguf_value("a", BOOL, b"\0")] * 2), "metadata key 'a' occurs twice"),
    "tensor twice": (tiny(records=[TensorRecord("t", (8,), F32)] * 2), "tensor 't' occurs twice"),
    "no dimension": (tiny(records=[TensorRecord("t", (), F32)]), "tensor 't' has 0 dimensions"),
    "five dimensions": (tiny(records=[TensorRecord("t", (1,) * 5, F32)]), "tensor 't' has 5 dimensions"),
    "empty tensor": (
        tiny(records=[TensorRecord("t", (4, 0), F32)]),
        r"tensor 't' has the empty shape \(0, 4\)",
    ),
    "hostile shape": (tiny(records=[TensorRecord("t", (2**63,) * 4, F32)]), "truncated"),
    "hostile offset": (tiny(records=[TensorRecord("t", (8,), F32, 2**64 - 32)]), "truncated"),
    "offset off the grid": (
        tiny(records=[TensorRecord("t", (1,), F32, 4)]),
        "starts at 4, no multiple of 32",
    ),
    "part of a block": (
        tiny(records=[TensorRecord("t", (8,), Q8_0)]),
        "'t' has 8 columns, Q8_0 packs 32 at once",
    ),
    "unsupported type": (
        tiny(records=[TensorRecord("t", (256,), IQ4_XS)]),
        "tensor 't' is of type IQ4_XS, which is not supported; get the model in one of F32, F16, .*Q6_K",
    ),
    "unknown type": (tiny(records=[TensorRecord("t", (256,), 99)]), "tensor 't' is of type number 99"),
    "split": (
        tiny(values=[gguf_value("split.count", 2, struct.pack("<H", 3))]),
        "one of 3 parts of a split GGUF; merge them with `llama-gguf-split --merge",
    ),
    "alignment of text": (
        tiny(values=[gguf_value("general.alignment", STRING, gguf_string("32"))]),
        "general.alignment is '32', not a power of two",
    ),
} | {
    f"alignment {number}": (
        tiny(values=[gguf_value("general.alignment", UINT32, struct.pack("<I", number))]),
        f"general.alignment is {number}, not a power of two",
    )
    for number in ALIGNMENTS
}


@pytest.mark.parametrize(("content", "message"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_or_unsupported_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(CheckpointError, match=message) as caught:
        GgufFile(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", [STRING, UINT32])
def test_a_length_beyond_reason_is_refused_although_the_file_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    monkeypatch.setattr(own, "MAX_LENGTH", 64)
    path = write(tmp_path, tiny(values=[gguf_array("a", kind, 65, bytes(8 * 65))]))
    with pytest.raises(CheckpointError, match="has the length 65; download it again"):
        GgufFile(path)


def test_a_single_part_is_no_split(tmp_path: Path) -> None:
    with GgufFile(write(tmp_path, tiny(values=[gguf_value("split.count", 2, struct.pack("<H", 1))]))) as file:
        assert list(file.tensors) == ["vector"]


def test_type_numbers_are_those_of_the_gguf_package() -> None:
    assert {int(kind): kind.name for kind in gguf.GGMLQuantizationType} == own._TENSOR_TYPES


def test_a_large_vocabulary_is_read_whole(tmp_path: Path) -> None:
    texts = [f"token {number}" for number in range(150_000)]
    items = b"".join(gguf_string(text) for text in texts)
    with GgufFile(write(tmp_path, tiny(values=[gguf_array("tokens", STRING, len(texts), items)]))) as file:
        assert file.metadata["tokens"] == texts
