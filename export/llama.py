"""What the llama-like family (llama, qwen2) is: its configuration in both formats, and the names of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pilotfish.runtime.errors import CheckpointError

FAMILIES = ("llama", "qwen2")

# stem used by the graph builder: (GGUF name, Hugging Face name); `.weight` or `.bias` follows
WEIGHT_NAMES = {
    "embedding": ("token_embd", "model.embed_tokens"),
    "norm": ("output_norm", "model.norm"),
    "head": ("output", "lm_head"),
    "attention_norm": ("blk.{layer}.attn_norm", "model.layers.{layer}.input_layernorm"),
    "q": ("blk.{layer}.attn_q", "model.layers.{layer}.self_attn.q_proj"),
    "k": ("blk.{layer}.attn_k", "model.layers.{layer}.self_attn.k_proj"),
    "v": ("blk.{layer}.attn_v", "model.layers.{layer}.self_attn.v_proj"),
    "o": ("blk.{layer}.attn_output", "model.layers.{layer}.self_attn.o_proj"),
    "mlp_norm": ("blk.{layer}.ffn_norm", "model.layers.{layer}.post_attention_layernorm"),
    "gate": ("blk.{layer}.ffn_gate", "model.layers.{layer}.mlp.gate_proj"),
    "up": ("blk.{layer}.ffn_up", "model.layers.{layer}.mlp.up_proj"),
    "down": ("blk.{layer}.ffn_down", "model.layers.{layer}.mlp.down_proj"),
}


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The numbers that define one llama-like decoder.

    `rotary_interleaved` says that a rotated pair is (2i, 2i + 1), the order in which GGUF files keep the q and k
    rows of the llama family, rather than (i, i + head_dim / 2).
    """

    family: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    rope_theta: float
    rms_norm_eps: float
    rotary_interleaved: bool = False

    def __post_init__(self) -> None:
        _check_family(self.family)
        for name in ("num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads",
                     "head_dim", "vocab_size", "max_positions"):  # fmt: skip
            if getattr(self, name) < 1:
                raise CheckpointError(f"the model's {name} is {getattr(self, name)}; it must be positive")
        if self.num_heads % self.num_kv_heads:
            raise CheckpointError(
                f"{self.num_heads} attention heads are not a multiple of {self.num_kv_heads} kv heads"
            )
        if self.head_dim % 16:
            raise CheckpointError(
                f"head size {self.head_dim} is not a multiple of 16, which the attention kernel needs"
            )


def config_from_gguf(metadata: Mapping[str, Any]) -> DecoderConfig:
    """Reads the configuration from GGUF metadata; `CheckpointError` on a missing key or an unsupported option."""
    family = str(metadata.get("general.architecture", "unknown"))
    _check_family(family)

    def number(key: str, default: float | None = None) -> Any:
        value = metadata.get(f"{family}.{key}", default)
        if not isinstance(value, (int, float)):
            raise CheckpointError(f"GGUF metadata {family}.{key} is {value!r}; a number is needed")
        return value

    num_heads = number("attention.head_count")
    head_dim = number("attention.key_length", number("embedding_length") // max(num_heads, 1))
    _refuse("rope.scaling.type", metadata.get(f"{family}.rope.scaling.type", "none"), ("none",))
    _refuse("rope.dimension_count", number("rope.dimension_count", head_dim), (head_dim,))
    tokens = metadata.get("tokenizer.ggml.tokens", ())
    return DecoderConfig(
        family=family,
        num_layers=number("block_count"),
        hidden_size=number("embedding_length"),
        intermediate_size=number("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=number("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        vocab_size=number("vocab_size", len(tokens) if isinstance(tokens, (list, tuple)) else 0),
        max_positions=number("context_length"),
        rope_theta=float(number("rope.freq_base", 10_000.0)),
        rms_norm_eps=float(number("attention.layer_norm_rms_epsilon")),
        rotary_interleaved=family == "llama",
    )


def config_from_hugging_face(config: Mapping[str, Any]) -> DecoderConfig:
    """Reads a Hugging Face `config.json`; `CheckpointError` on a missing key or an unsupported option."""
    family = str(config.get("model_type", "unknown"))
    _check_family(family)

    def number(key: str, default: float | None = None) -> Any:
        value = config.get(key)
        value = default if value is None else value
        if not isinstance(value, (int, float)):
            raise CheckpointError(f"config.json: {key} is {value!r}; a number is needed")
        return value

    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    _refuse("rope_type", rope.get("rope_type", rope.get("type", "default")), ("default",))
    _refuse("hidden_act", config.get("hidden_act", "silu"), ("silu",))
    _refuse("use_sliding_window", config.get("use_sliding_window", False), (False,))
    num_heads = number("num_attention_heads")
    return DecoderConfig(
        family=family,
        num_layers=number("num_hidden_layers"),
        hidden_size=number("hidden_size"),
        intermediate_size=number("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=number("num_key_value_heads", num_heads),
        head_dim=number("head_dim", number("hidden_size") // max(num_heads, 1)),
        vocab_size=number("vocab_size"),
        max_positions=number("max_position_embeddings"),
        rope_theta=float(rope.get("rope_theta", number("rope_theta", 10_000.0))),
        rms_norm_eps=float(number("rms_norm_eps", 1e-6)),
    )


def _check_family(family: str) -> None:
    if family not in FAMILIES:
        raise CheckpointError(f"the model is of family {family!r}; supported are {', '.join(FAMILIES)}")


def _refuse(option: str, value: object, supported: tuple[object, ...]) -> None:
    if value not in supported:
        wanted = ", ".join(repr(item) for item in supported)
        raise CheckpointError(f"the model sets {option} to {value!r}; supported is {wanted}")
