"""Logits of one checkpoint by PyTorch, and by the graph that export writes."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import transformers

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.checkpoint import Checkpoint
from pilotfish.export.config_json import config_from_hugging_face
from pilotfish.export.llama import WEIGHT_NAMES, DecoderConfig
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import BuiltSource
from pilotfish.runtime.bundle import ModelEntry, load_bundle
from pilotfish.runtime.decoder import Decoder


def plain_options(config: DecoderConfig) -> dict:
    """The `config.json` of a model that needs no more than the options that all families share."""
    options = {
        "model_type": config.family, "vocab_size": config.vocab_size, "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers, "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_heads, "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim, "rope_theta": config.rope.theta, "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.rms_norm_eps,
    }  # fmt: skip
    plain = replace(config, rope=replace(config.rope, interleaved=False), biased=None)
    assert replace(config_from_hugging_face(options), biased=None) == plain
    return options


def pytorch_model(checkpoint: Checkpoint, options: dict | None = None) -> transformers.PreTrainedModel:
    """A transformers model of the `config.json` in `options` that holds the checkpoint's weights."""
    options = copy.deepcopy(options) or plain_options(checkpoint.config)  # transformers changes what it is given
    # Some families' padding token, which changes no logits, is beyond a tiny vocabulary.
    options |= {"tie_word_embeddings": checkpoint.find("head") is None, "pad_token_id": None}
    config = transformers.AutoConfig.for_model(**options)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    state = {
        f"{WEIGHT_NAMES[stem][1].format(layer=layer)}.{part}": torch.from_numpy(
            _hugging_face_order(checkpoint.config, stem, t.read())
        )
        for (stem, layer, part), t in checkpoint.tensors.items()
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    return model.eval()


def _hugging_face_order(config: DecoderConfig, stem: str, array: np.ndarray) -> np.ndarray:
    """Rows of q and k from pairs (2i, 2i + 1) to pairs (i, i + D / 2), if they are stored the first way."""
    if not config.rope.interleaved or stem not in ("q", "k"):
        return array.copy()
    heads = array.reshape(-1, config.head_dim // 2, 2, *array.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(array.shape)


def pytorch_logits(checkpoint: Checkpoint, ids: list[int], options: dict | None = None) -> np.ndarray:
    with torch.no_grad():
        return pytorch_model(checkpoint, options)(torch.tensor([ids])).logits[0].numpy()


def built(checkpoint: Checkpoint, folder: Path, recipe: str = "fp32") -> tuple[ModelEntry, Path]:
    """The target of a bundle that is written into `folder`, and where its graph is."""
    source = BuiltSource(checkpoint, parse_recipe(recipe))
    bundle = load_bundle(write_bundle(source, None, folder / "bundle", verify=False))
    return bundle.manifest.target, bundle.path / bundle.manifest.target.graph


def open_decoder(checkpoint: Checkpoint, folder: Path, recipe: str = "fp32") -> Decoder:
    """The decoder of a bundle that is written into `folder`."""
    model, graph_path = built(checkpoint, folder, recipe)
    return Decoder(model, graph_path, device="cpu", context_length=256)


def exported_logits(checkpoint: Checkpoint, ids: list[int], folder: Path, recipe: str = "fp32") -> np.ndarray:
    with open_decoder(checkpoint, folder, recipe) as decoder:
        return decoder.forward(ids, len(ids)).copy()
