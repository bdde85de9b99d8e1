"""Tiny models with random weights of many architectures, for the tracing export; and the table of how each fares.

`python tests/support/traced_models.py` exports every one and writes the table into export/README.md.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
import transformers

from pilotfish.export.quantize import parse_recipe
from pilotfish.export.traced import write_traced
from pilotfish.runtime.bundle import ModelEntry
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.errors import CheckpointError

README = Path(__file__).parents[2] / "export" / "README.md"
BEGIN, END = "<!-- python tests/support/traced_models.py -->", "<!-- end -->"
TOLERANCE = 1e-4

SIZES = {
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "pad_token_id": None,
    "bos_token_id": 0, "eos_token_id": 1, "tie_word_embeddings": False,
}  # fmt: skip
ROUTED = {
    "first_k_dense_replace": 1, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "n_group": 2, "topk_group": 1, "n_shared_experts": 1,
}  # fmt: skip
MANY_HEADS = {"num_key_value_heads": 4}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}

# name: `config.json` options beside `SIZES`, with the architecture in the name's first word; `...` leaves one out
ARCHITECTURES: dict[str, dict] = {
    "apertus": {"hidden_act": "xielu"},
    "arcee": {},
    "bamba": {},
    "biogpt": MANY_HEADS,
    "bitnet": {},
    "bloom": {"n_head": 4, "n_layer": 3, "max_position_embeddings": ..., "seq_length": 512},
    "codegen": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 512, "rotary_dim": 8},
    "cohere": {"logit_scale": 0.5},
    "cohere, qk norm": {"use_qk_norm": True},
    "cohere2": {"sliding_window": 8},
    "ctrl": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 512, "dff": 96},
    "dbrx": {
        "d_model": 64, "n_heads": 4, "n_layers": 3, "max_seq_len": 512,
        "attn_config": {"clip_qkv": 2.0, "kv_n_heads": 2},
        "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_v2": {
        "head_dim": ..., "num_key_value_heads": 4, "first_k_dense_replace": 3, "q_lora_rank": 32, "kv_lora_rank": 16,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
    },
    "deepseek_v3": {
        "head_dim": ..., "num_key_value_heads": 4, "first_k_dense_replace": 3, "q_lora_rank": 32, "kv_lora_rank": 16,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
    },
    "deepseek_v3, experts": ROUTED | {
        "head_dim": ..., "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8, "v_head_dim": 12,
    },
    "diffllama": {},
    "doge": {},
    "dots1": {"first_k_dense_replace": 3, "sliding_window": 8},
    "dots1, experts": ROUTED,
    "ernie4_5": {},
    "ernie4_5_moe": EXPERTS | {"moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1},
    "exaone4": {"sliding_window": 8, "sliding_window_pattern": 2},
    "falcon": {"head_dim": ..., "num_kv_heads": 2, "new_decoder_architecture": True, "alibi": False},
    "falcon, multi-query, parallel": {"head_dim": ..., "multi_query": True, "alibi": False, "parallel_attn": True},
    "falcon, alibi": {"head_dim": ..., "alibi": True, "num_kv_heads": 2, "new_decoder_architecture": True},
    "gemma": {},
    "gemma2": {
        "sliding_window": 8, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 8.0,
        "query_pre_attn_scalar": 20,
    },
    "gemma3_text": {"sliding_window": 8, "sliding_window_pattern": 2, "query_pre_attn_scalar": 20},
    "glm": {"partial_rotary_factor": 0.5},
    "glm4": {"partial_rotary_factor": 0.5},
    "glm4_moe": {"first_k_dense_replace": 3},
    "glm4_moe, experts": ROUTED,
    "gpt2": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 512},
    "gpt2, tied": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 512, "tie_word_embeddings": True},
    "gpt_bigcode": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 512},
    "gpt_neo": {
        "num_layers": 3, "num_heads": 4, "attention_types": [[["global", "local", "global"], 1]], "window_size": 8,
    },
    "gpt_neox": {"rotary_pct": 0.5},
    "gpt_neox_japanese": {},
    "gpt_oss": EXPERTS | {"sliding_window": 8},
    "gptj": {"n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 512, "rotary_dim": 8},
    "granite": {
        "embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.1, "logits_scaling": 2.0,
    },
    "granitemoe": EXPERTS,
    "granitemoeshared": EXPERTS | {"shared_intermediate_size": 48},
    "helium": {},
    "hunyuan_v1_dense": {},
    "hunyuan_v1_moe": EXPERTS | {"moe_topk": 2},
    "jetmoe": EXPERTS | {"kv_channels": 16},
    "lfm2": {"layer_types": ["full_attention", "conv", "full_attention"]},
    "llama": {},
    "llama, tied": {"tie_word_embeddings": True},
    "llama, llama3 rope": {
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "llama, dynamic rope": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    "llama, head size 12": {"head_dim": 12},
    "mamba": {},
    "minimax": EXPERTS,
    "ministral": {"sliding_window": 8},
    "mistral": {"sliding_window": 8},
    "mixtral": EXPERTS,
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 3, "max_seq_len": 512},
    "nemotron": {},
    "olmo": {},
    "olmo2": {},
    "olmo3": {"sliding_window": 8},
    "olmoe": EXPERTS,
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "opt, norm behind": {"ffn_dim": 96, "word_embed_proj_dim": 32, "do_layer_norm_before": False},
    "persimmon": MANY_HEADS,
    "phi": {"partial_rotary_factor": 0.5},
    "phi3": {"sliding_window": 8},
    "phi3, longrope": {
        "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0],
                         "long_factor": [2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 9.0]},
        "original_max_position_embeddings": 128,
    },
    "phimoe": EXPERTS,
    "qwen2": {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 32},
    "qwen3": {},
    "qwen3_moe": EXPERTS,
    "recurrent_gemma": {},
    "seed_oss": {},
    "smollm3": {"no_rope_layer_interval": 2},
    "stablelm": {"use_qkv_bias": True, "partial_rotary_factor": 0.5},
    "stablelm, parallel": {"use_parallel_residual": True, "partial_rotary_factor": 0.5},
    "starcoder2": {"sliding_window": 8},
    "vaultgemma": {"sliding_window": 8},
    "xglm": {"d_model": 64, "num_layers": 3, "attention_heads": 4, "ffn_dim": 96},
}  # fmt: skip


SINGLE_OPERATORS = "equal; attention in single operators"
TRUE_ATTENTION = {"falcon, alibi": "sdpa"}  # its eager attention adds the bias twice


def tiny_model(name: str) -> transformers.PreTrainedModel:
    """Random weights, so large that each part of the model moves the logits."""
    torch.manual_seed(0)
    options = {key: value for key, value in (SIZES | ARCHITECTURES[name]).items() if value is not ...}
    config = transformers.AutoConfig.for_model(name.split(",")[0], **options)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for key, weights in model.named_parameters():
            if weights.ndim > 1:
                weights.normal_(0, 1.2 / weights.shape[-1] ** 0.5)
            elif key.endswith("bias"):
                weights.normal_(0, 0.3)
            else:
                weights.uniform_(0.5, 1.5)
    return model.eval()


def export_tiny(name: str, folder: Path, recipe: str = "fp32") -> ModelEntry:
    """Saves the tiny model, and exports it into `folder`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tiny_model(name).save_pretrained(folder / "model")
    return write_traced(folder / "model", parse_recipe(recipe), folder)[1]


