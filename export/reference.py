"""The project's own float32 forward of a llama-like model: NumPy on the source weights, no graph, no quantization.

What an export is measured against. It shares no code with `graph.py`, so it checks the builder too. Weights are read a
few rows at a time, so memory holds the activations of all tokens, one piece of one weight, and the logits.

Axis letters: `N` tokens, `H` heads, `D` head size, `V` vocabulary.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pilotfish.export.checkpoint import Checkpoint, Tensor
from pilotfish.export.llama import FAMILIES, DecoderConfig, Family
from pilotfish.export.rope import Rope
from pilotfish.runtime.errors import CheckpointError

Floats = NDArray[np.float32]
Progress = Callable[[int], None]

PIECE_ELEMENTS = 1 << 18  # weights that one thread reads and multiplies at a time: what stays in its core's cache

# The options that this forward heeds. One that is added elsewhere must be added here too, or be left at its default.
_KNOWN = {
    DecoderConfig: {
        "family", "num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim",
        "vocab_size", "max_positions", "rope", "rms_norm_eps", "activation", "sliding_window", "full_attention_layers",
        "unrotated_layers", "attention_scale", "embedding_multiplier", "residual_multiplier", "logits_divisor",
        "biased",
    },
    Family: {"qk_norm", "fused", "biased"},
    Rope: {"theta", "width", "scaling", "attention_factor", "interleaved"},
}  # fmt: skip


def reference_logits(
    checkpoint: Checkpoint, token_ids: Sequence[int], progress: Progress = lambda num_weights: None
) -> Floats:
    """The logits after each of `token_ids`: float32 (N, V). Meant for a few hundred tokens.

    `progress` is called with the number of weight elements used since the last call. Raises `CheckpointError` if a
    weight is missing or misshapen, or if the configuration has an option that is not known here.
    """
    config = checkpoint.config
    for value in (config, FAMILIES[config.family], config.rope):
        _refuse_unknown(value)
    if not 0 < len(token_ids) <= config.max_positions:
        raise ValueError(f"{len(token_ids)} tokens were given to a model of {config.max_positions} positions")
    # The pieces of a product run side by side. Threads inside NumPy would wait for each other busily, which on a busy
    # machine took four times as long. What is not finite shows in the logits and needs no warning.
    with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
        return _Forward(checkpoint, len(token_ids), progress).logits(token_ids)


class _Forward:
    """One pass over N tokens from an empty cache."""

    def __init__(self, checkpoint: Checkpoint, num_tokens: int, progress: Progress) -> None:
        self._checkpoint, self._config, self._progress = checkpoint, checkpoint.config, progress
        self._cos, self._sin = (table[:, None] for table in self._config.rope.tables(num_tokens))
        self._fused = FAMILIES[self._config.family].fused

    def logits(self, token_ids: Sequence[int]) -> Floats:
        config = self._config
        embedding = self._checkpoint.get("embedding", (config.vocab_size, config.hidden_size))
        hidden = np.concatenate([embedding.rows(token_id, token_id + 1) for token_id in token_ids])
        hidden = hidden * np.float32(config.embedding_multiplier)
        for layer in range(config.num_layers):
            normed = self._norm("attention_norm", layer, hidden)
            hidden = hidden + self._attention(layer, normed) * np.float32(config.residual_multiplier)
            normed = self._norm("mlp_norm", layer, hidden)
            hidden = hidden + self._mlp(layer, normed) * np.float32(config.residual_multiplier)
        hidden = self._norm("norm", -1, hidden)
        head = "embedding" if self._checkpoint.find("head") is None else "head"
        logits = self._product(head, -1, hidden, config.vocab_size)
        logits /= np.float32(config.logits_divisor)
        return logits

    def _attention(self, layer: int, hidden: Floats) -> Floats:
        config, num_tokens = self._config, len(hidden)
        width, kv_width = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        if self._fused:
            qkv = self._product("qkv", layer, hidden, width + 2 * kv_width)
            q, k, v = np.split(qkv, [width, width + kv_width], axis=1)
        else:
            q, k, v = (
                self._product(stem, layer, hidden, rows)
                for stem, rows in (("q", width), ("k", kv_width), ("v", kv_width))
            )
        q, k, v = (part.reshape(num_tokens, -1, config.head_dim) for part in (q, k, v))
        if config.qk_norm:
            q, k = self._norm("q_norm", layer, q), self._norm("k_norm", layer, k)
        if layer not in config.unrotated_layers:
            q, k = self._rotated(q), self._rotated(k)
        scale = config.attention_scale if config.attention_scale is not None else 1 / math.sqrt(config.head_dim)
        visible = _visible(num_tokens, config.window(layer))
        attended = np.empty_like(q)
        for head in range(config.num_heads):
            kv_head = head * config.num_kv_heads // config.num_heads
            scores = q[:, head] @ k[:, kv_head].T * np.float32(scale)
            attended[:, head] = _softmax(np.where(visible, scores, np.float32(-np.inf))) @ v[:, kv_head]
        return self._product("o", layer, attended.reshape(num_tokens, width), config.hidden_size)

    def _mlp(self, layer: int, hidden: Floats) -> Floats:
        config = self._config
        if self._fused:
            gate, up = np.split(self._product("gate_up", layer, hidden, 2 * config.intermediate_size), 2, axis=1)
        else:
            gate, up = (self._product(stem, layer, hidden, config.intermediate_size) for stem in ("gate", "up"))
        return self._product("down", layer, _activated(config.activation, gate) * up, config.hidden_size)

    def _rotated(self, heads: Floats) -> Floats:
        """(N, H, D) with the first part of each head turned by its position."""
        rope = self._config.rope
        if rope.interleaved:
            first, second = slice(0, rope.width, 2), slice(1, rope.width, 2)
        else:
            first, second = slice(0, rope.width // 2), slice(rope.width // 2, rope.width)
        turned = heads.copy()
        turned[..., first] = heads[..., first] * self._cos - heads[..., second] * self._sin
        turned[..., second] = heads[..., second] * self._cos + heads[..., first] * self._sin
        return turned

    def _norm(self, stem: str, layer: int, values: Floats) -> Floats:
        """RMS norm over the last axis."""
        weight = self._checkpoint.get(stem, values.shape[-1:], layer).read()
        mean_square: Floats = np.mean(values * values, axis=-1, keepdims=True)
        normed: Floats = values / np.sqrt(mean_square + np.float32(self._config.rms_norm_eps)) * weight
        return normed

    def _product(self, stem: str, layer: int, values: Floats, num_rows: int) -> Floats:
        """values · weightᵀ + bias: (N, columns) → (N, num_rows)."""
        num_columns = values.shape[1]
        weight = self._checkpoint.get(stem, (num_rows, num_columns), layer)
        product = np.empty((len(values), num_rows), np.float32)
        step = max(PIECE_ELEMENTS // num_columns, 1)

        def multiply(start: int) -> int:
            rows = weight.rows(start, min(start + step, num_rows))
            product[:, start : start + step] = values @ rows.T
            return rows.size

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for num_weights in pool.map(multiply, range(0, num_rows, step)):
                self._progress(num_weights)
        if (bias := self._bias(stem, layer, num_rows)) is not None:
            product += bias.read()
        return product

    def _bias(self, stem: str, layer: int, num_rows: int) -> Tensor | None:
        stem = "head" if stem == "embedding" else stem
        if not self._checkpoint.has_bias(stem, layer):
            return None
        return self._checkpoint.get(stem, (num_rows,), layer, "bias")


def _visible(num_tokens: int, window: int | None) -> NDArray[np.bool_]:
    """(N, N): whether the token of the row attends to the token of the column."""
    distance = np.arange(num_tokens)[:, None] - np.arange(num_tokens)
    return (distance >= 0) & (distance < (num_tokens if window is None else window))


def _softmax(scores: Floats) -> Floats:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    normalized: Floats = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return normalized


def _activated(name: str, x: Floats) -> Floats:
    """Every activation is x times a gate between 0 and 1."""
    gate: Floats
    if name in ("silu", "swish"):
        gate = _sigmoid(x)
    elif name == "quick_gelu":
        gate = _sigmoid(np.float32(1.702) * x)
    elif name in ("gelu_new", "gelu_pytorch_tanh"):
        gate = _sigmoid(np.float32(2 * math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x))
    elif name == "gelu":
        erf = np.frompyfunc(math.erf, 1, 1)(x / np.float32(math.sqrt(2)))
        gate = np.float32(0.5) * (1 + erf.astype(np.float32))
    elif name == "relu":
        gate = (x > 0).astype(np.float32)
    else:
        raise CheckpointError(f"the model's activation {name!r} is not known to the float32 reference")
    return x * gate


def _sigmoid(x: Floats) -> Floats:
    sigmoid: Floats = np.float32(0.5) * (1 + np.tanh(np.float32(0.5) * x))
    return sigmoid


def _refuse_unknown(value: Any) -> None:
    for field in fields(value):
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if field.name not in _KNOWN[type(value)] and getattr(value, field.name) != default:
            raise CheckpointError(
                f"the model's {field.name} is {getattr(value, field.name)!r}, which the float32 reference does not "
                "know, so the export cannot be verified; give --skip-verify to export it all the same"
            )
