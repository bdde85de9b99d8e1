"""Builds the ONNX decoder of a llama-like model, streaming its weights from the checkpoint to the data file.

Axis letters: `N` new tokens, `R` asked-for rows of logits, `K` hidden size, `V` vocabulary, `D` head size.
Hidden states flow as [N, K]; only the attention sees the batch axis of 1. `architecture.md`'s graph contract holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from pilotfish.export.checkpoint import Checkpoint
from pilotfish.export.llama import DecoderConfig
from pilotfish.export.quantize import Recipe
from pilotfish.export.weight_file import WeightFile
from pilotfish.export.weights import Matrix, Progress, WeightWriter, matrix
from pilotfish.runtime.bundle import TensorNames

OPSET, CONTRIB = 21, "com.microsoft"
PADDING_POSITIONS = 64  # a forward at the very end of the context may be padded with dummy tokens


class _Nodes:
    """The nodes of the graph in order, each named after its output."""

    def __init__(self) -> None:
        self.protos: list[onnx.NodeProto] = []

    def add(self, op: str, inputs: list[str], outputs: str | list[str], domain: str = "", **attributes: Any) -> str:
        names = [outputs] if isinstance(outputs, str) else outputs
        name = next(filter(None, names))
        self.protos.append(helper.make_node(op, inputs, names, name=name, domain=domain, **attributes))
        return name


def build_decoder(
    checkpoint: Checkpoint, recipe: Recipe, directory: Path, progress: Progress = lambda num_bytes: None
) -> str:
    """Writes `model.onnx` and `model.onnx.data` into `directory`; returns the data file's sha256.

    `progress` is called with the number of weight elements finished since the last call.
    """
    config, names = checkpoint.config, TensorNames()
    nodes = _Nodes()
    with WeightFile(directory / "model.onnx.data") as weight_file:
        writer = WeightWriter(weight_file, recipe, progress)
        _add_constants(weight_file, config)
        embedding, head = _vocabulary_matrices(checkpoint)
        tied = embedding is head
        writer.write("embedding", embedding)
        nodes.add("Reshape", [names.input_ids, "shape_flat"], "token_ids")
        hidden, delta = _embed(nodes, recipe, writer, embedding), ""
        for layer in range(config.num_layers):
            hidden, delta = _layer(nodes, writer, checkpoint, names, layer, hidden, delta)
        hidden = nodes.add("Gather", [hidden, names.logits_rows], "asked.hidden")
        delta = nodes.add("Gather", [delta, names.logits_rows], "asked.delta")
        normed, _ = _norm(nodes, writer, checkpoint, "norm", -1, hidden, delta)
        if not tied:
            writer.write("head", head)
        elif checkpoint.find("head"):
            progress(head.num_rows * head.num_columns)  # the second copy needs no work
        _linear(nodes, recipe, "embedding" if tied else "head", normed, names.logits, head)
        initializers, digest = weight_file.initializers, weight_file.sha256
    graph = helper.make_graph(
        nodes.protos,
        f"pilotfish-{config.family}",
        _inputs(config, names),
        _outputs(config, names),
        initializers,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="pilotfish")
    (directory / "model.onnx").write_bytes(model.SerializeToString())
    return digest


def _layer(
    nodes: _Nodes,
    writer: WeightWriter,
    checkpoint: Checkpoint,
    names: TensorNames,
    layer: int,
    hidden: str,
    delta: str,
) -> tuple[str, str]:
    config, prefix = checkpoint.config, f"layer{layer}"
    width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    normed, hidden = _norm(nodes, writer, checkpoint, "attention_norm", layer, hidden, delta)

    qkv = matrix(checkpoint, (("q", width), ("k", kv_width), ("v", kv_width)), config.hidden_size, layer)
    qkv_out = _projection(nodes, writer, f"{prefix}.qkv", qkv, normed)
    attended = _attention(nodes, config, names, layer, qkv_out)
    o = matrix(checkpoint, (("o", config.hidden_size),), width, layer)
    delta = _projection(nodes, writer, f"{prefix}.o", o, attended)

    normed, hidden = _norm(nodes, writer, checkpoint, "mlp_norm", layer, hidden, delta)
    stems = (("gate", config.intermediate_size), ("up", config.intermediate_size))
    gate_up = _projection(
        nodes, writer, f"{prefix}.gate_up", matrix(checkpoint, stems, config.hidden_size, layer), normed
    )
    nodes.add("Split", [gate_up], [f"{prefix}.gate", f"{prefix}.up"], axis=-1, num_outputs=2)
    gate = nodes.add("QuickGelu", [f"{prefix}.gate"], f"{prefix}.silu", CONTRIB, alpha=1.0)  # x · sigmoid(x)
    product = nodes.add("Mul", [gate, f"{prefix}.up"], f"{prefix}.product")
    down = matrix(checkpoint, (("down", config.hidden_size),), config.intermediate_size, layer)
    return hidden, _projection(nodes, writer, f"{prefix}.down", down, product)


def _attention(nodes: _Nodes, config: DecoderConfig, names: TensorNames, layer: int, qkv: str) -> str:
    prefix = f"layer{layer}"
    batched = nodes.add("Unsqueeze", [qkv, "axis_0"], f"{prefix}.qkv_batched")
    past = [names.past_key.format(layer=layer), names.past_value.format(layer=layer)]
    present = [names.present_key.format(layer=layer), names.present_value.format(layer=layer)]
    attended = nodes.add(
        "GroupQueryAttention",
        [batched, "", "", *past, names.seqlens_k, names.total_sequence_length, "rotary_cos", "rotary_sin"],
        [f"{prefix}.attended", *present],
        CONTRIB,
        num_heads=config.num_heads,
        kv_num_heads=config.num_kv_heads,
        do_rotary=1,
        rotary_interleaved=int(config.rotary_interleaved),
    )
    return nodes.add("Squeeze", [attended, "axis_0"], f"{prefix}.attended_flat")


def _norm(
    nodes: _Nodes,
    writer: WeightWriter,
    checkpoint: Checkpoint,
    stem: str,
    layer: int,
    hidden: str,
    delta: str,
) -> tuple[str, str]:
    """RMS norm of hidden + delta; returns (normed, hidden + delta). The first layer has no delta yet."""
    config = checkpoint.config
    prefix = f"layer{layer}.{stem}" if layer >= 0 else stem
    weight = writer.file.add(f"{prefix}.weight", checkpoint.get(stem, (config.hidden_size,), layer).read())
    if not delta:
        epsilon = config.rms_norm_eps
        nodes.add(
            "SimplifiedLayerNormalization", [hidden, weight], f"{prefix}.out", axis=-1, epsilon=epsilon, stash_type=1
        )
        return f"{prefix}.out", hidden
    outputs = [f"{prefix}.out", "", "", f"{prefix}.sum"]
    nodes.add(
        "SkipSimplifiedLayerNormalization",
        [hidden, delta, weight],
        outputs,
        CONTRIB,
        epsilon=config.rms_norm_eps,
    )
    return outputs[0], outputs[3]


def _projection(nodes: _Nodes, writer: WeightWriter, name: str, weights: Matrix, source: str) -> str:
    writer.write(name, weights)
    return _linear(nodes, writer.recipe, name, source, f"{name}.out", weights)


def _linear(nodes: _Nodes, recipe: Recipe, name: str, source: str, output: str, weights: Matrix) -> str:
    """source · weightsᵀ (+ bias), by the kernel of the recipe."""
    bias = [f"{name}.bias"] if weights.has_bias else []
    if recipe.name == "fp32":
        return nodes.add("Gemm", [source, name, *bias], output, transB=1)
    if recipe.name == "w8a8":
        return _linear_w8a8(nodes, name, source, output, bias)
    return nodes.add(
        "MatMulNBits",
        [source, name, f"{name}.scales", "", "", *bias],
        output,
        CONTRIB,
        K=weights.num_columns,
        N=weights.num_rows,
        bits=recipe.bits,
        block_size=recipe.block_size,
        accuracy_level=4,
    )


def _linear_w8a8(nodes: _Nodes, name: str, source: str, output: str, bias: list[str]) -> str:
    """Each token's activations are scaled to ±1 by their own maximum, multiplied as integers, and scaled back."""
    magnitude = nodes.add("Abs", [source], f"{output}.abs")
    peak = nodes.add("ReduceMax", [magnitude, "axis_last"], f"{output}.peak", keepdims=1)
    peak = nodes.add("Max", [peak, "tiny"], f"{output}.scale")
    unit = nodes.add("Div", [source, peak], f"{output}.unit")
    codes = nodes.add("QuantizeLinear", [unit, "unit_scale", "unit_zero"], f"{output}.codes")
    product = nodes.add(
        "QGemm",
        [codes, "unit_scale", "unit_zero", name, f"{name}.scales", f"{name}.zeros"],
        f"{output}.scaled",
        CONTRIB,
        transB=1,
    )
    if not bias:
        return nodes.add("Mul", [product, peak], output)
    return nodes.add("Add", [nodes.add("Mul", [product, peak], f"{output}.unbiased"), *bias], output)