def open_exported(entry: ModelEntry, folder: Path) -> Decoder:
    return Decoder(entry, folder / entry.graph, device="cpu", context_length=256)


def exported(name: str, folder: Path, recipe: str = "fp32") -> Decoder:
    """Exports the tiny model, and opens what was written."""
    return open_exported(export_tiny(name, folder, recipe), folder)


def pytorch_logits(folder: Path, ids: list[int], attention: str) -> np.ndarray:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "model", attn_implementation=attention, dtype=torch.float32
    )
    model = model.eval().float()
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def differences(decoder: Decoder, folder: Path, attention: str = "eager") -> Iterator[float]:
    """Largest differences of the logits in a prefill, blocks, single steps, and after a rollback."""
    rng = np.random.default_rng(1)
    first, second = (rng.integers(0, 320, 60).tolist() for _ in range(2))
    second = first[:17] + second[17:]
    for ids, start in ((first, 0), (second, 17)):
        expected = pytorch_logits(folder, ids, attention)
        decoder.rollback(start)
        for stop in (start + 15, start + 20, start + 27, *range(start + 28, start + 32), 60):
            block = ids[decoder.length : stop]
            found = decoder.forward(block, len(block))
            yield float(np.abs(found - expected[stop - len(block) : stop]).max())


@dataclass(frozen=True, slots=True)
class Attempt:
    """An export into `folder`: `entry` describes what it wrote. `refusal` says why it was refused, without numbers."""

    name: str
    folder: Path
    entry: ModelEntry | None = None
    refusal: str = ""

    @property
    def outcome(self) -> str:
        """`equal`, with a word about slow attention, or the refusal; logits that differ nevertheless are an error."""
        if self.entry is None:
            return f"refused: {self.refusal}"
        with open_exported(self.entry, self.folder) as decoder:
            difference = max(differences(decoder, self.folder, TRUE_ATTENTION.get(self.name, "eager")))
        assert difference < TOLERANCE, f"{self.name} was exported, and its logits differ by {difference}"
        nodes = onnx.load(self.folder / self.entry.graph, load_external_data=False).graph.node
        return "equal" if any(node.op_type == "GroupQueryAttention" for node in nodes) else SINGLE_OPERATORS


def attempt(name: str, folder: Path) -> Attempt:
    """Exports the tiny model, or finds out why that is refused."""
    try:
        return Attempt(name, folder, export_tiny(name, folder))
    except CheckpointError as error:
        _, _, reason = str(error).partition(" cannot be exported: ")
        return Attempt(name, folder, refusal=re.split(r" by up to | \(|\d", reason)[0].strip())


def documented() -> dict[str, str]:
    """The outcomes that the table in export/README.md tells."""
    lines = README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return {name.strip("`"): result for name, result in rows}


def main() -> None:
    rows = []
    for name in ARCHITECTURES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(f"| `{name}` | {attempt(name, Path(folder)).outcome} |")
        print(rows[-1], flush=True)
    text = README.read_text(encoding="utf-8")
    table = "\n".join(["", "", "| architecture | logits |", "|---|---|", *rows, "", ""])
    before, _, rest = text.partition(BEGIN)
    README.write_text(before + BEGIN + table + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
