"""Files with which onnxruntime-genai runs the models of a bundle: a second graph over the same weights, and settings.

onnxruntime-genai gives a graph `attention_mask`, and takes the logits of one token as (1, 1, V). The second graph
derives the lengths and the asked-for row of the first from these; it refers to the first one's data file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from pilotfish.export.passes import drop_unused
from pilotfish.export.products import Nodes
from pilotfish.runtime.bundle import Manifest, ModelEntry, TokenizerEntry
from pilotfish.runtime.engine import DEFAULT_CONTEXT_LENGTH

GRAPH, CONFIG, TOKENIZER_CONFIG = "genai.onnx", "genai_config.json", "tokenizer_config.json"
MASK = "attention_mask"
_PREFIX = "genai"  # of the names that the first graph has not
_ZERO, _ONE = f"{_PREFIX}.zero", f"{_PREFIX}.one"


def write_genai(bundle: Path, manifest: Manifest, texts: Sequence[str | None]) -> None:
    """Adds the files to a bundle folder whose graphs and tokenizer are written; `texts` are the tokens' by id.

    onnxruntime-genai finds the target in the bundle's own folder, beside the tokenizer, and the draft in `draft/`. A
    draft that is made of the target's layers, or has a trimmed head, is left out: alone it is no model.
    """
    for role, model in manifest.models.items():
        if model.head_ids is not None or Path(model.graph).parts[0] != role:
            continue
        graph = bundle / model.graph
        model_proto = onnx.load(graph, load_external_data=False)
        graph.with_name(GRAPH).write_bytes(masked(model_proto, model).SerializeToString())
        is_target = role == "target"
        config = _config(model, manifest.tokenizer, texts, f"target/{GRAPH}" if is_target else GRAPH)
        _write(bundle / CONFIG if is_target else graph.with_name(CONFIG), config)
    _write(bundle / TOKENIZER_CONFIG, _tokenizer_config(manifest.tokenizer))


def masked(model: onnx.ModelProto, entry: ModelEntry) -> onnx.ModelProto:
    """The graph with `attention_mask`, int64 (1, tokens cached and new), and logits (1, 1, V) of the last token."""
    names, graph = entry.tensors, model.graph
    row = f"{_PREFIX}.logits"
    for node in graph.node:
        if names.logits in node.output:
            node.name, node.output[:] = row, [row if name == names.logits else name for name in node.output]
    batched = helper.make_node("Unsqueeze", [row, _ZERO], [names.logits], f"{_PREFIX}.batched")
    heads = {names.largest_logits, names.largest_ids, names.log_sum_exp, names.next_id}
    derived = {names.logits_rows, names.seqlens_k, names.total_sequence_length}
    inputs = [value for value in graph.input if value.name not in derived]
    mask = helper.make_tensor_value_info(MASK, TensorProto.INT64, [1, "num_total"])
    logits = helper.make_tensor_value_info(names.logits, TensorProto.FLOAT, [1, 1, entry.vocab_size])
    constants = [numpy_helper.from_array(np.array([value]), name) for name, value in ((_ZERO, 0), (_ONE, 1))]
    result = onnx.ModelProto()
    result.CopyFrom(model)
    result.graph.CopyFrom(
        helper.make_graph(
            [*_lengths(entry), *graph.node, batched],
            graph.name,
            [inputs[0], mask, *inputs[1:]],
            [logits if value.name == names.logits else value for value in graph.output if value.name not in heads],
            [*graph.initializer, *constants],
        )
    )
    drop_unused(result.graph)  # what computed the heads
    return result


def _lengths(entry: ModelEntry) -> list[onnx.NodeProto]:
    """The nodes that give the three inputs which are left out."""
    names, nodes = entry.tensors, Nodes()
    width = nodes.add("Shape", [names.input_ids], f"{_PREFIX}.num_new", start=1, end=2)
    nodes.add("Sub", [width, _ONE], names.logits_rows)
    total = nodes.add("ReduceSum", [MASK, _ONE], f"{_PREFIX}.num_total", keepdims=0)
    last = nodes.add("Sub", [total, _ONE], f"{_PREFIX}.last")
    nodes.add("Cast", [last], names.seqlens_k, to=TensorProto.INT32)
    scalar = nodes.add("Squeeze", [total, _ZERO], f"{_PREFIX}.total")
    nodes.add("Cast", [scalar], names.total_sequence_length, to=TensorProto.INT32)
    return nodes.protos


def _config(model: ModelEntry, tokenizer: TokenizerEntry, texts: Sequence[str | None], graph: str) -> dict[str, Any]:
    names = model.tensors
    ends = list(tokenizer.end_token_ids)
    padding = ends[0] if ends else 0
    bos = tokenizer.bos_token
    decoder = {
        "session_options": {"provider_options": []},
        "filename": graph,
        "head_size": model.head_dim,
        "num_hidden_layers": model.num_layers,
        "num_key_value_heads": model.num_kv_heads,
        "inputs": {
            "input_ids": names.input_ids,
            "attention_mask": MASK,
            "past_key_names": names.past_key.format(layer="%d"),
            "past_value_names": names.past_value.format(layer="%d"),
        },
        "outputs": {
            "logits": names.logits,
            "present_key_names": names.present_key.format(layer="%d"),
            "present_value_names": names.present_value.format(layer="%d"),
        },
    }
    return {
        "model": {
            "type": "llama",  # a decoder of whatever family: the graph says all else
            "bos_token_id": texts.index(bos) if bos and bos in texts else padding,
            "eos_token_id": ends,
            "pad_token_id": padding,
            "vocab_size": model.vocab_size,
            "context_length": model.max_positions,
            "decoder": decoder,
        },
        "search": {
            "do_sample": False,
            "max_length": min(model.max_positions, DEFAULT_CONTEXT_LENGTH),
            "past_present_share_buffer": True,
        },
    }


def _tokenizer_config(tokenizer: TokenizerEntry) -> dict[str, Any]:
    values = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": tokenizer.add_bos,
        "bos_token": tokenizer.bos_token,
        "eos_token": tokenizer.eos_token,
    }
    return {key: value for key, value in values.items() if value is not None}


def _write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
