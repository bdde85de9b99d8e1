"""A source model, whatever its format: its configuration, its tensors read a few rows at a time, its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilotfish.export.config_json import config_from_hugging_face
from pilotfish.export.gguf import GgufFile
from pilotfish.export.gguf_config import config_from_gguf
from pilotfish.export.gguf_tokenizer import tokenizer_from_gguf
from pilotfish.export.llama import PROJECTIONS, WEIGHT_NAMES, DecoderConfig
from pilotfish.export.source_blocks import PackedSource, packed_source
from pilotfish.export.tokenizer_files import TokenizerFiles, tokenizer_from_folder
from pilotfish.runtime.errors import CheckpointError, UnsupportedModelError

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight: its shape, and `rows(start, stop)` that reads and dequantizes only those rows as float32.

    `packed` is there if the source is quantized: the same rows in a layout of ours that holds them exactly.
    """

    name: str
    shape: tuple[int, ...]
    rows: Callable[[int, int], Floats]
    packed: PackedSource | None = None

    def read(self) -> Floats:
        """The whole tensor, of shape `shape`; meant for vectors."""
        return self.rows(0, self.shape[0] if len(self.shape) == 2 else 1).reshape(self.shape)


@dataclass(slots=True)
class Checkpoint:
    """An open source model; close it when its tensors are no longer needed.

    `tensors` is keyed by the stems of `WEIGHT_NAMES` with the layer filled in, such as `q.weight` of layer 3 under
    `("q", 3, "weight")`; layer is -1 where there is none.
    """

    path: Path
    config: DecoderConfig
    tokenizer: TokenizerFiles
    tensors: Mapping[tuple[str, int, str], Tensor]
    _resources: ExitStack = field(default_factory=ExitStack)

    def find(self, stem: str, layer: int = -1, part: str = "weight") -> Tensor | None:
        """The tensor, or None if the model has no such weight (a bias, or a head that is tied to the embedding)."""
        return self.tensors.get((stem, layer, part))

    def get(self, stem: str, shape: tuple[int, ...], layer: int = -1, part: str = "weight") -> Tensor:
        """The tensor; `CheckpointError` if it is missing or not of `shape`."""
        tensor = self.find(stem, layer, part)
        if tensor is None:
            raise CheckpointError(f"{self.path}: weight {stem}.{part} of layer {layer} is missing")
        if tensor.shape != shape:
            raise CheckpointError(
                f"{self.path}: {tensor.name} has shape {tensor.shape}; the configuration needs {shape}"
            )
        return tensor

    def has_bias(self, stem: str, layer: int = -1) -> bool:
        """Whether the projection has a bias: by the configuration, or by the weights if that leaves it open."""
        biased = self.config.biased
        return self.find(stem, layer, "bias") is not None if biased is None else stem in biased

    def close(self) -> None:
        """Closes the files; idempotent."""
        self._resources.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_checkpoint(path: Path) -> Checkpoint:
    """Opens a GGUF file or a Hugging Face folder with safetensors; `CheckpointError` says why one cannot be read."""
    if path.is_dir():
        return _open_folder(path)
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; give a GGUF file or a Hugging Face folder")
    return _open_gguf(path)


def _open_gguf(path: Path) -> Checkpoint:
    file = GgufFile(path)
    resources = ExitStack()
    resources.callback(file.close)
    try:
        by_name = {name: Tensor(name, t.shape, t.rows, packed_source(t)) for name, t in file.tensors.items()}
        divisors = by_name.pop("rope_freqs.weight", None)
        config = config_from_gguf(file.metadata, None if divisors is None else divisors.read().tolist())
        tokenizer = tokenizer_from_gguf(file.metadata)
        return Checkpoint(path, config, tokenizer, _by_stem(path, by_name, config, 0), resources)
    except BaseException:
        resources.close()
        raise


def _open_folder(path: Path) -> Checkpoint:
    values = read_json(path / "config.json")
    config = config_from_hugging_face(values)
    tokenizer = tokenizer_from_folder(path)
    resources = ExitStack()
    try:
        tensors = open_safetensors(path, resources)
        _tie(path, tensors, values.get("tie_word_embeddings"))
        return Checkpoint(path, config, tokenizer, _by_stem(path, tensors, config, 1), resources)
    except BaseException:
        resources.close()
        raise


def open_safetensors(folder: Path, resources: ExitStack) -> dict[str, Tensor]:
    """The tensors of all shards by name, whose files `resources` closes; `CheckpointError` if a shard is missing."""
    return {name: tensor for file in _safetensors_files(folder) for name, tensor in _open_shard(file, resources)}


def _safetensors_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        files = [folder / name for name in sorted(set(read_json(index).get("weight_map", {}).values()))]
    else:  # beside a whole model.safetensors there may be the same weights under other names
        files = sorted(folder.glob("model.safetensors")) or sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{folder} has no *.safetensors files; other weight formats are not read")
    for file in files:
        if not file.is_file():
            raise CheckpointError(f"{file} is missing although {index.name} names it; download it again")
    return files


def _open_shard(file: Path, resources: ExitStack) -> list[tuple[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        opened = resources.enter_context(safe_open(file, framework="np"))
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} is not a whole safetensors file ({error}); download it again") from error
    return [(name, _sliced(name, opened.get_slice(name))) for name in opened.keys()]  # noqa: SIM118


def _sliced(name: str, view: Any) -> Tensor:
    shape = tuple(view.get_shape())
    if view.get_dtype() not in ("F32", "F16", "BF16"):
        raise CheckpointError(f"{name} is of type {view.get_dtype()}; supported are F32, F16 and BF16")

    def rows(start: int, stop: int) -> Floats:
        part = view[start:stop] if len(shape) > 1 else view[:][None, :]
        return np.asarray(part).astype(np.float32, copy=False)

    return Tensor(name, shape, rows)


def _tie(path: Path, tensors: dict[str, Tensor], is_tied: bool | None) -> None:
    """Drops a stored head that the model does not use; `is_tied` is None where the weights alone say it."""
    if is_tied:
        tensors.pop("lm_head.weight", None)
    elif is_tied is False and "lm_head.weight" not in tensors:
        raise CheckpointError(f"{path}: weight lm_head.weight is missing, but tie_word_embeddings is false")


def _by_stem(
    path: Path, tensors: Mapping[str, Tensor], config: DecoderConfig, name_format: int
) -> dict[tuple[str, int, str], Tensor]:
    """The tensors by stem, layer and part; `UnsupportedModelError` on one that the decoder would leave unused."""
    found, used = {}, set()
    biased = PROJECTIONS if config.biased is None else config.biased
    for stem in config.stems:
        template = WEIGHT_NAMES[stem][name_format]
        for layer in range(config.num_layers) if "{layer}" in template else (-1,):
            for part in ("weight", "bias") if stem in biased else ("weight",):
                name = f"{template.format(layer=layer)}.{part}"
                if name in tensors:
                    found[stem, layer, part] = tensors[name]
                    used.add(name)
    unused = sorted(name for name in tensors.keys() - used if not name.endswith("rotary_emb.inv_freq"))
    if unused:
        others = f" and {len(unused) - 1} others" if len(unused) > 1 else ""
        raise UnsupportedModelError(
            f"{path}: {unused[0]}{others} would be left unused by a {config.family} decoder of {config.num_layers} "
            "layers as configured; the model computes something that is not supported"
        )
    return found


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; `CheckpointError` names the file and the position of a fault."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} does not exist; the folder is not a Hugging Face model") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a {type(value).__name__}; a JSON object is needed")
    return value
