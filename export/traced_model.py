"""Traces a transformers model into an ONNX graph that keeps the decoder's contract and holds no weights.

The weights are inputs of the graph, named as in the model's state, so a trace costs no memory for them. See
`runtime/bundle.py` for the other inputs and the outputs.
"""

from __future__ import annotations

import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import onnx
import optimum.exporters.onnx.model_configs  # noqa: F401 - registers the architectures
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from optimum.exporters.onnx.config import TextDecoderOnnxConfig
from optimum.exporters.onnx.model_patcher import ModelPatcher
from optimum.exporters.tasks import TasksManager
from optimum.utils import NormalizedTextConfig
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from pilotfish.export.passes import unstack
from pilotfish.export.traced_attention import GraphCache, attention_replaced
from pilotfish.export.traced_operators import operators_replaced
from pilotfish.runtime.bundle import TensorNames
from pilotfish.runtime.errors import CheckpointError

logger = logging.getLogger(__name__)

OPSET = 20
NUM_NEW, NUM_PAST, CAPACITY = 5, 7, 32  # of the traced example; no number of the graph may depend on them
RESCALED_BEYOND = ("dynamic", "longrope")  # rotary embeddings that change past the original number of positions

Shape = list[int | str]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Trace:
    """A traced model: its graph, its weights as views of the model's own memory, and the numbers of its contract."""

    graph: onnx.ModelProto
    weights: Mapping[str, NDArray[Any]]
    num_layers: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int


def read_config(folder: Path) -> PretrainedConfig:
    """The model's configuration; `CheckpointError` if transformers cannot read it or its weights are quantized."""
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder}: transformers cannot read config.json ({_first_line(error)})") from error
    if getattr(config, "quantization_config", None):
        raise CheckpointError(f"{folder}: the weights are quantized (quantization_config); give the original model")
    return cast(PretrainedConfig, config)


def load_model(folder: Path) -> PreTrainedModel:
    """The model in float32; `CheckpointError` if it is no causal language model with safetensors weights."""
    config = read_config(folder)
    attention = attention_for(config)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, attn_implementation=attention, output_loading_info=True,
            local_files_only=True, trust_remote_code=False, use_safetensors=True,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{folder}: transformers cannot load the model ({_first_line(error)})") from error
    (model, report), kind = loaded, config.model_type
    for fault in ("missing", "unexpected"):  # PyTorch would fill the former with random numbers
        if keys := sorted(report[f"{fault}_keys"]):
            raise CheckpointError(f"{folder}: {len(keys)} weights are {fault} in a {kind}, such as {keys[0]}")
    model.eval().float()  # some architectures keep a few parameters in bfloat16 whatever is asked for
    return cast(PreTrainedModel, model)


def attention_for(config: PretrainedConfig) -> str:
    """The attention to build the model with; `CheckpointError` if it is no causal language model.

    Models outside transformers' attention interface choose their code when they are built, and can be caught only in
    `scaled_dot_product_attention`.
    """
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise CheckpointError(
            f"{config.model_type} cannot be exported: transformers has no causal language model of it"
        )
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return "sdpa" if model_class._supports_sdpa else "eager"


def trace(model: PreTrainedModel) -> Trace:
    """Traces `model`; `CheckpointError` names the architecture and what keeps it from the contract.

    Where one node cannot do what the model's attention does, the attention is traced as it stands.
    """
    shape = _refusing(model, lambda: cache_shape(model))
    try:
        return _refusing(model, lambda: _trace(model, *shape, keeps_attention=False))
    except CheckpointError as refusal:
        try:
            traced = _refusing(model, lambda: _trace(model, *shape, keeps_attention=True))
        except CheckpointError:
            raise refusal from None
        logger.warning("attention stays in single operators, which is slower: otherwise %s", refusal)
        return traced


