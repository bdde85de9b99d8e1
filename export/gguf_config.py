"""Reads the configuration of a llama-like model from GGUF metadata.

What a key means, and what holds without it, is as llama.cpp reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pilotfish.export.llama import FAMILIES, DecoderConfig, check_family
from pilotfish.export.rope import Linear, PerPair, Rope, Scaling, Yarn, yarn_attention_factor
from pilotfish.export.settings import Settings
from pilotfish.runtime.errors import CheckpointError

# architecture: whether q and k rows are kept in the order of interleaved pairs. Mistral's own files say "llama".
_INTERLEAVED = {"granite": True, "llama": True, "phi3": False, "qwen2": False, "qwen3": False, "smollm3": True}
_SMOLLM3_INTERVAL = 4  # every fourth layer does not rotate; there is no key for it

# keys that may be there, after the architecture's name and a dot
_KEYS = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.layer_norm_rms_epsilon", "attention.causal", "expert_count", "expert_used_count", "pooling_type",
    "rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "rope.scaling.attn_factor",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "tensor_data_layout",
}  # fmt: skip
_KEYS_OF = {
    "granite": {"attention.scale", "embedding_scale", "residual_scale", "logit_scale"},
    "llama": {"attention.sliding_window"},
    "phi3": {"attention.sliding_window"},
}


def config_from_gguf(metadata: Mapping[str, Any], rope_divisors: Sequence[float] | None = None) -> DecoderConfig:
    """The decoder that the metadata describe; `CheckpointError` on a missing key or an unsupported option.

    `rope_divisors` is the tensor `rope_freqs.weight`, if the file has it.
    """
    family = str(metadata.get("general.architecture", "unknown"))
    check_family(family, _INTERLEAVED)
    prefix = f"{family}."
    values = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    options = Settings(f"GGUF metadata {prefix}", values)
    _refuse_unsupported(family, options)
    num_layers, num_heads = options.count("block_count"), options.count("attention.head_count")
    head_dim = options.count("attention.key_length", options.count("embedding_length") // max(num_heads, 1))
    options.choice("attention.value_length", (head_dim,), head_dim)
    rope = _rope(family, options, head_dim, rope_divisors)
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    unrotated = range(_SMOLLM3_INTERVAL - 1, num_layers, _SMOLLM3_INTERVAL) if family == "smollm3" else ()
    return DecoderConfig(
        family=family,
        num_layers=num_layers,
        hidden_size=options.count("embedding_length"),
        intermediate_size=options.count("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=options.count("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        vocab_size=options.count("vocab_size", len(tokens) if isinstance(tokens, (list, tuple)) else 0),
        max_positions=rope.num_positions(options.count("context_length")),
        rope=rope,
        rms_norm_eps=options.number("attention.layer_norm_rms_epsilon"),
        sliding_window=options.count("attention.sliding_window", 0) or None,
        unrotated_layers=frozenset(unrotated),
        attention_scale=options.number("attention.scale", 0.0) or None,
        embedding_multiplier=options.number("embedding_scale", 0.0) or 1.0,
        residual_multiplier=options.number("residual_scale", 0.0) or 1.0,
        logits_divisor=options.number("logit_scale", None if family == "granite" else 1.0),
        biased=FAMILIES[family].biased or None,
    )


def _refuse_unsupported(family: str, options: Settings) -> None:
    options.refuse_others(_KEYS | _KEYS_OF.get(family, set()))
    options.choice("attention.causal", (True,), True)
    options.choice("tensor_data_layout", ("Meta AI original pth",), "Meta AI original pth")
    for key in ("expert_count", "expert_used_count", "pooling_type"):
        options.choice(key, (0,), 0)
    if family == "granite":  # where this key, for all others a remark, turns the rotation off
        options.choice("rope.scaling.finetuned", (True,), True)


def _rope(family: str, options: Settings, head_dim: int, divisors: Sequence[float] | None) -> Rope:
    width = options.count("rope.dimension_count", head_dim)
    if _INTERLEAVED[family]:
        options.choice("rope.dimension_count", (head_dim,), head_dim)
    factor = options.number("rope.scaling.factor", options.number("rope.scale_linear", 0.0)) or 1.0
    kind = options.choice("rope.scaling.type", ("none", "linear", "yarn"), "linear")
    attention_factor = options.number("rope.scaling.attn_factor", 1.0)
    scaling: Scaling | None = None
    if kind == "yarn":
        scaling = Yarn(
            factor=factor,
            original_positions=options.count("rope.scaling.original_context_length", options.count("context_length")),
            fast_turns=options.number("rope.scaling.yarn_beta_fast", 32.0),
            slow_turns=options.number("rope.scaling.yarn_beta_slow", 1.0),
        )
        attention_factor *= yarn_attention_factor(factor)
    elif kind == "linear" and factor != 1:
        scaling = Linear(factor)
    if divisors is not None:
        if scaling is not None:
            raise CheckpointError(f"the model has rope_freqs.weight and rope.scaling.type {kind!r}; one is supported")
        scaling = PerPair(tuple(float(divisor) for divisor in divisors))
    return Rope(
        theta=options.number("rope.freq_base", 10_000.0),
        width=width,
        scaling=scaling,
        attention_factor=attention_factor,
        interleaved=_INTERLEAVED[family],
    )
