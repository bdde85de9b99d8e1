"""How near the passes of a bundle come to what this machine can do at all: bytes from memory, and matrix products.

Usage: python benchmarks/roofline.py BUNDLE [--threads N] [--past 256] [--widths 1 2 4 8 16] [--repeats 7]

First it measures, with as many threads as the models get, how fast memory is read (the best of several ways, over half
a gigabyte) and how fast ONNX Runtime multiplies large matrices of 32-bit floats and of 8-bit integers. Then, from each
graph, it counts what a pass cannot do without: each weight is read once, so is what the caches hold, and each row is
multiplied by each matrix. The floor of a pass is the longer of the two times, as if both overlapped wholly; the last
column is the floor divided by the least duration, since the machine's rates are its best ones too. 100 % means that
nothing is left to gain without other weights, more that the weights stayed in the processor's cache. CPU only.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pilotfish.runtime import load_bundle
from pilotfish.runtime.bundle import ModelEntry
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.machine import num_usable_cores, processor_name
from pilotfish.runtime.session import open_session
from pilotfish.runtime.text_table import text_table

BUFFER_BYTES = 1 << 29
MATRIX = 2048  # rows and columns of the matrices whose product is timed
HEADINGS = (
    ">width", ">MB", ">G operations", ">memory, ms", ">products, ms", ">floor, ms", ">least, ms", ">median, ms",
    ">floor ÷ least",
)  # fmt: skip
LOOK_UPS = ("Gather", "GatherBlockQuantized", "GroupQueryAttention")  # read a few rows of their tables


@dataclass(frozen=True, slots=True)
class Rates:
    """What the machine can do: bytes a second, and multiplications and additions a second of each type."""

    bytes_per_s: float
    fp32_per_s: float
    int8_per_s: float


@dataclass(frozen=True, slots=True)
class Work:
    """What a pass cannot do without: bytes of weights, and operations a row, by the type of their factors.

    `attention_ops` are for each row and each token before it.
    """

    weight_bytes: int
    fp32_ops: int
    int8_ops: int
    attention_ops: int


@dataclass(frozen=True, slots=True)
class Floor:
    """The least that a pass takes: bytes and operations, and the seconds of either."""

    num_bytes: int
    num_ops: int
    memory_s: float
    products_s: float

    @property
    def seconds(self) -> float:
        """As if reading and multiplying overlapped wholly."""
        return max(self.memory_s, self.products_s)


def work_of(graph: onnx.GraphProto, head_dim: int) -> Work:
    """Counts the work of a decoder's graph. `graph` may leave its weights in another file."""
    sizes = {tensor.name: _num_bytes(tensor) for tensor in graph.initializer}
    dims = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    producers = {output: node for node in graph.node for output in node.output}
    read = {name for node in graph.node if node.op_type not in LOOK_UPS for name in node.input if name in sizes}
    ops = {"fp32": 0, "int8": 0, "attention": 0}
    for node in graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "MatMulNBits":  # level 4 rounds activations to 8 bits
            ops["int8" if attributes.get("accuracy_level") == 4 else "fp32"] += 2 * attributes["K"] * attributes["N"]
        elif node.op_type == "QGemm":
            source = producers.get(node.input[0])
            parts = 2 if source is not None and source.op_type == "Concat" else 1  # w8a16 multiplies both its parts
            ops["int8"] += parts * 2 * int(np.prod(dims[node.input[3]]))
        elif node.op_type in ("Gemm", "MatMul") and node.input[1] in dims:
            ops["fp32"] += 2 * int(np.prod(dims[node.input[1]]))
        elif node.op_type == "GroupQueryAttention":
            ops["attention"] += 4 * attributes["num_heads"] * head_dim
    return Work(sum(sizes[name] for name in read), ops["fp32"], ops["int8"], ops["attention"])


def _num_bytes(tensor: onnx.TensorProto) -> int:
    outside = {entry.key: entry.value for entry in tensor.external_data}
    return int(outside["length"]) if "length" in outside else numpy_helper.to_array(tensor).nbytes


def floor_of(work: Work, rates: Rates, width: int, num_past: int, cache_bytes_per_token: int) -> Floor:
    """The floor of a pass of `width` rows, all with logits, after `num_past` tokens."""
    num_bytes = work.weight_bytes + num_past * cache_bytes_per_token
    fp32_ops = width * (work.fp32_ops + work.attention_ops * (num_past + width))
    int8_ops = width * work.int8_ops
    products_s = fp32_ops / rates.fp32_per_s + int8_ops / rates.int8_per_s
    return Floor(num_bytes, fp32_ops + int8_ops, num_bytes / rates.bytes_per_s, products_s)


def best_s(call: Callable[[], object], repeats: int) -> float:
    """The least duration, since what disturbs a measurement of a machine's limit only lengthens it."""
    found = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return min(found[1:])


