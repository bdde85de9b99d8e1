"""How each recipe multiplies by a weight and looks up an embedding, as ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from pilotfish.export.quantize import Layout, Recipe
from pilotfish.export.weights import Matrix, Section, WeightWriter, sections

CONTRIB = "com.microsoft"

# What the nodes of this module, and of the graphs around them, read by name; each graph stores them.
CONSTANTS: Mapping[str, NDArray[Any]] = MappingProxyType(
    {
        "shape_flat": np.array([-1], np.int64),
        "axis_0": np.array([0], np.int64),
        "axis_1": np.array([1], np.int64),
        "axis_last": np.array([-1], np.int64),
        "tiny": np.array(1e-30, np.float32),  # keeps a token of zeros from a division by zero
        "unit_scale": np.array(1 / 127, np.float32),
        "unit_zero": np.array(128, np.uint8),
        "fine": np.array(254, np.float32),  # rounding to a step of `unit_scale` leaves at most 1 / 254
        "coarse": np.array(1 / 254, np.float32),
    }
)


class Nodes:
    """The nodes of the graph in order, each named after its first output."""

    def __init__(self) -> None:
        """Starts empty."""
        self.protos: list[onnx.NodeProto] = []
        self._integers: set[str] = set()

    def add(self, op: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: Any) -> str:
        """Appends a node and returns its first output; an empty name is an input or output left out."""
        self.protos.append(helper.make_node(op, inputs, outputs, name=outputs[0], domain=domain, **attributes))
        return outputs[0]

    def integers(self, *values: int) -> str:
        """The name of a constant int64 vector."""
        name = "integers_" + "_".join(str(value) for value in values)
        if name not in self._integers:
            self._integers.add(name)
            self.add("Constant", [], name, value_ints=list(values))
        return name


def add_product(nodes: Nodes, recipe: Recipe, name: str, source: str, output: str, weights: Matrix) -> str:
    """`output` = `source` · weightsᵀ (+ bias), for the initializers that `WeightWriter.write` stored under `name`."""
    by_layout = sections(recipe, weights)
    if len(by_layout) == 1:
        return _section_product(nodes, by_layout[0], name, source, output)
    outputs = [
        _section_product(nodes, section, f"{name}{section.suffix}", source, f"{output}{section.suffix}")
        for section in by_layout
    ]
    return nodes.add("Concat", outputs, output, axis=-1)


def _section_product(nodes: Nodes, section: Section, name: str, source: str, output: str) -> str:
    layout, weights = section.layout, section.weights
    bias = [f"{name}.bias"] if weights.has_bias else []
    if layout.kind == "float":
        return nodes.add("Gemm", [source, name, *bias], output, transB=1)
    if layout.kind == "rows":
        return _integer_product(nodes, layout, name, source, output, bias)
    zero_points = f"{name}.zero_points" if layout.zero_points else ""
    product = nodes.add(
        "MatMulNBits",
        [source, name, f"{name}.scales", zero_points, "", *bias],
        f"{output}.scaled" if layout.offsets else output,
        domain=CONTRIB,
        K=weights.num_columns,
        N=weights.num_rows,
        bits=layout.bits,
        block_size=layout.block_size,
        accuracy_level=4,
    )
    if not layout.offsets:
        return product
    # What a block's offset adds to the product is the offset times the sum of the block's activations.
    shape = nodes.integers(-1, weights.num_columns // layout.block_size, layout.block_size)
    blocks = nodes.add("Reshape", [source, shape], f"{output}.blocks")
    sums = nodes.add("ReduceSum", [blocks, "axis_last"], f"{output}.sums", keepdims=0)
    return nodes.add("Gemm", [sums, f"{name}.offsets", product], output, transB=1)


def _integer_product(nodes: Nodes, layout: Layout, name: str, source: str, output: str, bias: list[str]) -> str:
    """Each token's activations are scaled to ±1 by their own maximum, multiplied as integers, and scaled back."""
    magnitude = nodes.add("Abs", [source], f"{output}.magnitude")
    peak = nodes.add("ReduceMax", [magnitude, "axis_last"], f"{output}.peak", keepdims=1)
    scale = nodes.add("Max", [peak, "tiny"], f"{output}.scale")
    unit = nodes.add("Div", [source, scale], f"{output}.unit")
    multiply = _fine_unit_product if layout.activation_bits == 16 else _unit_product
    product = multiply(nodes, name, unit, output)
    if not bias:
        return nodes.add("Mul", [product, scale], output)
    return nodes.add("Add", [nodes.add("Mul", [product, scale], f"{output}.scaled"), *bias], output)


