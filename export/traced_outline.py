"""The outline of a model that is to be traced: transformers computes two tokens with weights that hold no numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Linear, Parameter
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.integrations.accelerate import init_empty_weights
from transformers.modeling_utils import no_init_weights

from pilotfish.export.outline import CacheShape, MatrixShape, TracedOutline
from pilotfish.export.tokenizer_files import tokenizer_from_folder
from pilotfish.export.traced_model import (
    attention_for,
    cache_shape,
    max_positions_of,
    multiplies_experts_at_once,
    read_config,
)
from pilotfish.runtime.errors import CheckpointError


def outline_traced(name: str, folder: Path, path: Path | None) -> TracedOutline:
    """The outline of the Hugging Face model in `folder`, whose weights are not read and need not be there.

    `CheckpointError` if it is no causal language model, or one that keeps no cache of keys and values.
    """
    config = read_config(folder)
    model = _hollow_model(config)
    products = _Products(model.parameters(), keeps_stacks=multiplies_experts_at_once(model))
    try:
        with torch.no_grad(), products:
            cache = CacheShape(*cache_shape(model), max_positions_of(config))
    except CheckpointError as error:
        raise CheckpointError(f"{config.model_type} cannot be exported: {error}") from error
    embedding: Any = model.get_input_embeddings()
    products.add(embedding.weight, embedding.num_embeddings, embedding.embedding_dim)
    for module in model.modules():
        for linear in module.children():  # of an expert that was given no token; the others are noted already
            if isinstance(linear, Linear):
                products.add(linear.weight, linear.out_features, linear.in_features, linear.bias, module)
    floats = tuple(parameter.numel() for parameter in model.parameters() if not products.has(parameter))
    return TracedOutline(name, cache, tokenizer_from_folder(folder), products.matrices, floats, path)


def _hollow_model(config: PretrainedConfig) -> PreTrainedModel:
    """The model with weights of the right shapes, each a single zero in memory."""
    attention = attention_for(config)
    with init_empty_weights(), no_init_weights():
        model: Any = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, attn_implementation=attention, dtype=torch.float32
        )
    model.tie_weights()
    hollow: dict[int, Parameter] = {}
    for parameter in model.parameters():  # each once, however many modules share it
        hollow[id(parameter)] = Parameter(torch.zeros(()).expand(parameter.shape), requires_grad=False)
    for module in model.modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[key] = hollow[id(parameter)]
    model.eval()
    return cast(PreTrainedModel, model)


class _Products(TorchFunctionMode):
    """Notes the products by weights that are computed inside the block, and gives zeros for their results.

    As in the export, products of the same activations count as one matrix.
    """

    def __init__(self, parameters: Iterable[Parameter], *, keeps_stacks: bool) -> None:
        """With `keeps_stacks` experts that are one tensor stay so, which is no matrix."""
        super().__init__()
        self._keeps_stacks = keeps_stacks
        self._by_storage = {parameter.untyped_storage().data_ptr(): parameter for parameter in parameters}
        self._matrices: dict[tuple[int, int], MatrixShape] = {}
        self._found: set[int] = set()
        self._sources: list[object] = []  # kept, so that nothing else gets the id of one

    @property
    def matrices(self) -> tuple[MatrixShape, ...]:
        """Those found so far."""
        return tuple(self._matrices.values())

    def has(self, parameter: Tensor) -> bool:
        """Whether it is one of the matrices, or of their biases."""
        return id(parameter) in self._found

    def add(
        self, weight: Tensor, num_rows: int, num_columns: int, bias: Tensor | None = None, source: object = None
    ) -> None:
        """Notes a weight, unless it is known already; `source` is what those that are merged with it share."""
        if self.has(weight):
            return
        self._found |= {id(weight), id(bias)}
        self._sources.append(source)
        key = (id(weight if source is None else source), num_columns)
        before = self._matrices.get(key, MatrixShape(0, num_columns))
        has_bias = before.has_bias or bias is not None
        self._matrices[key] = MatrixShape(before.num_rows + num_rows, num_columns, has_bias)

    def _add_stack(self, weights: Tensor, num_rows: int, num_columns: int) -> None:
        """Notes the matrices of all experts, whichever of them was multiplied by."""
        if not self.has(weights):
            self._found.add(id(weights))
            for index in range(len(weights)):
                self._matrices[id(weights), -1 - index] = MatrixShape(num_rows, num_columns)

    def __torch_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), options: dict[str, Any] | None = None
    ) -> Any:
        operands = _OPERANDS[function](*arguments, **(options or {})) if function in _OPERANDS else None
        parameter = self._by_storage.get(operands[1].untyped_storage().data_ptr()) if operands else None
        if operands is None or parameter is None or operands[1].ndim != 2:
            return function(*arguments, **(options or {}))
        if parameter.ndim == 3 and self._keeps_stacks:
            return function(*arguments, **(options or {}))
        source, weight, bias = operands
        num_columns, num_rows = weight.shape
        if parameter.ndim == 3:
            self._add_stack(parameter, num_rows, num_columns)
        else:
            self.add(parameter, num_rows, num_columns, bias, source)
        return source.new_zeros(*source.shape[:-1], num_rows)


_Operands = tuple[Tensor, Tensor, Tensor | None]


def _of_linear(source: Tensor, weight: Tensor, bias: Tensor | None = None) -> _Operands:
    return source, weight.T, bias


def _of_addmm(bias: Tensor, source: Tensor, weight: Tensor) -> _Operands:
    return source, weight, bias


def _of_matmul(source: Tensor, weight: Tensor) -> _Operands:
    return source, weight, None


# (activations, weight of shape (columns, rows), bias) of the arguments of a product, by the function that computes it
_OPERANDS: Mapping[Any, Callable[..., _Operands]] = MappingProxyType(
    {
        torch.nn.functional.linear: _of_linear,
        torch.addmm: _of_addmm,
        torch.matmul: _of_matmul,
        Tensor.matmul: _of_matmul,
        Tensor.__matmul__: _of_matmul,
    }
)