def reading_rates(num_threads: int, num_bytes: int, repeats: int) -> dict[str, float]:
    """Bytes a second by which memory is read, in several ways."""
    values = np.ones(num_bytes // 4, np.float32)
    parts = np.array_split(values, num_threads)
    columns = 4096
    product = helper.make_node("MatMul", ["row", "matrix"], ["out"])
    matrix = values[: values.size // columns * columns].reshape(columns, -1)
    run = _runner(product, {"row": np.ones((1, columns), np.float32), "matrix": matrix}, num_threads)
    with ThreadPoolExecutor(num_threads) as pool:

        def over_parts(reduce: Callable[[Any], object]) -> Callable[[], object]:
            return lambda: list(pool.map(reduce, parts))

        return {
            "NumPy, largest": num_bytes / best_s(over_parts(np.max), repeats),
            "NumPy, sum": num_bytes / best_s(over_parts(np.sum), repeats),
            "NumPy, dot": num_bytes / best_s(over_parts(lambda part: np.dot(part, part)), repeats),
            "ONNX Runtime, row times matrix": matrix.nbytes / best_s(run, repeats),
        }


def product_rates(num_threads: int, size: int, repeats: int) -> tuple[float, float]:
    """Operations a second of products of square matrices: of 32-bit floats, and of 8-bit integers."""
    rng = np.random.default_rng(0)
    floats = {name: rng.normal(size=(size, size)).astype(np.float32) for name in ("a", "b")}
    fp32 = _runner(helper.make_node("MatMul", ["a", "b"], ["out"]), floats, num_threads)
    integers = {
        "a": rng.integers(0, 256, (size, size), np.uint8),
        "scale": np.array(1, np.float32),
        "zero": np.array(128, np.uint8),
        "b": rng.integers(-127, 128, (size, size), np.int8),
        "scales": np.ones(size, np.float32),
        "zeros": np.zeros(size, np.int8),
    }
    node = helper.make_node("QGemm", list(integers), ["out"], domain="com.microsoft", transB=1)
    int8 = _runner(node, integers, num_threads, stored=set(integers) - {"a"})
    return 2 * size**3 / best_s(fp32, repeats), 2 * size**3 / best_s(int8, repeats)


def _runner(
    node: onnx.NodeProto, arrays: dict[str, Any], num_threads: int, stored: Sequence[str] | set[str] = ()
) -> Callable[[], object]:
    """Runs one node in a session of its own; those of `stored` are weights, the others inputs."""
    fed = {name: array for name, array in arrays.items() if name not in stored}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in fed.items()
    ]
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(arrays[name], name) for name in arrays if name in stored]
    graph = helper.make_graph([node], "one", inputs, [output], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
        session = open_session(path, "cpu", num_threads)
    return lambda: session.run(None, fed)


def pass_durations(decoder: Decoder, widths: Sequence[int], num_past: int, repeats: int) -> dict[int, list[float]]:
    """Seconds of passes of each width after `num_past` tokens, by turns."""
    decoder.forward([0] * num_past, 0)
    found: dict[int, list[float]] = {width: [] for width in widths}
    for repeat in range(repeats + 1):
        for width, seconds in found.items():
            started = time.perf_counter()
            decoder.forward([0] * width, width)
            if repeat:  # the first turn binds and warms up
                seconds.append(time.perf_counter() - started)
            decoder.rollback(num_past)
    return found


def model_table(model: ModelEntry, graph_path: Path, rates: Rates, arguments: argparse.Namespace) -> str:
    """The table of one model."""
    work = work_of(onnx.load(graph_path, load_external_data=False).graph, model.head_dim)
    context = arguments.past + max(arguments.widths)
    with Decoder(model, graph_path, device="cpu", context_length=context, num_threads=arguments.threads) as decoder:
        durations = pass_durations(decoder, arguments.widths, arguments.past, arguments.repeats)
    rows = []
    for width, seconds in durations.items():
        floor = floor_of(work, rates, width, arguments.past, model.cache_bytes_per_token)
        least, median = min(seconds), statistics.median(seconds)
        times = [f"{1e3 * s:.2f}" for s in (floor.memory_s, floor.products_s, floor.seconds, least, median)]
        share = f"{floor.seconds / least:.0%}"
        rows.append([str(width), f"{floor.num_bytes / 1e6:.1f}", f"{floor.num_ops / 1e9:.2f}", *times, share])
    return text_table(HEADINGS, rows)


def main(given: Sequence[str] | None = None) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--threads", type=int, default=num_usable_cores(Path("/sys/fs/cgroup")))
    parser.add_argument("--past", type=int, default=256)
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--buffer", type=int, default=BUFFER_BYTES, help="bytes that are read to measure memory")
    parser.add_argument("--matrix", type=int, default=MATRIX, help="rows and columns of the products that are timed")
    arguments = parser.parse_args(given)
    print(f"{processor_name()}, {arguments.threads} threads")
    reading = reading_rates(arguments.threads, arguments.buffer, arguments.repeats)
    for way, rate in reading.items():
        print(f"memory, {way}: {rate / 1e9:.1f} GB/s")
    fp32, int8 = product_rates(arguments.threads, arguments.matrix, arguments.repeats)
    print(f"products: {fp32 / 1e9:.0f} G operations/s of 32-bit floats, {int8 / 1e9:.0f} of 8-bit integers")
    rates, bundle = Rates(max(reading.values()), fp32, int8), load_bundle(arguments.bundle)
    for role, model in bundle.manifest.models.items():
        print(f"\n{arguments.bundle.name}, {role} ({model.recipe}), passes after {arguments.past} tokens:")
        print(model_table(model, bundle.path / model.graph, rates, arguments))


if __name__ == "__main__":
    main()
