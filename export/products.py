"""How each recipe multiplies by a weight and looks up an embedding, as ONNX nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from pilotfish.export.quantize import Recipe
from pilotfish.export.weights import Matrix, WeightWriter

CONTRIB = "com.microsoft"


class Nodes:
    """The nodes of the graph in order, each named after its first output."""

    def __init__(self) -> None:
        """Starts empty."""
        self.protos: list[onnx.NodeProto] = []

    def add(self, op: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: Any) -> str:
        """Appends a node and returns its first output; an empty name is an input or output left out."""
        self.protos.append(helper.make_node(op, inputs, outputs, name=outputs[0], domain=domain, **attributes))
        return outputs[0]


def add_product(nodes: Nodes, recipe: Recipe, name: str, source: str, output: str, weights: Matrix) -> str:
    """`output` = `source` · weightsᵀ (+ bias), for the initializers that `WeightWriter.write` stored under `name`."""
    bias = [f"{name}.bias"] if weights.has_bias else []
    if recipe.name == "fp32":
        return nodes.add("Gemm", [source, name, *bias], output, transB=1)
    if recipe.name == "w8a8":
        return _integer_product(nodes, name, source, output, bias)
    return nodes.add(
        "MatMulNBits",
        [source, name, f"{name}.scales", "", "", *bias],
        output,
        domain=CONTRIB,
        K=weights.num_columns,
        N=weights.num_rows,
        bits=recipe.bits,
        block_size=recipe.block_size,
        accuracy_level=4,
    )


def _integer_product(nodes: Nodes, name: str, source: str, output: str, bias: list[str]) -> str:
    """Each token's activations are scaled to ±1 by their own maximum, multiplied as integers, and scaled back."""
    magnitude = nodes.add("Abs", [source], f"{output}.magnitude")
    peak = nodes.add("ReduceMax", [magnitude, "axis_last"], f"{output}.peak", keepdims=1)
    scale = nodes.add("Max", [peak, "tiny"], f"{output}.scale")
    unit = nodes.add("Div", [source, scale], f"{output}.unit")
    codes = nodes.add("QuantizeLinear", [unit, "unit_scale", "unit_zero"], f"{output}.codes")
    inputs = [codes, "unit_scale", "unit_zero", name, f"{name}.scales", f"{name}.zeros"]
    product = nodes.add("QGemm", inputs, f"{output}.product", domain=CONTRIB, transB=1)
    if not bias:
        return nodes.add("Mul", [product, scale], output)
    return nodes.add("Add", [nodes.add("Mul", [product, scale], f"{output}.scaled"), *bias], output)


def add_embedding(nodes: Nodes, writer: WeightWriter, weights: Matrix) -> str:
    """Stores the embedding and adds the look-up of `token_ids`; a tied head multiplies with the same bytes."""
    recipe, stored = writer.recipe, writer.write("embedding", weights)
    if recipe.name == "fp32":
        return nodes.add("Gather", ["embedding", "token_ids"], "embedded")
    if recipe.name == "w8a8":
        codes = nodes.add("Gather", ["embedding", "token_ids"], "embedded.codes")
        values = nodes.add("Cast", [codes], "embedded.values", to=TensorProto.FLOAT)
        scales = nodes.add("Gather", ["embedding.scales", "token_ids"], "embedded.scales")
        scales = nodes.add("Unsqueeze", [scales, "axis_1"], "embedded.scales_column")
        return nodes.add("Mul", [values, scales], "embedded")
    table, scales = writer.describe_as_table("embedding", weights, stored)
    blocks = nodes.add(
        "GatherBlockQuantized",
        [table, "token_ids", scales],
        "embedded.blocks",
        domain=CONTRIB,
        bits=recipe.bits,
        block_size=recipe.block_size,
        gather_axis=0,
        quantize_axis=1,
    )
    if weights.num_columns % recipe.block_size == 0:
        return blocks
    width = writer.file.add("hidden_size", np.array([weights.num_columns], np.int64))
    return nodes.add("Slice", [blocks, "axis_0", width, "axis_last"], "embedded")  # without the last block's padding
