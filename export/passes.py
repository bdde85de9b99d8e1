"""Passes over a traced graph, none of which knows an architecture: constants in, shape arithmetic out, norms fused.

Matrices are no part of the graph yet but inputs of it, so no pass ever holds or copies one.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from pilotfish.runtime.session import import_onnxruntime

logger = logging.getLogger(__name__)

CONTRIB = "com.microsoft"
Dims = tuple[int | str, ...]

# Fusions into operators that only the CPU has, or that hide a product from the rewriting that follows.
UNWANTED_FUSIONS = ["GemmActivationFusion", "MatMulScaleFusion", "MatmulTransposeFusion", "MatMulActivationFusion"]


def tidy(model: onnx.ModelProto, weights: Mapping[str, NDArray[Any]]) -> onnx.ModelProto:
    """All passes in order. `weights` are arrays by input name; those with two axes or more stay inputs."""
    inline(model.graph, {name: array for name, array in weights.items() if array.ndim < 2})
    fold_shapes(model)
    drop_unused(model.graph)
    model = optimized(model)
    fuse_skip_norms(model)
    drop_unused(model.graph)
    return model


def inline(graph: onnx.GraphProto, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Turns the inputs named in `arrays` into initializers, in place."""
    kept = [value for value in graph.input if value.name not in arrays]
    inlined = [value.name for value in graph.input if value.name in arrays]
    graph.initializer.extend(numpy_helper.from_array(arrays[name], name) for name in inlined)
    del graph.input[:]
    graph.input.extend(kept)


def unstack(graph: onnx.GraphProto, weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Makes each matrix that is taken from a stack of weights an input of its own, in place; returns them, as views."""
    constants, taken = _constants(graph), dict[str, NDArray[Any]]()
    for node in graph.node:
        stack = weights.get(node.input[0]) if node.op_type == "Gather" and attribute(node, "axis", 0) == 0 else None
        index = constants.get(node.input[1]) if stack is not None and stack.ndim == 3 else None
        if stack is not None and index is not None and index.ndim == 0:
            name = f"{node.input[0]}.{index}"
            taken[name] = stack[int(index)]
            _forward(node, name)
    graph.input.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape) for name, array in taken.items()
    )
    return taken


def drop_unused(graph: onnx.GraphProto) -> None:
    """Drops nodes and initializers that no output depends on, in place."""
    wanted, nodes = {value.name for value in graph.output}, []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            wanted.update(filter(None, node.input))  # an input left out has no name, as an output left out has none
            nodes.append(node)
    initializers = [tensor for tensor in graph.initializer if tensor.name in wanted]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(reversed(nodes))
    graph.initializer.extend(initializers)


def fold_shapes(model: onnx.ModelProto) -> None:
    """Replaces computed shapes by constants as far as the axes they describe are constant, in place."""
    dims, constants = infer_dims(model), _constants(model.graph)
    producers = {output: node for node in model.graph.node for output in node.output}
    for node in model.graph.node:
        source = producers.get(node.input[0]) if node.input else None
        if node.op_type == "Reshape":
            if source is not None and source.op_type == "Reshape":
                node.input[0] = source.input[0]
            _fix_reshape(model.graph, node, dims, constants)
        elif node.op_type == "Expand" and _is_same(dims, node):
            _forward(node, node.input[0])
        elif node.op_type == "Gather" and source is not None and source.op_type == "Shape" and not source.attribute:
            shape, index = dims.get(source.input[0]), constants.get(node.input[1])
            if shape is not None and index is not None and index.ndim == 0 and isinstance(dim := shape[index], int):
                _forward(node, _add_constant(model.graph, f"{node.output[0]}.dim", np.array(dim, np.int64)))


def _fix_reshape(
    graph: onnx.GraphProto, node: onnx.NodeProto, dims: Mapping[str, Dims], constants: Mapping[str, NDArray[Any]]
) -> None:
    shape = dims.get(node.output[0])
    if shape is None or sum(isinstance(dim, str) for dim in shape) > 1:
        return
    if _is_same(dims, node):
        _forward(node, node.input[0])
    elif node.input[1] not in constants or 0 in constants[node.input[1]]:
        fixed = [-1 if isinstance(dim, str) else dim for dim in shape]
        node.input[1] = _add_constant(graph, f"{node.output[0]}.shape", np.array(fixed, np.int64))


def _is_same(dims: Mapping[str, Dims], node: onnx.NodeProto) -> bool:
    before, after = dims.get(node.input[0]), dims.get(node.output[0])
    return before is not None and before == after


def _forward(node: onnx.NodeProto, source: str) -> None:
    """Makes `node` pass `source` on as it is, in place."""
    node.CopyFrom(helper.make_node("Identity", [source], node.output, node.name))


def infer_dims(model: onnx.ModelProto) -> dict[str, Dims]:
    """The axes of every tensor whose rank is known, an axis of no constant extent by a name."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    try:
        graph = SymbolicShapeInference.infer_shapes(model, auto_merge=True).graph
    except Exception:  # it asserts what some models' shape arithmetic does not fulfil
        logger.debug("shapes are inferred without symbols", exc_info=True)
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    values = [*graph.value_info, *graph.input, *graph.output]
    dims = {value.name: _dims(value) for value in values if value.type.tensor_type.HasField("shape")}
    return dims | {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}


def optimized(model: onnx.ModelProto) -> onnx.ModelProto:
    """What ONNX Runtime makes of the graph for no device in particular: constants folded, activations, norms fused."""
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        options.optimized_model_filepath = str(path)
        ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"],
            disabled_optimizers=UNWANTED_FUSIONS,
        )  # fmt: skip
        result = onnx.load(path)
    opsets = [opset for opset in result.opset_import if opset.domain in ("", CONTRIB)]
    del result.opset_import[:]
    result.opset_import.extend(opsets)
    _drop_defaults(model.graph, result.graph)
    return result