def _embed(nodes: _Nodes, recipe: Recipe, writer: WeightWriter, embedding: Matrix) -> str:
    """The embedding rows of the tokens, read from the same bytes that the head multiplies with if they are tied."""
    if recipe.name == "fp32":
        return nodes.add("Gather", ["embedding", "token_ids"], "embedded")
    if recipe.name == "w8a8":
        codes = nodes.add("Gather", ["embedding", "token_ids"], "embedded.codes")
        codes = nodes.add("Cast", [codes], "embedded.float", to=TensorProto.FLOAT)
        scales = nodes.add("Gather", ["embedding.scales", "token_ids"], "embedded.scales")
        scales = nodes.add("Unsqueeze", [scales, "axis_1"], "embedded.scales_column")
        return nodes.add("Mul", [codes, scales], "embedded")
    table, scales = writer.describe_as_table("embedding", embedding)
    return nodes.add(
        "GatherBlockQuantized",
        [table, "token_ids", scales],
        "embedded",
        CONTRIB,
        bits=recipe.bits,
        block_size=recipe.block_size,
        gather_axis=0,
        quantize_axis=1,
    )


def _vocabulary_matrices(checkpoint: Checkpoint) -> tuple[Matrix, Matrix]:
    """(embedding, head), the same object if the model ties them.

    A GGUF of a tied model often stores the head a second time with more bits. The two are then told from truly untied
    ones by their values, and the head, the finer copy, serves as both.
    """
    config = checkpoint.config
    embedding = matrix(checkpoint, (("embedding", config.vocab_size),), config.hidden_size)
    if checkpoint.find("head") is None:
        return embedding, embedding
    head = matrix(checkpoint, (("head", config.vocab_size),), config.hidden_size)
    sample = range(0, config.vocab_size, max(config.vocab_size // 64, 1))
    one, two = (np.concatenate([m.rows(row, row + 1) for row in sample]) for m in (embedding, head))
    if np.linalg.norm(one - two) < 0.2 * np.linalg.norm(two):  # 4-bit rounding moves a row by about 0.1
        return head, head
    return embedding, head


def _add_constants(weight_file: WeightFile, config: DecoderConfig) -> None:
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    positions = np.arange(config.max_positions + PADDING_POSITIONS)
    angles = np.outer(positions, config.rope_theta**-exponents)
    constants = {
        "rotary_cos": np.cos(angles).astype(np.float32),
        "rotary_sin": np.sin(angles).astype(np.float32),
        "shape_flat": np.array([-1], np.int64),
        "axis_0": np.array([0], np.int64),
        "axis_1": np.array([1], np.int64),
        "axis_last": np.array([-1], np.int64),
        "tiny": np.array(1e-30, np.float32),
        "unit_scale": np.array(1 / 127, np.float32),
        "unit_zero": np.array(128, np.uint8),
    }
    for name, array in constants.items():
        weight_file.add(name, array)


def _inputs(config: DecoderConfig, names: TensorNames) -> list[onnx.ValueInfoProto]:
    inputs = [
        helper.make_tensor_value_info(names.input_ids, TensorProto.INT64, [1, "num_new"]),
        helper.make_tensor_value_info(names.logits_rows, TensorProto.INT64, ["num_logits"]),
        helper.make_tensor_value_info(names.seqlens_k, TensorProto.INT32, [1]),
        helper.make_tensor_value_info(names.total_sequence_length, TensorProto.INT32, []),
    ]
    return inputs + _caches(config, names.past_key, names.past_value)


def _outputs(config: DecoderConfig, names: TensorNames) -> list[onnx.ValueInfoProto]:
    logits = helper.make_tensor_value_info(names.logits, TensorProto.FLOAT, ["num_logits", config.vocab_size])
    return [logits, *_caches(config, names.present_key, names.present_value)]


def _caches(config: DecoderConfig, *templates: str) -> list[onnx.ValueInfoProto]:
    shape = [1, config.num_kv_heads, "capacity", config.head_dim]
    return [
        helper.make_tensor_value_info(template.format(layer=layer), TensorProto.FLOAT, shape)
        for layer in range(config.num_layers)
        for template in templates
    ]
