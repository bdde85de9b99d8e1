"""Matrix products of the recipes that round activations, run by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from pilotfish.export.checkpoint import Tensor
from pilotfish.export.graph import IR_VERSION, OPSET
from pilotfish.export.products import CONSTANTS, CONTRIB, Nodes, add_product
from pilotfish.export.quantize import parse_recipe, quantize_rows
from pilotfish.export.weight_file import WeightFile
from pilotfish.export.weights import Matrix, WeightWriter

Floats = NDArray[np.float32]


def product(recipe: str, activations: Floats, weights: Floats, folder: Path) -> Floats:
    """activations (N, K) · weights (R, K)ᵀ as a graph of the recipe computes it: (N, R)."""
    tensor = Tensor("weights", weights.shape, lambda start, stop: weights[start:stop].copy())
    matrix, nodes = Matrix((tensor,), (None,), weights.shape[1]), Nodes()
    folder.mkdir()
    with WeightFile(folder / "model.onnx.data") as file:
        for name, array in CONSTANTS.items():
            file.add(name, array)
        WeightWriter(file, parse_recipe(recipe), lambda num_weights: None).write("weights", matrix)
        add_product(nodes, parse_recipe(recipe), "weights", "activations", "output", matrix)
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("activations", activations.shape), ("output", (len(activations), len(weights))))
        ]
        graph = helper.make_graph(nodes.protos, "product", values[:1], values[1:], file.initializers)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"activations": activations})[0]


@pytest.mark.parametrize("num_tokens", [1, 5])
def test_two_parts_keep_activations_beside_an_outlier(num_tokens: int, tmp_path: Path):
    """An activation a thousand times the others leaves those hardly a code in 8 bits; in 15 it is 128 times finer."""
    rng = np.random.default_rng(0)
    activations = rng.normal(size=(num_tokens, 64)).astype(np.float32)
    activations[:, 3] *= 1000
    weights = rng.normal(size=(48, 64)).astype(np.float32)
    codes, scales = quantize_rows(weights)
    exact = activations.astype(np.float64) @ (codes * scales[:, None].astype(np.float64)).T
    coarse, fine = (
        np.abs(product(recipe, activations, weights, tmp_path / recipe) - exact).mean() for recipe in ("w8a8", "w8a16")
    )
    assert fine < coarse / 64
    assert fine < 1e-4 * np.abs(exact).max()
