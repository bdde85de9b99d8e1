"""Replaces a traced graph's matrix products by those of a recipe, and writes its weights.

In the graph a matrix is an input that some MatMul or Gemm reads, mostly through a Transpose. Products that read the
same activations become one, and a bias that is added behind a product moves into it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from pilotfish.export.checkpoint import Tensor
from pilotfish.export.passes import attribute, drop_unused, infer_dims
from pilotfish.export.products import CONSTANTS, Nodes, add_embedding, add_product
from pilotfish.export.weights import Matrix, WeightWriter
from pilotfish.runtime.bundle import TensorNames

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class _Product:
    """`output` = `source` · weight (+ bias), by names; `by_rows` says that the weight is stored transposed to that.

    `rank` is the number of axes of source and output. `last` is the node that gives the output.
    """

    source: str
    rank: int
    weight: str
    by_rows: bool
    output: str
    bias: str = ""


def write_products(model: onnx.ModelProto, weights: Arrays, writer: WeightWriter) -> None:
    """Rewrites the products of `model` in place, writes all weights and constants, and drops the weights' inputs.

    `weights` are the model's arrays by input name. An embedding that also serves as the head is stored once.
    """
    _Rewriting(model, weights, writer).run()


class _Rewriting:
    def __init__(self, model: onnx.ModelProto, weights: Arrays, writer: WeightWriter) -> None:
        self._graph, self._weights, self._writer = model.graph, weights, writer
        self._nodes, self._dims = Nodes(), infer_dims(model)
        self._constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self._constants |= CONSTANTS
        self._producers = {output: node for node in model.graph.node for output in node.output}
        self._consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            for name in node.input:
                self._consumers[name].append(node)
        self._stored: dict[tuple[str, ...], str] = {}  # the name under which a matrix of these weights was written

    def run(self) -> None:
        embedding = next((node for node in self._graph.node if self._is_embedding(node)), None)
        products = {node.output[0]: product for node in self._graph.node if (product := self._product(node))}
        groups: dict[tuple[str, bool], list[_Product]] = defaultdict(list)
        for product in products.values():
            is_tied = embedding is not None and product.weight == embedding.input[0]
            groups[product.source, is_tied].append(product)
        first = {group[0].output: (group, is_tied) for (_, is_tied), group in groups.items()}
        superfluous = {product.output for product in products.values()}
        for node in self._graph.node:
            product = products.get(node.output[0])
            if product is not None:
                if product.output in first:
                    self._add_products(*first[product.output])
            elif node is embedding:
                self._add_embedding(node)
            elif node.output[0] not in superfluous:
                self._nodes.protos.append(node)
        self._finish()

    def _is_embedding(self, node: onnx.NodeProto) -> bool:
        return (
            node.op_type == "Gather"
            and node.input[1] == TensorNames().input_ids
            and self._is_matrix(node.input[0])
            and attribute(node, "axis", 0) == 0
        )

    def _product(self, node: onnx.NodeProto) -> _Product | None:
        """What `node` multiplies, if it is a product by a weight; a bias added by its only consumer belongs to it."""
        if node.op_type not in ("MatMul", "Gemm") or attribute(node, "transA", 0):
            return None
        weight, by_rows = node.input[1], bool(attribute(node, "transB", 0))
        transpose = self._producers.get(weight)
        if transpose is not None and transpose.op_type == "Transpose":
            weight, by_rows = transpose.input[0], not by_rows
        dims = self._dims.get(node.input[0], ())
        if not self._is_matrix(weight) or not (len(dims) == 2 or (len(dims) == 3 and dims[0] == 1)):
            return None
        product = _Product(node.input[0], len(dims), weight, by_rows, node.output[0])
        num_rows = self._weights[weight].shape[0 if by_rows else 1]
        if node.op_type == "Gemm" and len(node.input) > 2:
            is_plain = attribute(node, "alpha", 1.0) == attribute(node, "beta", 1.0) == 1
            return replace(product, bias=node.input[2]) if is_plain and self._is_bias(node.input[2], num_rows) else None
        consumers = self._consumers[product.output]
        if len(consumers) == 1 and consumers[0].op_type == "Add":
            other = next((name for name in consumers[0].input if name != product.output), "")
            if self._is_bias(other, num_rows):
                return replace(product, bias=other, output=consumers[0].output[0])
        return product

    def _is_matrix(self, name: str) -> bool:
        return name in self._weights and name not in self._constants and self._weights[name].ndim == 2

    def _is_bias(self, name: str, num_rows: int) -> bool:
        return name in self._constants and self._constants[name].shape == (num_rows,)

    def _add_products(self, group: list[_Product], is_tied: bool) -> None:
        """One product for the group, whose members read the same source, and a split of its output."""
        matrix = self._matrix(group)
        key = tuple(name for product in group for name in (product.weight, product.bias))
        name = "embedding" if is_tied else self._stored.get(key, group[0].weight)
        if not is_tied and key not in self._stored:
            self._stored[key] = name
            self._writer.write(name, matrix)
        output = group[0].output if len(group) == 1 else f"{group[0].output}.merged"
        source = group[0].source
        # Gemm and QGemm want matrices; the kernels of the block recipes take the batch axis as it is.
        is_flat = group[0].rank == 3 and not self._writer.recipe.block_size
        if is_flat:
            source = self._reshape(source, f"{output}.rows", (-1, matrix.num_columns))
        product = f"{output}.flat" if is_flat else output
        add_product(self._nodes, self._writer.recipe, name, source, product, matrix)
        if is_flat:
            self._reshape(product, output, (1, -1, matrix.num_rows))
        if len(group) > 1:
            sizes = [part.shape[0] for part in matrix.parts]
            self._nodes.add("Split", [output, self._shape(sizes)], *(p.output for p in group), axis=-1)

    def _matrix(self, group: list[_Product]) -> Matrix:
        parts, biases = [], []
        for product in group:
            array = self._weights[product.weight]
            parts.append(_tensor(product.weight, array if product.by_rows else array.T))
            biases.append(_tensor(product.bias, self._constants[product.bias]) if product.bias else None)
        return Matrix(tuple(parts), tuple(biases), parts[0].shape[1])

    def _add_embedding(self, node: onnx.NodeProto) -> None:
        table = self._weights[node.input[0]]
        self._nodes.add("Reshape", [TensorNames().input_ids, "shape_flat"], "token_ids")
        matrix = Matrix((_tensor(node.input[0], table),), (None,), table.shape[1])
        self._reshape(add_embedding(self._nodes, self._writer, matrix), node.output[0], (1, -1, table.shape[1]))

    def _reshape(self, source: str, output: str, shape: tuple[int, ...]) -> str:
        return self._nodes.add("Reshape", [source, self._shape(shape)], output)

    def _shape(self, sizes: tuple[int, ...] | list[int]) -> str:
        name = "sizes_" + "_".join(str(size) for size in sizes)
        self._constants.setdefault(name, np.array(sizes, np.int64))
        return name

    def _finish(self) -> None:
        """Puts the nodes into the graph, and stores the constants and the weights that are no products' matrices."""
        graph = self._graph
        del graph.node[:], graph.initializer[:]
        graph.node.extend(self._nodes.protos)
        drop_unused(graph)
        used = {name for node in graph.node for name in node.input}
        written = {tensor.name for tensor in self._writer.file.initializers}
        for name, array in (dict(self._weights) | self._constants).items():
            if name in used - written:
                self._writer.file.add(name, array)
        inputs = [value for value in graph.input if value.name not in self._weights]
        del graph.input[:]
        graph.input.extend(inputs)


def _tensor(name: str, array: NDArray[Any]) -> Tensor:
    table = array if array.ndim == 2 else array[None]
    return Tensor(name, array.shape, lambda start, stop: table[start:stop])