def _refusing(model: PreTrainedModel, step: Callable[[], Result]) -> Result:
    """What `step` gives; its errors become a `CheckpointError` that names the architecture."""
    refusal = f"{model.config.model_type} cannot be exported"
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about traced constants, whose correctness the gate decides by numbers
            return step()
    except CheckpointError as error:
        raise CheckpointError(f"{refusal}: {error}") from error
    except Exception as error:  # model code that tracing leads astray raises anything
        reason = f"tracing ends with {type(error).__name__} ({_first_line(error)})"
        raise CheckpointError(f"{refusal}: {reason}") from error


def _trace(
    model: PreTrainedModel, num_layers: int, num_kv_heads: int, head_dim: int, *, keeps_attention: bool
) -> Trace:
    max_positions = max_positions_of(model.config)
    names = TensorNames()
    pasts = [t.format(layer=i) for i in range(num_layers) for t in (names.past_key, names.past_value)]
    presents = [t.format(layer=i) for i in range(num_layers) for t in (names.present_key, names.present_value)]
    inputs = [names.input_ids, names.logits_rows, names.seqlens_k, names.total_sequence_length, *pasts]
    dynamic = {names.input_ids: {1: "num_new"}, names.logits_rows: {0: "num_logits"}}
    dynamic |= {past: {2: "capacity"} for past in pasts}
    file = io.BytesIO()
    patcher = _optimum_config(model).patch_model_for_export(model)
    with patcher, operators_replaced():
        contract = _Contract(model, patcher.orig_forward, max_positions, keeps_attention)
        torch.onnx.export(
            contract.eval(),  # the exporter restores the mode that it finds
            _example(num_layers, num_kv_heads, head_dim), file,  # type: ignore[arg-type]
            input_names=inputs, output_names=[names.logits, *presents], dynamic_axes=dynamic, opset_version=OPSET,
            export_params=False, do_constant_folding=False, dynamo=False,
        )  # fmt: skip
    graph = onnx.load_from_string(file.getvalue())
    weights = {f"model.{key}": tensor.detach().numpy() for key, tensor in model.state_dict().items()}
    weights |= unstack(graph.graph, weights)
    vocab_size = _head_of(model).weight.shape[0]
    _declare_shapes(graph.graph, num_layers, num_kv_heads, head_dim, vocab_size)
    return Trace(graph, weights, num_layers, num_kv_heads, head_dim, vocab_size, max_positions)


class _Contract(torch.nn.Module):
    """The model behind the inputs and outputs of the contract."""

    def __init__(self, model: PreTrainedModel, forward: Any, max_positions: int, keeps_attention: bool) -> None:
        super().__init__()
        self.model, self._forward, self._max_positions = model, forward, max_positions
        self._keeps_attention = keeps_attention
        self._takes = inspect.signature(forward).parameters

    def forward(
        self, input_ids: Tensor, logits_rows: Tensor, seqlens_k: Tensor, total_sequence_length: Tensor, *pasts: Tensor
    ) -> tuple[Tensor, ...]:
        num_new = input_ids.shape[1]
        positions = torch.arange(num_new) + (total_sequence_length.to(torch.int64) - num_new)
        # Dummy tokens behind the last real one may lie past the end of a table of positions.
        positions = positions.clamp(max=self._max_positions - 1)
        cache = GraphCache(pasts, seqlens_k, total_sequence_length, num_new, is_read=self._keeps_attention)
        arguments = {
            "position_ids": positions[None], "cache_position": positions, "past_key_values": cache,
            "use_cache": True, "logits_to_keep": logits_rows,
        }  # fmt: skip
        if "past_key_values" not in self._takes:
            raise CheckpointError("its forward takes no past_key_values")
        with attention_replaced(self.model, cache), self._asked_rows(logits_rows):
            output = self._forward(
                input_ids=input_ids, **{key: value for key, value in arguments.items() if key in self._takes}
            )
        if 2 * len(cache.presents) != len(pasts):
            num_layers, num_replaced = len(pasts) // 2, len(cache.presents)
            raise CheckpointError(
                "its attention is computed by code of its own, which cannot be replaced "
                f"({num_replaced} of {num_layers} layers could be)"
            )
        return output.logits[0], *(tensor for layer in sorted(cache.presents) for tensor in cache.presents[layer])

    @contextmanager
    def _asked_rows(self, logits_rows: Tensor) -> Iterator[None]:
        """Lets the head see only the asked-for rows of a model that cannot be told them."""
        if "logits_to_keep" in self._takes:
            yield
            return
        hook = _head_of(self.model).register_forward_pre_hook(lambda module, inputs: (inputs[0][:, logits_rows],))
        try:
            yield
        finally:
            hook.remove()