def _drop_defaults(before: onnx.GraphProto, after: onnx.GraphProto) -> None:
    """Drops the attributes that ONNX Runtime filled in, in place: an older release may not know all of them."""
    given = {node.output[1]: {item.name for item in node.attribute} for node in before.node if _is_attention(node)}
    for node in filter(_is_attention, after.node):
        kept = [item for item in node.attribute if item.name in given[node.output[1]]]
        del node.attribute[:]
        node.attribute.extend(kept)


def _is_attention(node: onnx.NodeProto) -> bool:
    return str(node.op_type) == "GroupQueryAttention"


def fuse_skip_norms(model: onnx.ModelProto) -> None:
    """Makes each addition and the RMS norm behind it one node, in place."""
    graph, dims = model.graph, infer_dims(model)
    constants = {tensor.name for tensor in graph.initializer}
    norms = {node.input[0]: node for node in reversed(graph.node) if node.op_type == "SimplifiedLayerNormalization"}
    nodes, dropped = [], set()
    for node in graph.node:
        norm = norms.get(node.output[0]) if node.op_type == "Add" else None
        if norm is not None and norm.input[1] in constants and _is_skip(node, norm, dims):
            epsilon = attribute(norm, "epsilon", 1e-5)
            dropped.add(norm.output[0])
            node = helper.make_node(
                "SkipSimplifiedLayerNormalization", [*node.input, norm.input[1]],
                [norm.output[0], "", "", node.output[0]], norm.name, domain=CONTRIB, epsilon=epsilon,
            )  # fmt: skip
        elif node.output[0] in dropped:
            continue
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _is_skip(addition: onnx.NodeProto, norm: onnx.NodeProto, dims: Mapping[str, Dims]) -> bool:
    one, two = (dims.get(name) for name in addition.input)
    return one is not None and len(one) == 3 and one == two and attribute(norm, "axis", -1) in (-1, 2)


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """The value of the attribute `name`, or `default`."""
    return next((helper.get_attribute_value(item) for item in node.attribute if item.name == name), default)


def _constants(graph: onnx.GraphProto) -> dict[str, NDArray[Any]]:
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return constants


def _add_constant(graph: onnx.GraphProto, name: str, value: NDArray[Any]) -> str:
    graph.initializer.append(numpy_helper.from_array(value, name))
    return name


def _dims(value: onnx.ValueInfoProto) -> Dims:
    shape = value.type.tensor_type.shape.dim
    return tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}.{i}"
                 for i, dim in enumerate(shape))  # fmt: skip