def _unit_product(nodes: Nodes, name: str, unit: str, output: str) -> str:
    """The product of activations in ±1, rounded to 8 bits."""
    codes = nodes.add("QuantizeLinear", [unit, "unit_scale", "unit_zero"], f"{output}.codes")
    return _codes_product(nodes, name, codes, f"{output}.product")


def _fine_unit_product(nodes: Nodes, name: str, unit: str, output: str) -> str:
    """The product of activations in ±1, rounded to 8 bits, and of 8 bits of what that left, reading weights once."""
    codes = nodes.add("QuantizeLinear", [unit, "unit_scale", "unit_zero"], f"{output}.codes")
    rounded = nodes.add("DequantizeLinear", [codes, "unit_scale", "unit_zero"], f"{output}.rounded")
    rest = nodes.add("Mul", [nodes.add("Sub", [unit, rounded], f"{output}.left"), "fine"], f"{output}.rest")
    fine_codes = nodes.add("QuantizeLinear", [rest, "unit_scale", "unit_zero"], f"{output}.fine_codes")
    both = nodes.add("Concat", [codes, fine_codes], f"{output}.both_codes", axis=0)
    products = _codes_product(nodes, name, both, f"{output}.both")
    nodes.add("Split", [products], f"{output}.main", f"{output}.fine", axis=0, num_outputs=2)
    correction = nodes.add("Mul", [f"{output}.fine", "coarse"], f"{output}.correction")
    return nodes.add("Add", [f"{output}.main", correction], f"{output}.product")


def _codes_product(nodes: Nodes, name: str, codes: str, output: str) -> str:
    inputs = [codes, "unit_scale", "unit_zero", name, f"{name}.scales", f"{name}.zeros"]
    return nodes.add("QGemm", inputs, output, domain=CONTRIB, transB=1)


def add_embedding(nodes: Nodes, writer: WeightWriter, weights: Matrix) -> str:
    """Stores the embedding and adds the look-up of `token_ids`; a tied head multiplies with the same bytes."""
    (section,) = sections(writer.recipe, weights)
    layout, (stored,) = section.layout, writer.write("embedding", weights)
    if layout.kind == "float":
        return nodes.add("Gather", ["embedding", "token_ids"], "embedded")
    if layout.kind == "rows":
        codes = nodes.add("Gather", ["embedding", "token_ids"], "embedded.codes")
        values = nodes.add("Cast", [codes], "embedded.values", to=TensorProto.FLOAT)
        scales = nodes.add("Gather", ["embedding.scales", "token_ids"], "embedded.scales")
        scales = nodes.add("Unsqueeze", [scales, "axis_1"], "embedded.scales_column")
        return nodes.add("Mul", [values, scales], "embedded")
    table, *others = writer.describe_as_table("embedding", section, stored)
    embedded = nodes.add(
        "GatherBlockQuantized",
        [table, "token_ids", *others],
        "embedded.scaled",
        domain=CONTRIB,
        bits=layout.bits,
        block_size=layout.block_size,
        gather_axis=0,
        quantize_axis=1,
    )
    if layout.offsets:
        embedded = _add_block_offsets(nodes, layout, weights.num_columns, embedded)
    if weights.num_columns % layout.block_size == 0:
        return embedded
    width = nodes.integers(weights.num_columns)
    return nodes.add("Slice", [embedded, "axis_0", width, "axis_last"], "embedded")  # without the last block's padding


def _add_block_offsets(nodes: Nodes, layout: Layout, num_columns: int, scaled: str) -> str:
    blocks = nodes.add(
        "Reshape", [scaled, nodes.integers(-1, num_columns // layout.block_size, layout.block_size)], "embedded.blocks"
    )
    offsets = nodes.add("Gather", ["embedding.offsets", "token_ids"], "embedded.offsets")
    offsets = nodes.add("Unsqueeze", [offsets, "axis_last"], "embedded.offsets_column")
    shifted = nodes.add("Add", [blocks, offsets], "embedded.shifted")
    return nodes.add("Reshape", [shifted, nodes.integers(-1, num_columns)], "embedded")