def cache_shape(model: PreTrainedModel) -> tuple[int, int, int]:
    """(number of layers, kv heads, head size rounded up to what the kernel needs), from what the model caches."""
    output = model(torch.zeros((1, 2), dtype=torch.int64), use_cache=True)
    try:
        shapes = [tuple(tensor.shape) for key, value in output.past_key_values for tensor in (key, value)]
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError("it keeps no cache of keys and values") from error
    if not shapes or any(len(shape) != 4 for shape in shapes):
        raise CheckpointError("it keeps no cache of keys and values by heads")
    if len(num_kv_heads := {shape[1] for shape in shapes}) > 1:
        raise CheckpointError(f"its layers differ in their number of kv heads, {sorted(num_kv_heads)}")
    head_dim = max(shape[3] for shape in shapes)
    return len(shapes) // 2, num_kv_heads.pop(), -(-head_dim // 8) * 8


def multiplies_experts_at_once(model: PreTrainedModel) -> bool:
    """Whether stacked experts stay one tensor in the trace: optimum patches an architecture's own code to that end."""
    return type(_optimum_config(model))._MODEL_PATCHER is not ModelPatcher


def _head_of(model: PreTrainedModel) -> Any:
    return model.get_output_embeddings()  # type: ignore[no-untyped-call]


def max_positions_of(config: PretrainedConfig) -> int:
    """Positions that the model's embeddings of them allow; `CheckpointError` if the configuration does not say."""
    count = getattr(config, "max_position_embeddings", getattr(config, "seq_length", None))
    if not isinstance(count, int):
        raise CheckpointError("its configuration does not say how many positions it has")
    scaling = getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type", scaling.get("type")) not in RESCALED_BEYOND:
        return count
    original = getattr(config, "original_max_position_embeddings", None)
    return min(count, scaling.get("original_max_position_embeddings") or original or count)


def _optimum_config(model: PreTrainedModel) -> Any:
    """Optimum's description of the architecture, for what it patches; a plain decoder's where it has none."""
    kind, task = model.config.model_type, "text-generation-with-past"
    try:
        constructor = TasksManager.get_exporter_config_constructor(
            "onnx", model_type=kind, task=task, library_name="transformers"
        )
        return constructor(model.config)
    except (KeyError, ValueError):
        return _PlainDecoder(model.config, task="text-generation", use_past=True)


class _PlainDecoder(TextDecoderOnnxConfig):  # type: ignore[misc]
    NORMALIZED_CONFIG_CLASS = NormalizedTextConfig


def _example(num_layers: int, num_kv_heads: int, head_dim: int) -> tuple[Tensor, ...]:
    total = NUM_PAST + NUM_NEW
    caches = [torch.zeros(1, num_kv_heads, CAPACITY, head_dim) for _ in range(2 * num_layers)]
    ids, rows = torch.arange(NUM_NEW)[None], torch.tensor([NUM_NEW - 2, NUM_NEW - 1])
    return (ids, rows, torch.tensor([total - 1], dtype=torch.int32), torch.tensor(total, dtype=torch.int32), *caches)


def _declare_shapes(graph: onnx.GraphProto, num_layers: int, num_kv_heads: int, head_dim: int, vocab_size: int) -> None:
    """Gives outputs the contract's shapes; those that TorchScript made up for GroupQueryAttention say nothing."""
    del graph.value_info[:], graph.output[:]
    names = TensorNames()
    cache: Shape = [1, num_kv_heads, "capacity", head_dim]
    outputs: dict[str, Shape] = {names.logits: ["num_logits", vocab_size]}
    outputs |= {t.format(layer=i): cache for i in range(num_layers) for t in (names.present_key, names.present_value)}
    graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")
