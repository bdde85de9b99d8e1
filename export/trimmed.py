"""Trims the head of a draft: logits for the tokens it is likely to need, and no others.

In a small model with a large vocabulary the head is a good part of what each pass reads. A draft that lacks a token
never proposes it, which costs some acceptance and never changes the output, since the target decides.

The rows of a head never depend on each other, in any layout, so those that stay are copied as they are stored.

Axis letters: `V` rows of the whole head, `C` rows that stay.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from pilotfish.export.passes import attribute, drop_unused
from pilotfish.export.quantize import Recipe
from pilotfish.export.sources import Source
from pilotfish.export.tokenizer_files import TokenizerFiles
from pilotfish.export.weight_file import ALIGNMENT, WeightFile
from pilotfish.export.weights import Progress
from pilotfish.runtime.bundle import ModelEntry, TensorNames
from pilotfish.runtime.errors import CheckpointError

SUFFIX = ".trimmed"  # of the names of what replaces a whole head's weights
PRODUCTS = ("Gemm", "MatMul", "MatMulNBits", "QGemm", "Add")  # the last adds a bias


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A `Source` that is written with logits for `head_ids` only, ascending int64 (C,)."""

    whole: Source
    head_ids: NDArray[np.int64]

    @property
    def path(self) -> Path:
        """As in `Source`."""
        return self.whole.path

    @property
    def recipe(self) -> Recipe:
        """As in `Source`."""
        return self.whole.recipe

    @property
    def tokenizer(self) -> TokenizerFiles:
        """As in `Source`."""
        return self.whole.tokenizer

    @property
    def reference(self) -> str:
        """As in `Source`."""
        return self.whole.reference

    @property
    def num_weights(self) -> int:
        """As in `Source`."""
        return self.whole.num_weights

    @property
    def num_bytes(self) -> int:
        """As in `Source`."""
        most_columns = self.num_weights // (int(self.head_ids[-1]) + 1)  # were there no matrix but the embedding
        head = self.recipe.layout("head").tensor_bytes(len(self.head_ids), most_columns)
        return self.whole.num_bytes + sum(head) + len(head) * ALIGNMENT + self.head_ids.nbytes

    def write(self, folder: Path, role: str, progress: Progress) -> tuple[Mapping[str, str], ModelEntry]:
        """As in `Source`."""
        digests, entry = self.whole.write(folder, role, progress)
        head_ids = self.head_ids[self.head_ids < entry.vocab_size]
        graph_path = folder / entry.graph
        changed = trim_head(graph_path, entry.vocab_size, head_ids)
        ids_path = graph_path.with_suffix(".head_ids.npy")
        np.save(ids_path, head_ids)
        known = {name: digest for name, digest in digests.items() if folder / name not in changed}
        return known, replace(entry, head_ids=ids_path.name, source={**entry.source, "head_ids": str(len(head_ids))})

    def logits(self, token_ids: Sequence[int], progress: Progress) -> NDArray[np.float32]:
        """As in `Source`: of the whole head."""
        return self.whole.logits(token_ids, progress)

    def close(self) -> None:
        """Closes what it is made of."""
        self.whole.close()


def trim_head(graph_path: Path, vocab_size: int, head_ids: NDArray[np.int64]) -> list[Path]:
    """Rewrites a graph of `vocab_size` logits, V, so that it computes those of `head_ids`, C, in this order.

    The rows that stay are stored in a file of their own. The file of the other weights then ends where what the graph
    still reads of it does, unless it is another graph's; it is returned if it became shorter.
    """
    model = onnx.load(graph_path, load_external_data=False)
    graph, folder = model.graph, graph_path.parent
    nodes = _downstream(graph, TensorNames().logits_rows)
    read = {name for node in nodes if node.op_type in PRODUCTS for name in node.input}
    whole = [tensor for tensor in graph.initializer if tensor.name in read and list(tensor.dims)[:1] == [vocab_size]]
    if not whole:
        raise CheckpointError(f"the head of {graph_path} is no product of {vocab_size} rows, so it cannot be trimmed")
    with WeightFile(graph_path.with_suffix(".head.data")) as file:
        for tensor in whole:
            file.add(f"{tensor.name}{SUFFIX}", _rows(tensor, folder, head_ids))
        graph.initializer.extend(file.initializers)
    _rewire(graph, nodes, {tensor.name for tensor in whole}, vocab_size, len(head_ids))
    drop_unused(graph)
    graph_path.write_bytes(model.SerializeToString())
    return _shortened(graph, graph_path.with_name(f"{graph_path.name}.data"))


def _downstream(graph: onnx.GraphProto, source: str) -> list[onnx.NodeProto]:
    """The nodes whose outputs depend on `source`."""
    reached, nodes = {source}, []
    for node in graph.node:
        if reached.intersection(node.input):
            reached.update(filter(None, node.output))
            nodes.append(node)
    return nodes


def _rows(tensor: onnx.TensorProto, folder: Path, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Rows of an initializer, without reading the others if it lies in a file."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return np.asarray(numpy_helper.to_array(tensor)[rows])
    place = {entry.key: entry.value for entry in tensor.external_data}
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    whole = np.memmap(folder / place["location"], dtype, "r", int(place["offset"]), tuple(tensor.dims))
    return np.asarray(whole[rows])


def _rewire(
    graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], trimmed: Set[str], before: int, after: int
) -> None:
    """Makes the head's `nodes` read the `trimmed` weights, and writes the new width over the old one, in place."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in nodes:
        for position, name in enumerate(node.input):
            if name in trimmed:
                node.input[position] = f"{name}{SUFFIX}"
        if node.op_type == "MatMulNBits" and attribute(node, "N", 0) == before:
            next(item for item in node.attribute if item.name == "N").i = after
        if node.op_type == "Reshape" and node.input[1] in constants:
            shape = numpy_helper.to_array(constants[node.input[1]])
            if before in shape:
                node.input[1] = f"{node.output[0]}.shape{SUFFIX}"
                new = np.where(shape == before, after, shape)
                graph.initializer.append(numpy_helper.from_array(new, node.input[1]))
    for value in graph.output:
        if value.name == TensorNames().logits:
            value.type.tensor_type.shape.dim[-1].dim_value = after


def _shortened(graph: onnx.GraphProto, data_path: Path) -> list[Path]:
    """Cuts the graph's own data file behind the last byte that it still reads; returns it if that changed it."""
    if not data_path.exists():
        return []
    end = 0
    for tensor in graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        if place.get("location") == data_path.name:
            end = max(end, int(place["offset"]) + int(place["length"]))
    if end == data_path.stat().st_size:
        return []
    os.truncate(data_path, end)
    return [data_path]
