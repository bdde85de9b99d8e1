"""Reads the `config.json` of a Hugging Face model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilotfish.export.llama import ACTIVATIONS, FAMILIES, DecoderConfig, check_family
from pilotfish.export.rope import Linear, Llama3, Rope, Scaling, Yarn, yarn_attention_factor
from pilotfish.export.settings import Settings
from pilotfish.runtime.errors import CheckpointError

REQUIRED = (
    "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size",
    "max_position_embeddings",
)  # fmt: skip

_ALL = {
    "num_key_value_heads": None, "head_dim": None, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10_000.0,
    "rope_scaling": None, "rope_parameters": None, "partial_rotary_factor": 1.0,
}  # fmt: skip
_BIASES = {"attention_bias": False, "mlp_bias": False}
_WINDOW = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28, "layer_types": None}

# The options that change the numbers, by family, with what they are where `config.json` leaves them out. An option
# that its family does not list is one that transformers does not read for that family either.
OPTIONS: dict[str, dict[str, Any]] = {
    "granite": _ALL | _BIASES | {
        "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0, "logits_scaling": 1.0,
    },
    "llama": _ALL | _BIASES,
    "mistral": _ALL | {"num_key_value_heads": 8, "sliding_window": 4096},
    "phi3": _ALL | {"rms_norm_eps": 1e-5, "sliding_window": None},
    "qwen2": _ALL | _WINDOW | {"num_key_value_heads": 32},
    "qwen3": _ALL | _WINDOW | {"num_key_value_heads": 32, "head_dim": 128, "attention_bias": False},
    "smollm3": _ALL | _BIASES | {
        "num_key_value_heads": 4, "rope_theta": 2_000_000.0, "use_sliding_window": False, "sliding_window": None,
        "layer_types": None, "no_rope_layers": None, "no_rope_layer_interval": 4,
    },
}  # fmt: skip

_ROPE_COMMON = {
    "rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings", "finetuned",
}  # fmt: skip
_ROPE_KEYS = {
    "default": _ROPE_COMMON,
    "linear": _ROPE_COMMON | {"factor"},
    "llama3": _ROPE_COMMON | {"factor", "low_freq_factor", "high_freq_factor"},
    "yarn": _ROPE_COMMON | {
        "factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate",
    },
}  # fmt: skip


def config_from_hugging_face(config: Mapping[str, Any]) -> DecoderConfig:
    """The decoder that a `config.json` describes; `CheckpointError` on a missing key or an unsupported option."""
    family = str(config.get("model_type", "unknown"))
    check_family(family, FAMILIES)
    if config.get("quantization_config"):
        raise CheckpointError("config.json: the weights are quantized (quantization_config); give the original model")
    names = (*REQUIRED, *OPTIONS[family])
    options = Settings("config.json: ", {name: config.get(name, OPTIONS[family].get(name)) for name in names})
    num_layers, num_heads = options.count("num_hidden_layers"), options.count("num_attention_heads")
    head_dim = options.count("head_dim", options.count("hidden_size") // max(num_heads, 1))
    rope = _rope(options, head_dim)
    sliding_window, full_attention_layers = _sliding_window(options, num_layers)
    return DecoderConfig(
        family=family,
        num_layers=num_layers,
        hidden_size=options.count("hidden_size"),
        intermediate_size=options.count("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=options.count("num_key_value_heads", num_heads),
        head_dim=head_dim,
        vocab_size=options.count("vocab_size"),
        max_positions=rope.num_positions(options.count("max_position_embeddings")),
        rope=rope,
        rms_norm_eps=options.number("rms_norm_eps"),
        activation=options.choice("hidden_act", ACTIVATIONS),
        sliding_window=sliding_window,
        full_attention_layers=full_attention_layers,
        unrotated_layers=_unrotated_layers(options, num_layers),
        attention_scale=options.number("attention_multiplier") if family == "granite" else None,
        embedding_multiplier=options.number("embedding_multiplier", 1.0),
        residual_multiplier=options.number("residual_multiplier", 1.0),
        logits_divisor=options.number("logits_scaling", 1.0),
        biased=_biased(family, options),
    )


def _biased(family: str, options: Settings) -> frozenset[str]:
    attention = {"q", "k", "v", "o"} if options.flag("attention_bias") else set()
    mlp = {"gate", "up", "down"} if options.flag("mlp_bias") else set()
    return FAMILIES[family].biased | attention | mlp


def _sliding_window(options: Settings, num_layers: int) -> tuple[int | None, frozenset[int]]:
    """The window, and the layers that attend to all tokens nevertheless."""
    kinds = []
    if options.values.get("layer_types") is not None:
        kinds = _per_layer(options, "layer_types", num_layers, ("full_attention", "sliding_attention"))
    is_used = "use_sliding_window" not in options.values or options.flag("use_sliding_window")
    if not is_used or options.values.get("sliding_window") is None:
        if "sliding_attention" in kinds:
            raise CheckpointError("config.json: layer_types has 'sliding_attention', but no sliding_window is in use")
        return None, frozenset()
    if kinds:
        full = frozenset(layer for layer, kind in enumerate(kinds) if kind == "full_attention")
    elif "no_rope_layers" in options.values:  # of smollm3, whose window is meant for the layers without rotation
        full = frozenset(range(num_layers)) - _unrotated_layers(options, num_layers)
    else:
        full = frozenset(range(min(options.count("max_window_layers", 0), num_layers)))
    return options.count("sliding_window"), full


def _unrotated_layers(options: Settings, num_layers: int) -> frozenset[int]:
    if "no_rope_layers" not in options.values:
        return frozenset()
    if options.values["no_rope_layers"] is None:
        interval = options.count("no_rope_layer_interval")
        if interval < 1:
            raise CheckpointError(f"config.json: no_rope_layer_interval is {interval}; it must be positive")
        return frozenset(range(interval - 1, num_layers, interval))
    rotates = _per_layer(options, "no_rope_layers", num_layers, (0, 1))  # 1 is said of the layers that do rotate
    return frozenset(layer for layer, flag in enumerate(rotates) if not flag)


def _per_layer(options: Settings, key: str, num_layers: int, supported: tuple[object, ...]) -> list[Any]:
    values = options.values[key]
    if not isinstance(values, list) or len(values) < num_layers:
        raise CheckpointError(f"config.json: {key} is {values!r}; a list with a value for each layer is needed")
    return [Settings("config.json: ", {key: value}).choice(key, supported) for value in values[:num_layers]]


def _rope(options: Settings, head_dim: int) -> Rope:
    name = "rope_parameters" if options.values["rope_parameters"] else "rope_scaling"
    given = options.values[name] or {}
    if not isinstance(given, dict):
        raise CheckpointError(f"config.json: {name} is {given!r}; a JSON object is needed")
    rope = Settings(f"config.json: {name}: ", given)
    kind = rope.choice("rope_type", _ROPE_KEYS, given.get("type") or "default")
    rope.choice("type", (kind,), kind)  # the older name, which may be there too
    rope.refuse_others(_ROPE_KEYS[kind])
    part = rope.number("partial_rotary_factor", options.number("partial_rotary_factor", 1.0))
    return Rope(
        theta=rope.number("rope_theta", options.values["rope_theta"]),
        width=int(head_dim * part),
        scaling=_scaling(kind, rope, options),
        attention_factor=_attention_factor(rope) if kind == "yarn" else 1.0,
    )


def _scaling(kind: str, rope: Settings, options: Settings) -> Scaling | None:
    if kind == "linear":
        return Linear(rope.number("factor"))
    if kind == "llama3":
        return Llama3(
            factor=rope.number("factor"),
            low_turns=rope.number("low_freq_factor"),
            high_turns=rope.number("high_freq_factor"),
            original_positions=rope.count("original_max_position_embeddings"),
        )
    if kind == "yarn":
        return Yarn(
            factor=rope.number("factor"),
            original_positions=rope.count("original_max_position_embeddings", options.count("max_position_embeddings")),
            fast_turns=rope.number("beta_fast", 32.0),
            slow_turns=rope.number("beta_slow", 1.0),
            rounds=rope.flag("truncate", True),
        )
    return None


def _attention_factor(rope: Settings) -> float:
    """YaRN's factor on cos and sin, from the first of `attention_factor`, `mscale`s and `factor` that is given."""
    factor, weight, divisor = (rope.number(key, 0.0) for key in ("factor", "mscale", "mscale_all_dim"))
    inferred = yarn_attention_factor(factor)
    if weight and divisor:
        inferred = yarn_attention_factor(factor, weight) / yarn_attention_factor(factor, divisor)
    return rope.number("attention_factor", inferred)
