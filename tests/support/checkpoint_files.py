"""Tiny source models on disk, in both formats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from pilotfish.export.llama import WEIGHT_NAMES
from support.tiny_models import CONFIG, TEMPLATE, tiny_tokenizer, tiny_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

OPTIONS = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 512, "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
}  # fmt: skip
METADATA = {
    "block_count": 2, "embedding_length": 64, "feed_forward_length": 96, "attention.head_count": 4,
    "attention.head_count_kv": 2, "vocab_size": 320, "context_length": 512, "rope.freq_base": 10000.0,
    "attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip


def write_folder(
    folder: Path, options: Mapping[str, object] = OPTIONS, weights: dict | None = None, dtype: type = np.float32
) -> Path:
    """A Hugging Face folder in two shards; `options` are those of `config.json`."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(options))
    _write_tokenizer(folder)
    tensors = {
        f"{WEIGHT_NAMES[stem][1].format(layer=layer)}.{part}": array.astype(dtype)
        for (stem, layer, part), array in (weights or tiny_weights(CONFIG)).items()
    }
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for shard, members in shards.items():
        save_file({name: tensors[name] for name in members}, folder / shard)
    index = {"weight_map": {name: shard for shard, members in shards.items() for name in members}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_pretrained(model: PreTrainedModel, folder: Path) -> Path:
    """A Hugging Face folder of a model that transformers has in memory."""
    model.save_pretrained(folder)
    _write_tokenizer(folder)
    return folder


def _write_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(tiny_tokenizer().tokenizer_json)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": "<|end|>"}))


def write_gguf(
    path: Path,
    values: Mapping[str, object] = METADATA,
    weights: dict | None = None,
    *,
    architecture: str = "llama",
    extra: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """A GGUF file; `values` follow the architecture's name, `extra` are tensors under their own names."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in values.items():
        name = f"{architecture}.{key}"
        kind = type(value)
        {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}[kind](
            name, value
        )
    _add_tokenizer(writer)
    for (stem, layer, part), array in (weights or tiny_weights(CONFIG)).items():
        writer.add_tensor(f"{WEIGHT_NAMES[stem][0].format(layer=layer)}.{part}", _stored(architecture, stem, array))
    for name, array in (extra or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    tokenizer = Tokenizer.from_str(tiny_tokenizer().tokenizer_json)
    model = json.loads(tiny_tokenizer().tokenizer_json)["model"]
    ids = tokenizer.get_vocab(with_added_tokens=True)
    texts = sorted(ids, key=ids.get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(texts)
    writer.add_token_types([3 if text.startswith("<|") else 1 for text in texts])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(ids["<|end|>"])
    writer.add_chat_template(TEMPLATE)


def _stored(architecture: str, stem: str, array: np.ndarray) -> np.ndarray:
    """q and k rows as GGUF stores them for some families: pairs (i, i + D / 2) become (2i, 2i + 1)."""
    if architecture not in ("granite", "llama", "smollm3") or stem not in ("q", "k"):
        return array
    heads = array.reshape(-1, 2, CONFIG.head_dim // 2, *array.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(array.shape)
