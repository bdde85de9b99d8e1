"""What the llama-like family is: decoders of one block structure, and all that they may differ in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pilotfish.export.rope import Rope
from pilotfish.runtime.errors import CheckpointError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Family:
    """What the name of a family says that a configuration leaves out.

    `qk_norm`: each head of q and k is normalized before it is rotated. `fused`: q, k and v are stored as one matrix,
    and so are gate and up. `biased`: projections that always have a bias.
    """

    qk_norm: bool = False
    fused: bool = False
    biased: frozenset[str] = frozenset()


FAMILIES = {
    "granite": Family(),
    "llama": Family(),
    "mistral": Family(),
    "phi3": Family(fused=True),
    "qwen2": Family(biased=frozenset({"q", "k", "v"})),
    "qwen3": Family(qk_norm=True),
    "smollm3": Family(),
}

# stem used by the graph builder: (GGUF name, Hugging Face name); `.weight` or `.bias` follows
WEIGHT_NAMES = {
    "embedding": ("token_embd", "model.embed_tokens"),
    "norm": ("output_norm", "model.norm"),
    "head": ("output", "lm_head"),
    "attention_norm": ("blk.{layer}.attn_norm", "model.layers.{layer}.input_layernorm"),
    "q": ("blk.{layer}.attn_q", "model.layers.{layer}.self_attn.q_proj"),
    "k": ("blk.{layer}.attn_k", "model.layers.{layer}.self_attn.k_proj"),
    "v": ("blk.{layer}.attn_v", "model.layers.{layer}.self_attn.v_proj"),
    "qkv": ("blk.{layer}.attn_qkv", "model.layers.{layer}.self_attn.qkv_proj"),
    "q_norm": ("blk.{layer}.attn_q_norm", "model.layers.{layer}.self_attn.q_norm"),
    "k_norm": ("blk.{layer}.attn_k_norm", "model.layers.{layer}.self_attn.k_norm"),
    "o": ("blk.{layer}.attn_output", "model.layers.{layer}.self_attn.o_proj"),
    "mlp_norm": ("blk.{layer}.ffn_norm", "model.layers.{layer}.post_attention_layernorm"),
    "gate": ("blk.{layer}.ffn_gate", "model.layers.{layer}.mlp.gate_proj"),
    "up": ("blk.{layer}.ffn_up", "model.layers.{layer}.mlp.up_proj"),
    "gate_up": ("blk.{layer}.ffn_up", "model.layers.{layer}.mlp.gate_up_proj"),
    "down": ("blk.{layer}.ffn_down", "model.layers.{layer}.mlp.down_proj"),
}

# the stems of matrices that a bias may belong to
PROJECTIONS = frozenset({"q", "k", "v", "qkv", "o", "gate", "up", "gate_up", "down", "head"})

_SILU = ("QuickGelu", "com.microsoft", {"alpha": 1.0})  # x · sigmoid(x)
_TANH_GELU = ("Gelu", "", {"approximate": "tanh"})

# `hidden_act` of Hugging Face: (ONNX operator, its domain, its attributes)
ACTIVATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "silu": _SILU,
    "swish": _SILU,
    "gelu": ("Gelu", "", {}),
    "gelu_new": _TANH_GELU,
    "gelu_pytorch_tanh": _TANH_GELU,
    "quick_gelu": ("QuickGelu", "com.microsoft", {"alpha": 1.702}),
    "relu": ("Relu", "", {}),
}


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The numbers that define one llama-like decoder.

    A token attends to the `sliding_window` last tokens, itself included, or to all if that is None; the layers of
    `full_attention_layers` attend to all in any case. q and k are rotated by `rope` in all but `unrotated_layers`.
    Attention scores are multiplied by `attention_scale`, None being 1 / √head_dim; embeddings, and what each block
    adds, by their multipliers. `biased` names the projections that have a bias; None leaves it to the weights.
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
    rope: Rope
    rms_norm_eps: float
    activation: str = "silu"
    sliding_window: int | None = None
    full_attention_layers: frozenset[int] = field(default_factory=frozenset)
    unrotated_layers: frozenset[int] = field(default_factory=frozenset)
    attention_scale: float | None = None
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logits_divisor: float = 1.0
    biased: frozenset[str] | None = None

    def __post_init__(self) -> None:
        check_family(self.family, FAMILIES)
        for name in ("num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads",
                     "head_dim", "vocab_size", "max_positions", "rms_norm_eps", "embedding_multiplier",
                     "residual_multiplier", "logits_divisor"):  # fmt: skip
            if getattr(self, name) <= 0:
                raise CheckpointError(f"the model's {name} is {getattr(self, name)}; it must be positive")
        if self.num_heads % self.num_kv_heads:
            raise CheckpointError(
                f"{self.num_heads} attention heads are not a multiple of {self.num_kv_heads} kv heads"
            )
        for what, size in (("head size", self.head_dim), ("rotated part of a head", self.rope.width)):
            if size % 16:
                raise UnsupportedModelError(f"{what} {size} is not a multiple of 16, which the attention kernel needs")
        if self.rope.width > self.head_dim:
            raise CheckpointError(
                f"rotated part of a head {self.rope.width} is more than the head size {self.head_dim}"
            )
        if self.sliding_window is not None and self.sliding_window < 1:
            raise CheckpointError(f"the model's sliding window is {self.sliding_window}; it must be positive")

    @property
    def qk_norm(self) -> bool:
        """Whether each head of q and k is normalized before it is rotated."""
        return FAMILIES[self.family].qk_norm

    @property
    def stems(self) -> tuple[str, ...]:
        """The keys of `WEIGHT_NAMES` that such a model may have."""
        absent = {"q", "k", "v", "gate", "up"} if FAMILIES[self.family].fused else {"qkv", "gate_up"}
        absent |= set() if self.qk_norm else {"q_norm", "k_norm"}
        return tuple(stem for stem in WEIGHT_NAMES if stem not in absent)

    @property
    def qkv_parts(self) -> tuple[tuple[str, int], ...]:
        """Stem and number of rows of the weights that are stacked to one projection to q, k and v."""
        width, kv_width = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        if FAMILIES[self.family].fused:
            return (("qkv", width + 2 * kv_width),)
        return (("q", width), ("k", kv_width), ("v", kv_width))

    @property
    def gate_up_parts(self) -> tuple[tuple[str, int], ...]:
        """Stem and number of rows of the weights that are stacked to one projection to gate and up."""
        if FAMILIES[self.family].fused:
            return (("gate_up", 2 * self.intermediate_size),)
        return (("gate", self.intermediate_size), ("up", self.intermediate_size))

    def window(self, layer: int) -> int | None:
        """How many tokens, itself included, a token of `layer` attends to; None for all."""
        return None if layer in self.full_attention_layers else self.sliding_window


def check_family(family: str, supported: Iterable[str]) -> None:
    """`UnsupportedModelError` if `family` is not among the `supported`."""
    if family not in supported:
        raise UnsupportedModelError(f"the model is of family {family!r}; supported are {', '.join(supported)}")
