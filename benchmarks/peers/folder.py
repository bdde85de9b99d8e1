"""Writes a GGUF model as a Hugging Face folder of float32 weights, which the peers that read no GGUF start from.

Usage: python benchmarks/peers/folder.py MODEL.gguf FOLDER

The weights are the ones that the file holds, dequantized: nothing is rounded again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from pilotfish.export.checkpoint import Checkpoint, open_checkpoint
from pilotfish.export.llama import WEIGHT_NAMES, DecoderConfig

ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}


def write_folder(source: Path, folder: Path) -> None:
    """Writes one file of weights for each layer, one for all else, the configuration, and the tokenizer."""
    folder.mkdir(parents=True)
    with open_checkpoint(source) as checkpoint:
        _write_weights(checkpoint, folder)
        tokenizer = checkpoint.tokenizer
        end, *others = tokenizer.eos_token_ids
        values = config_values(checkpoint.config, checkpoint.find("head") is None)
        _write(folder / "config.json", values | {"eos_token_id": end})
        _write(folder / "generation_config.json", {"eos_token_id": [end, *others], "do_sample": False})
        (folder / "tokenizer.json").write_text(tokenizer.tokenizer_json, encoding="utf-8")
        texts = {token["id"]: token["content"] for token in json.loads(tokenizer.tokenizer_json)["added_tokens"]}
        names = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokenizer.bos_token,
            "eos_token": texts[end],
        }
        _write(folder / "tokenizer_config.json", names | {"chat_template": tokenizer.chat_template})


def config_values(config: DecoderConfig, is_tied: bool) -> dict[str, Any]:
    """What `config.json` says of a decoder without options beyond those of llama and qwen2."""
    return {
        "architectures": [ARCHITECTURES[config.family]],
        "model_type": config.family,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_positions,
        "rope_theta": config.rope.theta,
        "rms_norm_eps": config.rms_norm_eps,
        "hidden_act": config.activation,
        "tie_word_embeddings": is_tied,
        "torch_dtype": "float32",
    }


def _write_weights(checkpoint: Checkpoint, folder: Path) -> None:
    places: dict[str, str] = {}
    layers = sorted({layer for _, layer, _ in checkpoint.tensors})
    for number, wanted in enumerate(layers, 1):
        file = f"model-{number:05}-of-{len(layers):05}.safetensors"
        found = {
            f"{WEIGHT_NAMES[stem][1].format(layer=layer)}.{part}": tensor.read()
            for (stem, layer, part), tensor in checkpoint.tensors.items()
            if layer == wanted
        }
        save_file(found, folder / file, {"format": "pt"})
        places |= dict.fromkeys(found, file)
    _write(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": places})


def _write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    write_folder(arguments.source, arguments.folder)


if __name__ == "__main__":
    main()
