"""Bundles of random weights at the shapes of real models, where no real ones can be had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.checkpoint import Checkpoint, Tensor
from pilotfish.export.llama import DecoderConfig
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.rope import Rope
from pilotfish.export.sources import BuiltSource
from pilotfish.export.tokenizer_files import TokenizerFiles

NUM_TOKENS, WIDTH = 151_665, 151_936  # of Qwen2.5's vocabulary, and of its padded rows of logits
TILE = 1 << 22  # random numbers that all matrices are cut from, so that drawing them costs nothing


def shape(
    num_layers: int, hidden_size: int, intermediate_size: int, num_heads: int, num_kv_heads: int, head_dim: int
) -> DecoderConfig:  # fmt: skip
    """A model of Qwen2.5's family."""
    return DecoderConfig(
        family="qwen2", num_layers=num_layers, hidden_size=hidden_size, intermediate_size=intermediate_size,
        num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, vocab_size=WIDTH, max_positions=32_768,
        rope=Rope(theta=1e6, width=head_dim), rms_norm_eps=1e-6,
    )  # fmt: skip


SHAPES = {
    "tiny": shape(2, 64, 128, 4, 2, 16),  # to try the scripts with
    "0.5b": shape(24, 896, 4864, 14, 2, 64),
    "1.5b": shape(28, 1536, 8960, 12, 2, 128),
    "7b": shape(28, 3584, 18_944, 28, 4, 128),
}


def random_source(config: DecoderConfig, recipe: str, seed: int = 0) -> BuiltSource:
    """A model of that shape, with a head of its own: with the embedding as its head it would repeat what it reads."""
    tile = np.random.default_rng(seed).standard_normal(TILE, dtype=np.float32)
    rows = {"o": config.hidden_size, "down": config.hidden_size, **dict(config.qkv_parts), **dict(config.gate_up_parts)}
    columns = {"o": config.num_heads * config.head_dim, "down": config.intermediate_size}
    tensors = {("embedding", -1, "weight"): _matrix("embedding", (config.vocab_size, config.hidden_size), tile, 1.0)}
    tensors["head", -1, "weight"] = _matrix("head", (config.vocab_size, config.hidden_size), tile, 0.3)
    tensors["norm", -1, "weight"] = _ones("norm", config.hidden_size)
    for layer in range(config.num_layers):
        for norm in ("attention_norm", "mlp_norm"):
            tensors[norm, layer, "weight"] = _ones(norm, config.hidden_size)
        for stem, num_rows in rows.items():
            matrix_shape = (num_rows, columns.get(stem, config.hidden_size))
            tensors[stem, layer, "weight"] = _matrix(f"{stem}.{layer}", matrix_shape, tile, matrix_shape[1] ** -0.5)
            if stem in ("q", "k", "v"):
                tensors[stem, layer, "bias"] = Tensor(stem, (num_rows,), _cut(tile[None, :num_rows], 0.1))
    return BuiltSource(Checkpoint(Path("random"), config, _tokenizer(), tensors), parse_recipe(recipe))


def random_bundle(folder: Path, target: str, draft: str | None, recipe: str, *, same: bool = False) -> Path:
    """Writes, or finds, the bundle of two shapes; `same` makes the draft the target itself."""
    path = folder / f"{target}-{'itself' if same else draft}-{recipe}"
    if not path.exists():
        source = random_source(SHAPES[target], recipe)
        draft_source = source if same else random_source(SHAPES[draft], recipe, seed=1) if draft else None
        write_bundle(source, draft_source, path, verify=False)
    return path


def _matrix(name: str, matrix_shape: tuple[int, int], tile: NDArray[np.float32], scale: float) -> Tensor:
    num_columns, begin = matrix_shape[1], sum(name.encode()) * 997

    def rows(start: int, stop: int) -> NDArray[np.float32]:
        places = (begin + np.arange(start, stop, dtype=np.int64) * num_columns) % (TILE - num_columns)
        return np.stack([tile[place : place + num_columns] for place in places]) * np.float32(scale)

    return Tensor(name, matrix_shape, rows)


def _ones(name: str, size: int) -> Tensor:
    return Tensor(name, (size,), _cut(np.ones((1, size), np.float32), 1.0))


def _cut(table: NDArray[np.float32], scale: float) -> Callable[[int, int], NDArray[np.float32]]:
    return lambda start, stop: table[start:stop] * np.float32(scale)


def _tokenizer() -> TokenizerFiles:
    """Words w0, w1, … apart by blanks."""
    tokenizer = Tokenizer(models.WordLevel({f"w{number}": number for number in range(NUM_TOKENS)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return TokenizerFiles(tokenizer.to_str(), None, None, (NUM_TOKENS - 1,), add_bos=False)
