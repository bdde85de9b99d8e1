"""Heads: what a round mostly needs of a row of logits, computed where the logits are.

A row of 150,000 logits is over half a megabyte. Greedy decoding and top-k sampling ask only for its largest, so that a
GPU need not send the rest. A draft that writes on greedily needs the id of the most likely token only, and that can
stay there too.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from pilotfish.export.products import Nodes
from pilotfish.runtime.bundle import TensorNames

MAX_LARGEST = 64  # more than any usual top-k


def write_heads(
    graph_path: Path, num_ids: int, head_ids: NDArray[np.int64] | None = None
) -> tuple[str, int]:  # fmt: skip
    """Writes the graph once more, with outputs for the largest logits of each row, their ids, and log Σ exp over it.

    A further one is the id of the most likely token of the last row, int64 (1, 1). All are over the first `num_ids` of
    the vocabulary, the ones that the tokenizer knows; a head trimmed to `head_ids` has no others, and the first outputs
    then give its columns, the last one an id.

    Returns the name of the file, which lies beside the graph and reads the same weights, and how many are the largest.
    It is a file of its own since ONNX Runtime computes what a graph gives, fetched or not: on the CPU, where whole rows
    cost nothing to send, that would be a twentieth of a small draft's pass.
    """
    model = onnx.load(graph_path, load_external_data=False)
    names, nodes, graph = TensorNames(), Nodes(), model.graph
    (logits,) = (value for value in graph.output if value.name == names.logits)
    num_ids = min(num_ids, logits.type.tensor_type.shape.dim[-1].dim_value)
    num_largest = min(MAX_LARGEST, num_ids)
    constants = {
        "heads.start": 0, "heads.num_ids": num_ids, "heads.axis": 1, "heads.num_largest": num_largest,
        "heads.last": -1, "heads.end": np.iinfo(np.int64).max, "heads.rows": 0,
    }  # fmt: skip
    graph.initializer.extend(numpy_helper.from_array(np.array([value]), name) for name, value in constants.items())
    nodes.add("Slice", [names.logits, "heads.start", "heads.num_ids", "heads.axis"], "heads.logits")
    nodes.add("TopK", ["heads.logits", "heads.num_largest"], names.largest_logits, names.largest_ids)
    nodes.add("ReduceLogSumExp", ["heads.logits", "heads.axis"], names.log_sum_exp, keepdims=0)
    nodes.add("Slice", ["heads.logits", "heads.last", "heads.end", "heads.rows"], "heads.last_logits")
    column = names.next_id if head_ids is None else "heads.next_column"
    nodes.add("ArgMax", ["heads.last_logits"], column, axis=1, keepdims=1)
    if head_ids is not None:
        graph.initializer.append(numpy_helper.from_array(head_ids, "heads.ids"))
        nodes.add("Gather", ["heads.ids", column], names.next_id)
    graph.node.extend(nodes.protos)
    for name, element_type, shape in (
        (names.largest_logits, TensorProto.FLOAT, ["num_logits", num_largest]),
        (names.largest_ids, TensorProto.INT64, ["num_logits", num_largest]),
        (names.log_sum_exp, TensorProto.FLOAT, ["num_logits"]),
        (names.next_id, TensorProto.INT64, [1, 1]),
    ):
        graph.output.append(helper.make_tensor_value_info(name, element_type, shape))
    heads_path = graph_path.with_suffix(".heads.onnx")
    heads_path.write_bytes(model.SerializeToString())
    return heads_path.name, num_largest
