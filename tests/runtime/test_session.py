"""What a session must do with a graph, whatever the processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pilotfish import runtime as pilotfish
from pilotfish.runtime.session import open_session


@pytest.mark.parametrize("num_rows", [1, 2, 5])
def test_products_of_8_bits_do_not_saturate(tmp_path: Path, num_rows: int):
    """Pairs of the largest products exceed 16 bits, in which processors without VNNI add them up by default."""
    weights = np.full((8, 64), 127, np.int8)
    weights[1::2] = -127
    names = ("activations", "scale", "zero", "weights", "weight_scales", "weight_zeros", "", "", "")
    node = helper.make_node("QGemm", names, ["output"], domain="com.microsoft", transB=1)
    constants = {
        "scale": np.array(1, np.float32),
        "zero": np.array(128, np.uint8),
        "weights": weights,
        "weight_scales": np.ones(8, np.float32),
        "weight_zeros": np.zeros(8, np.int8),
    }
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("activations", TensorProto.UINT8, ["rows", 64])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["rows", 8])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "product.onnx")

    activations = np.full((num_rows, 64), 255, np.uint8)
    (output,) = open_session(tmp_path / "product.onnx", "cpu").run(None, {"activations": activations})
    exact = (activations.astype(np.int64) - 128) @ weights.T.astype(np.int64)
    np.testing.assert_array_equal(output, exact)


def test_threads_wait_busily_in_a_pass_and_not_between_two(bundle_path: Path):
    """Draft and target take turns on the same cores; idle threads of the one that went on waiting slow the other."""
    with pilotfish.load(bundle_path) as engine:
        for decoder in engine._context.decoders.values():
            options = decoder._session.get_session_options()
            assert options.get_session_config_entry("session.intra_op.allow_spinning") == "1"
            assert options.get_session_config_entry("session.force_spinning_stop") == "1"
