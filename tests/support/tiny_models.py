"""Tiny real decoders: random weights, written by the project's own graph builder, with a small real tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.checkpoint import Checkpoint, Tensor
from pilotfish.export.llama import DecoderConfig
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.rope import Rope
from pilotfish.export.sources import BuiltSource
from pilotfish.export.tokenizer_files import TokenizerFiles
from pilotfish.export.trimmed import Trimmed
from support.vocabularies import with_other_ids

TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
SAMPLE = "the pilot fish swims ahead of the shark and the shark follows the pilot fish 🦈 鮫の前を泳ぐ魚"

CONFIG = DecoderConfig(
    family="llama", num_layers=2, hidden_size=64, intermediate_size=96, num_heads=4, num_kv_heads=2, head_dim=16,
    vocab_size=320, max_positions=512, rope=Rope(theta=10_000.0, width=16), rms_norm_eps=1e-5,
)  # fmt: skip


def tiny_tokenizer() -> TokenizerFiles:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|start|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([SAMPLE] * 4, trainer)
    return TokenizerFiles(
        tokenizer_json=tokenizer.to_str(),
        chat_template=TEMPLATE,
        bos_token=None,
        eos_token_ids=(tokenizer.token_to_id("<|end|>"),),
        add_bos=False,
    )


def tiny_weights(config: DecoderConfig, seed: int = 0, *, tied: bool = True, bias: bool = False) -> dict:
    """Random weights by (stem, layer, part), scaled so that the logits differ clearly from token to token.

    There are biases where the configuration names them; where it leaves them to the weights, on q, k and v if `bias`.
    """
    rng = np.random.default_rng(seed)
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes = {stem: (rows, hidden) for stem, rows in config.qkv_parts}
    shapes["o"] = (hidden, config.num_heads * config.head_dim)
    shapes |= {stem: (rows, hidden) for stem, rows in config.gate_up_parts}
    shapes["down"] = (hidden, inner)
    biased = ({"q", "k", "v"} if bias else set()) if config.biased is None else config.biased

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 1.5 / np.sqrt(shape[-1]), shape).astype(np.float32)

    weights = {("embedding", -1, "weight"): normal(config.vocab_size, hidden) * np.float32(4)}
    if not tied:
        weights["head", -1, "weight"] = normal(config.vocab_size, hidden)
    weights["norm", -1, "weight"] = np.ones(hidden, np.float32)
    for layer in range(config.num_layers):
        for norm in ("attention_norm", "mlp_norm"):
            weights[norm, layer, "weight"] = rng.uniform(0.5, 1.5, hidden).astype(np.float32)
        for stem, shape in shapes.items():
            weights[stem, layer, "weight"] = normal(*shape)
            if stem in biased:
                weights[stem, layer, "bias"] = rng.normal(0, 0.3, shape[0]).astype(np.float32)
        for norm in ("q_norm", "k_norm") if config.qk_norm else ():
            weights[norm, layer, "weight"] = rng.uniform(0.5, 2, config.head_dim).astype(np.float32)
    return weights


def perturbed(weights: dict, amount: float, seed: int = 1) -> dict:
    """The same weights with noise of `amount` times their own size: a draft that is right some of the time."""
    rng = np.random.default_rng(seed)
    return {
        key: value + rng.normal(0, amount * value.std() + 1e-9, value.shape).astype(np.float32)
        for key, value in weights.items()
    }


def tiny_checkpoint(config: DecoderConfig = CONFIG, weights: dict | None = None, **options: object) -> Checkpoint:
    weights = tiny_weights(config, **options) if weights is None else weights

    def tensor(key: tuple[str, int, str], array: np.ndarray) -> Tensor:
        table = array if array.ndim == 2 else array[None]
        return Tensor(f"{key[0]}.{key[2]}", array.shape, lambda start, stop: table[start:stop])

    tensors = {key: tensor(key, array) for key, array in weights.items()}
    return Checkpoint(Path("tiny"), config, tiny_tokenizer(), tensors)


def readable(weights: dict) -> dict:
    """The same weights, but for tokens that are no text of their own or end it: what is generated is then text."""
    tokenizer = Tokenizer.from_str(tiny_tokenizer().tokenizer_json)
    embedding = weights["embedding", -1, "weight"].copy()
    texts = [tokenizer.decode([token_id]) for token_id in range(len(embedding))]
    embedding[[not text.isprintable() or not text.isascii() or not text for text in texts]] *= 0.05
    return weights | {("embedding", -1, "weight"): embedding}


def renumbered_bundle(folder: Path, *, draft_noise: float = 0.0, verify: bool = False) -> Path:
    """A bundle whose draft is its target, with some noise, and has a tokenizer of its own: the same, reordered."""
    weights = readable(tiny_weights(CONFIG))
    target = tiny_checkpoint(CONFIG, weights)
    files, old_ids = with_other_ids(target.tokenizer)
    draft_weights = perturbed(weights, draft_noise) if draft_noise else dict(weights)
    embedding = draft_weights["embedding", -1, "weight"].copy()
    embedding[: len(old_ids)] = embedding[old_ids]
    draft = tiny_checkpoint(CONFIG, draft_weights | {("embedding", -1, "weight"): embedding})
    draft.tokenizer = files
    sources = (BuiltSource(checkpoint, parse_recipe("fp32")) for checkpoint in (target, draft))
    return write_bundle(*sources, folder / "bundle", verify=verify)


def tiny_bundle(
    folder: Path, recipe: str = "fp32", *, draft_noise: float | None = 0.15, config: DecoderConfig = CONFIG,
    verify: bool = False, head_ids: Sequence[int] | None = None, draft_tokenizer: TokenizerFiles | None = None,
    lower_noises: Sequence[float] = (),
) -> Path:  # fmt: skip
    """A bundle whose draft is its target with some noise, or without a draft if `draft_noise` is None.

    The draft's head is trimmed to `head_ids`, unless that is None. It has the target's tokenizer or `draft_tokenizer`.
    `lower_noises` add drafts of the draft, the target with more or less noise.
    """
    weights = tiny_weights(config)
    target = BuiltSource(tiny_checkpoint(config, weights), parse_recipe(recipe))
    draft = None
    if draft_noise is not None:
        draft = replace(target, checkpoint=tiny_checkpoint(config, perturbed(weights, draft_noise)))
        draft.checkpoint.tokenizer = draft_tokenizer or draft.checkpoint.tokenizer
        if head_ids is not None:
            draft = Trimmed(draft, np.array(sorted(head_ids), np.int64))
    lower = [
        replace(target, checkpoint=tiny_checkpoint(config, perturbed(weights, noise, seed)))
        for seed, noise in enumerate(lower_noises, 2)
    ]
    return write_bundle(target, draft, folder / "bundle", lower_drafts=lower, verify=verify)
