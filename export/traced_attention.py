"""Attention and cache of a traced model: GroupQueryAttention nodes that read and write caches of fixed capacity.

Axis letters: `N` new tokens, `C` capacity of a cache, `A` attention heads, `H` kv heads, `D` head size, in the caches
rounded up to a multiple of 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import OptionalType, Tensor
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.cache_utils import Cache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from pilotfish.runtime.errors import CheckpointError

NAME = "pilotfish"  # under which transformers finds the attention; no mask belongs to it, so models build none


@dataclass(frozen=True, slots=True)
class Kernel:
    """The attributes of one GroupQueryAttention node; `window` and `softcap` are None where the layer has none."""

    num_heads: int
    num_kv_heads: int
    scale: float
    window: int | None = None
    softcap: float | None = None

    @property
    def attributes(self) -> dict[str, int | float]:
        """By the names that TorchScript wants: the type's letter comes last."""
        optional = {"local_window_size_i": self.window, "softcap_f": self.softcap}
        required = {"num_heads_i": self.num_heads, "kv_num_heads_i": self.num_kv_heads, "scale_f": self.scale}
        return required | {name: value for name, value in optional.items() if value is not None}


class GroupQueryAttention(torch.autograd.Function):
    """Traces to one node. Run by PyTorch it returns values of the right shape only."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, past_key: Tensor, past_value: Tensor,
        seqlens_k: Tensor, total: Tensor, sinks: Tensor | None, kernel: Kernel,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        return q.clone(), past_key.clone(), past_value.clone()

    @staticmethod
    def symbolic(graph: Any, *arguments: Any) -> tuple[Any, Any, Any]:
        """The node and its three outputs, whose types are those of q and of the caches."""
        *inputs, sinks, kernel = arguments
        if sinks is not None:
            absent = graph.op("prim::Constant")
            absent.setType(OptionalType.ofTensor())
            inputs += [absent] * 4 + [sinks]  # the four are of rotation inside the node, and of a bias
        outputs = graph.op("com.microsoft::GroupQueryAttention", *inputs, outputs=3, **kernel.attributes)
        for output, like in zip(outputs, (inputs[0], inputs[3], inputs[4]), strict=True):
            output.setType(like.type())
        return tuple(outputs)


class GraphCache(Cache):
    """Hands new keys and values through to the attention, which puts them into the caches.

    With `is_read` it writes them itself, and returns all that are cached, for attention code of the model's own.
    `pasts` are the caches of all layers in turn, each key (1, H, C, D) and value (1, H, C, D); `total` counts all
    tokens, the N new ones included. `presents` has the updated caches by layer after the model ran.
    """

    def __init__(
        self, pasts: Sequence[Tensor], seqlens_k: Tensor, total: Tensor, num_new: Any, *, is_read: bool = False
    ) -> None:
        super().__init__(layers=[])
        self.is_read = is_read
        self.presents: dict[int, tuple[Tensor, Tensor]] = {}
        self._pasts, self._seqlens_k, self._total, self._num_new = pasts, seqlens_k, total, num_new
        self._pending: tuple[int, Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, cache_kwargs: dict[str, Any] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Keeps the new keys and values, each (1, H, N, head size), for the attention that follows."""
        if not self.is_read:
            self._pending = (layer_idx, key_states, value_states)
            return key_states, value_states
        pasts = self._pasts[2 * layer_idx : 2 * layer_idx + 2]
        key, value = (self._written(past, new) for past, new in zip(pasts, (key_states, value_states), strict=True))
        self.presents[layer_idx] = key, value
        total = self._seqlens_k[0].to(torch.int64) + 1  # by the one length or the other: the graph has to read both
        return key[:, :, :total, : key_states.shape[-1]], value[:, :, :total, : value_states.shape[-1]]

    def _written(self, past: Tensor, new: Tensor) -> Tensor:
        """(1, H, C, D) with the N new rows behind those that were there."""
        padded = functional.pad(new, (0, past.shape[-1] - new.shape[-1]))
        positions = torch.arange(self._num_new) + self.get_seq_length()
        return past.scatter(2, positions.view(1, 1, -1, 1).expand_as(padded), padded)

    def get_seq_length(self, layer_idx: int = 0) -> Any:
        """Tokens before the new ones."""
        return self._total.to(torch.int64) - self._num_new

    def get_mask_sizes(self, cache_position: Tensor, layer_idx: int) -> tuple[Any, int]:
        """The extent of a mask that a model builds although nothing reads it."""
        return self._total.to(torch.int64), 0

    def attend(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
        scaling: float | None = None, sliding_window: int | None = None, softcap: float | None = None,
        **others: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        """Attention as transformers calls it: query (1, A, N, head size) → (1, N, A, value's head size).

        Keys and values are those given to `update` last, before any repetition. The mask is left out: the node is
        causal by itself, and a model that masks otherwise differs in the comparison that follows every trace.
        """
        if self._pending is None:
            raise CheckpointError("attention runs without a cache of its own")
        (layer, new_key, value), self._pending = self._pending, None
        if _is_bias(attention_mask):
            raise CheckpointError("its attention adds a bias")
        if not torch.equal(key, new_key.repeat_interleave(int(key.shape[1]) // int(new_key.shape[1]), 1)):
            raise CheckpointError("its attention repeats keys in an order of its own")
        key = new_key
        width = self._pasts[2 * layer].shape[-1]
        scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
        kernel = Kernel(query.shape[1], key.shape[1], scale, sliding_window or None, softcap or None)
        inputs = (_flat(query, width), _flat(key, width), _flat(value, width), *self._pasts[2 * layer : 2 * layer + 2])
        lengths, sinks = (self._seqlens_k, self._total), others.get("s_aux")
        attended, *present = GroupQueryAttention.apply(  # type: ignore[no-untyped-call]
            *inputs, *lengths, sinks, kernel
        )
        self.presents[layer] = tuple(present)
        attended = attended.reshape(1, -1, query.shape[1], width)
        return attended[..., : value.shape[-1]] if value.shape[-1] != width else attended, None

    def attend_directly(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        """Attention as `scaled_dot_product_attention` is called: query (1, A, N, D) → (1, A, N, D)."""
        return self.attend(None, query, key, value, attn_mask, scale)[0].transpose(1, 2)


def _is_bias(mask: Tensor | None) -> bool:
    """Whether a mask does more than to let tokens see each other or not."""
    if mask is None or not mask.is_floating_point():
        return False
    return bool(((mask != 0) & (mask > -1e9)).any())


@contextmanager
def attention_replaced(model: PreTrainedModel, cache: GraphCache) -> Iterator[None]:
    """Lets all attention of `model` run through `cache` inside the block, whichever of the two ways it is called.

    A cache that is read leaves the attention as it is, with masks of its own.
    """
    own, direct = model.config._attn_implementation, functional.scaled_dot_product_attention
    ALL_ATTENTION_FUNCTIONS.register(NAME, cache.attend)
    try:
        if model._can_set_attn_implementation():
            model.set_attn_implementation("eager" if cache.is_read else NAME)
        if not cache.is_read:
            functional.scaled_dot_product_attention = cache.attend_directly
        yield
    finally:
        functional.scaled_dot_product_attention = direct
        if model._can_set_attn_implementation():
            model.set_attn_implementation(own)
        del ALL_ATTENTION_FUNCTIONS._global_mapping[NAME]


def _flat(heads: Tensor, width: int) -> Tensor:
    """(1, heads, N, head size) → (1, N, heads · width), each head padded with zeros, which change no product."""
    if heads.shape[-1] != width:
        heads = functional.pad(heads, (0, width - heads.shape[-1]))
    return heads.transpose(1, 2).reshape(1, -1, heads.shape[1] * width)
