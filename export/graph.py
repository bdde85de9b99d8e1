"""Builds the ONNX decoder of a llama-like model, streaming its weights from the checkpoint to the data file.

Hidden states flow as (N new tokens, hidden size); only the attention sees the batch axis of 1. The graph computes the
logits of the rows that `logits_rows` asks for, and reads and writes each cache in place; `runtime/bundle.py` has the
names of its inputs and outputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from pilotfish.export.checkpoint import Checkpoint
from pilotfish.export.llama import ACTIVATIONS, DecoderConfig
from pilotfish.export.products import CONSTANTS, CONTRIB, Nodes, add_embedding, add_product
from pilotfish.export.quantize import Recipe
from pilotfish.export.weight_file import WeightFile
from pilotfish.export.weights import Matrix, Progress, WeightWriter, matrix, multiplied
from pilotfish.runtime.bundle import TensorNames
from pilotfish.runtime.bus import ELEMENT_TYPES

OPSET, IR_VERSION = 21, 10
PADDING_POSITIONS = 64  # a forward at the very end of the context may be padded with dummy tokens


def build_decoder(
    checkpoint: Checkpoint, recipe: Recipe, directory: Path, progress: Progress = lambda num_weights: None
) -> str:
    """Writes `model.onnx` and `model.onnx.data` into `directory`; returns the data file's sha256.

    `progress` is called with the number of weight elements finished since the last call. Raises `CheckpointError` if a
    weight is missing or has another shape than the configuration says.
    """
    with WeightFile(directory / "model.onnx.data") as weight_file:
        graph = _DecoderGraph(checkpoint, WeightWriter(weight_file, recipe, progress))
        graph.build()
        initializers, digest = weight_file.initializers, weight_file.sha256
    element_type = ELEMENT_TYPES[recipe.floats]
    inputs, outputs = _inputs(checkpoint.config, element_type), _outputs(checkpoint.config, element_type)
    proto = helper.make_graph(graph.nodes.protos, "decoder", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
    model = helper.make_model(proto, opset_imports=opsets, ir_version=IR_VERSION, producer_name="pilotfish")
    (directory / "model.onnx").write_bytes(model.SerializeToString())
    return digest


class _DecoderGraph:
    """The nodes of one decoder, added in the order in which they run, each weight written as its node is added."""

    def __init__(self, checkpoint: Checkpoint, writer: WeightWriter) -> None:
        self.nodes = Nodes()
        self._checkpoint, self._config, self._writer = checkpoint, checkpoint.config, writer
        self._names = TensorNames()

    def build(self) -> None:
        _add_constants(self._writer, self._config)
        embedding, head = vocabulary_matrices(self._checkpoint)
        self.nodes.add("Reshape", [self._names.input_ids, "shape_flat"], "token_ids")
        hidden, delta = add_embedding(self.nodes, self._writer, embedding), ""
        if self._config.embedding_multiplier != 1:
            hidden = self.nodes.add("Mul", [hidden, "embedding_multiplier"], "embedded.multiplied")
        for layer in range(self._config.num_layers):
            hidden, delta = self._layer(layer, hidden, delta)
        hidden = self.nodes.add("Gather", [hidden, self._names.logits_rows], "asked.hidden")
        delta = self.nodes.add("Gather", [delta, self._names.logits_rows], "asked.delta")
        # The head is linear, so what divides the logits may divide the weights of the norm before it.
        normed, _ = self._norm("norm", -1, hidden, delta, self._config.logits_divisor)
        if head is not embedding:
            self._writer.write("head", head)
        elif self._checkpoint.find("head"):
            self._writer.progress(head.num_rows * head.num_columns)  # the second copy needs no work
        name = "embedding" if head is embedding else "head"
        self._logits(name, normed, head)

    def _logits(self, name: str, normed: str, head: Matrix) -> None:
        """The logits in float32, whatever the recipe computes with."""
        recipe, logits = self._writer.recipe, self._names.logits
        if recipe.floats == "float32":
            add_product(self.nodes, recipe, name, normed, logits, head)
        else:
            narrow = add_product(self.nodes, recipe, name, normed, f"{logits}.narrow", head)
            self.nodes.add("Cast", [narrow], logits, to=TensorProto.FLOAT)

    def _layer(self, layer: int, hidden: str, delta: str) -> tuple[str, str]:
        """One transformer block; `delta` is what the block before it adds to `hidden`."""
        config, prefix = self._config, f"layer{layer}"
        normed, hidden = self._norm("attention_norm", layer, hidden, delta)
        qkv = self._projection("qkv", config.qkv_parts, layer, normed)
        attended = self._attention(layer, qkv)
        delta = self._projection("o", (("o", config.hidden_size),), layer, attended)

        normed, hidden = self._norm("mlp_norm", layer, hidden, delta)
        gate_up = self._projection("gate_up", config.gate_up_parts, layer, normed)
        gate, up = f"{prefix}.gate", f"{prefix}.up"
        self.nodes.add("Split", [gate_up], gate, up, axis=-1, num_outputs=2)
        op, domain, attributes = ACTIVATIONS[config.activation]
        active = self.nodes.add(op, [gate], f"{prefix}.{config.activation}", domain=domain, **attributes)
        product = self.nodes.add("Mul", [active, up], f"{prefix}.gated")
        return hidden, self._projection("down", (("down", config.hidden_size),), layer, product)

    def _attention(self, layer: int, qkv: str) -> str:
        names, config, prefix = self._names, self._config, f"layer{layer}"
        past = [names.past_key.format(layer=layer), names.past_value.format(layer=layer)]
        present = [names.present_key.format(layer=layer), names.present_value.format(layer=layer)]
        if config.qk_norm:
            q, k, v = self._normed_heads(layer, qkv)
        else:
            q, k, v = self.nodes.add("Unsqueeze", [qkv, "axis_0"], f"{prefix}.qkv_batched"), "", ""
        rotates = layer not in config.unrotated_layers
        attributes: dict[str, int | float] = {"do_rotary": int(rotates)}
        if (window := config.window(layer)) is not None:
            attributes["local_window_size"] = window
        if config.attention_scale is not None:
            attributes["scale"] = config.attention_scale
        attended = self.nodes.add(
            "GroupQueryAttention",
            [q, k, v, *past, names.seqlens_k, names.total_sequence_length]
            + (["rotary_cos", "rotary_sin"] if rotates else []),
            f"{prefix}.attended_batched",
            *present,
            domain=CONTRIB,
            num_heads=config.num_heads,
            kv_num_heads=config.num_kv_heads,
            rotary_interleaved=int(config.rope.interleaved),
            **attributes,
        )
        return self.nodes.add("Squeeze", [attended, "axis_0"], f"{prefix}.attended")

    def _normed_heads(self, layer: int, qkv: str) -> tuple[str, str, str]:
        """q, k and v apart, each (1, N, heads · head_dim), with every head of q and k normalized by itself."""
        prefix = f"layer{layer}"
        parts = [f"{prefix}.{part}" for part in ("q", "k", "v")]
        self.nodes.add("Split", [qkv, "qkv_sizes"], *parts, axis=-1)
        for number, part in enumerate(("q", "k")):
            stem = f"{part}_norm"
            tensor = self._checkpoint.get(stem, (self._config.head_dim,), layer)
            weight = self._writer.add_floats(f"{prefix}.{stem}.weight", tensor.read())
            by_head = self.nodes.add("Reshape", [parts[number], f"shape_{part}_heads"], f"{prefix}.{part}_heads")
            normed = self._rms_norm(by_head, weight, f"{prefix}.{stem}.out")
            parts[number] = self.nodes.add("Reshape", [normed, f"shape_{part}"], f"{prefix}.{part}_batched")
        return parts[0], parts[1], self.nodes.add("Unsqueeze", [parts[2], "axis_0"], f"{prefix}.v_batched")

    def _norm(self, stem: str, layer: int, hidden: str, delta: str, divisor: float = 1.0) -> tuple[str, str]:
        """RMS norm of hidden + delta; returns (normed, hidden + delta). The first layer has no delta yet."""
        prefix = f"layer{layer}.{stem}" if layer >= 0 else stem
        weight, epsilon = f"{prefix}.weight", self._config.rms_norm_eps
        tensor = self._checkpoint.get(stem, (self._config.hidden_size,), layer)
        self._writer.add_floats(weight, tensor.read() / np.float32(divisor))
        output = f"{prefix}.out"
        if not delta:
            return self._rms_norm(hidden, weight, output), hidden
        inputs, total = [hidden, delta, weight], f"{prefix}.sum"
        self.nodes.add(
            "SkipSimplifiedLayerNormalization", inputs, output, "", "", total, domain=CONTRIB, epsilon=epsilon
        )
        return output, total

    def _rms_norm(self, source: str, weight: str, output: str) -> str:
        epsilon = self._config.rms_norm_eps
        return self.nodes.add(
            "SimplifiedLayerNormalization", [source, weight], output, axis=-1, epsilon=epsilon, stash_type=1
        )

    def _projection(self, stem: str, parts: tuple[tuple[str, int], ...], layer: int, source: str) -> str:
        """Writes the parts as one matrix and multiplies by it."""
        num_columns = {"o": self._config.num_heads * self._config.head_dim, "down": self._config.intermediate_size}
        weights = matrix(self._checkpoint, parts, num_columns.get(stem, self._config.hidden_size), layer)
        if stem in num_columns:  # what a block adds to the hidden states
            weights = multiplied(weights, self._config.residual_multiplier)
        name = f"layer{layer}.{stem}"
        self._writer.write(name, weights)
        return add_product(self.nodes, self._writer.recipe, name, source, f"{name}.out", weights)


def vocabulary_matrices(checkpoint: Checkpoint) -> tuple[Matrix, Matrix]:
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
    one, two = (np.concatenate([m.parts[0].rows(row, row + 1) for row in sample]) for m in (embedding, head))
    if np.linalg.norm(one - two) < 0.2 * np.linalg.norm(two):  # 4-bit rounding moves a row by about 0.1
        return head, head
    return embedding, head


def _add_constants(writer: WeightWriter, config: DecoderConfig) -> None:
    cos, sin = config.rope.tables(config.max_positions + PADDING_POSITIONS)
    writer.add_floats("rotary_cos", cos)
    writer.add_floats("rotary_sin", sin)
    if config.embedding_multiplier != 1:
        writer.add_floats("embedding_multiplier", np.array(config.embedding_multiplier, np.float32))
    constants: dict[str, NDArray[Any]] = dict(CONSTANTS)
    if config.qk_norm:
        heads = np.array([config.num_heads, config.num_kv_heads, config.num_kv_heads])
        constants["qkv_sizes"] = heads * config.head_dim
        for part, num_heads in (("q", config.num_heads), ("k", config.num_kv_heads)):
            constants[f"shape_{part}_heads"] = np.array([-1, num_heads, config.head_dim])
            constants[f"shape_{part}"] = np.array([1, -1, num_heads * config.head_dim])
    for name, array in constants.items():
        writer.file.add(name, array)


def _inputs(config: DecoderConfig, element_type: int) -> list[onnx.ValueInfoProto]:
    names = TensorNames()
    return [
        helper.make_tensor_value_info(names.input_ids, TensorProto.INT64, [1, "num_new"]),
        helper.make_tensor_value_info(names.logits_rows, TensorProto.INT64, ["num_logits"]),
        helper.make_tensor_value_info(names.seqlens_k, TensorProto.INT32, [1]),
        helper.make_tensor_value_info(names.total_sequence_length, TensorProto.INT32, []),
        *_caches(config, element_type, names.past_key, names.past_value),
    ]


def _outputs(config: DecoderConfig, element_type: int) -> list[onnx.ValueInfoProto]:
    names = TensorNames()
    logits = helper.make_tensor_value_info(names.logits, TensorProto.FLOAT, ["num_logits", config.vocab_size])
    return [logits, *_caches(config, element_type, names.present_key, names.present_value)]


def _caches(config: DecoderConfig, element_type: int, *templates: str) -> list[onnx.ValueInfoProto]:
    shape = [1, config.num_kv_heads, "capacity", config.head_dim]
    return [
        helper.make_tensor_value_info(template.format(layer=layer), element_type, shape)
        for layer in range(config.num_layers)
        for template in templates
    ]
