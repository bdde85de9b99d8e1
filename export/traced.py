"""Exports a model of any architecture by tracing it; needs the extra `torch`.

The graph has the contract of `graph.py`'s. The steps: load and trace (`traced_model.py`), tidy (`passes.py`), compare
with PyTorch (`traced_gate.py`), write the recipe's products (`traced_products.py`). See README.md.
"""

from __future__ import annotations

import gc
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.export.quantize import Recipe
from pilotfish.export.weight_file import WeightFile
from pilotfish.export.weights import Progress, WeightWriter
from pilotfish.runtime.bundle import ModelEntry
from pilotfish.runtime.errors import CheckpointError, OptionError, UnsupportedModelError

if TYPE_CHECKING:
    from pilotfish.export.traced_gate import Reference

NEEDED = ("torch", "transformers", "optimum")


def write_traced(
    model_folder: Path, recipe: Recipe, directory: Path, progress: Progress = lambda num_weights: None
) -> tuple[str, ModelEntry]:
    """Writes `model.onnx` and `model.onnx.data` into `directory` for the Hugging Face model in `model_folder`.

    Returns the data file's sha256, and the model's entry in a manifest, in which `graph` is relative to `directory` and
    `source` empty. `progress` is called with the number of weight elements finished since the last call. Holds the
    model once, in float32. Raises `CheckpointError` that names the architecture if it cannot keep the contract or its
    numbers differ from PyTorch's, and `OptionError` if the extra is missing.
    """
    need_torch_extra()
    from pilotfish.export.traced_gate import check_bundle

    digest, entry, reference = _write(model_folder, recipe, directory, progress)
    gc.collect()  # the model goes before its graph is opened
    check_bundle(directory / entry.graph, entry, reference)
    return digest, entry


def require_tracing(path: Path, reason: UnsupportedModelError) -> None:
    """Returns if a model that has no builder, for the `reason` given, can be traced.

    Raises `reason` for what is no folder, and `OptionError` if the extra is missing.
    """
    if not path.is_dir():
        raise reason
    try:
        need_torch_extra()
    except OptionError as missing:
        raise OptionError(f"{path} has no builder ({reason}); {missing}") from reason


def require_float32(path: Path, recipe: Recipe) -> None:
    """`OptionError` if the recipe of a model that is to be traced computes with other floats than the trace does."""
    if recipe.floats != "float32":
        raise OptionError(
            f"{path} has no builder, and a traced model computes in float32; "
            f"choose another recipe than {recipe}, such as fp32, int8 or int4"
        )


def need_torch_extra() -> None:
    """`OptionError` with the install command if a package that tracing needs is missing."""
    if missing := [name for name in NEEDED if not importlib.util.find_spec(name)]:
        raise OptionError(
            f"exporting a model that has no builder needs {', '.join(missing)}; "
            "run `pip install 'pilotfish[cpu,export,torch]'`"
        )


def _write(
    model_folder: Path, recipe: Recipe, directory: Path, progress: Progress
) -> tuple[str, ModelEntry, Reference]:
    from pilotfish.export.passes import tidy
    from pilotfish.export.traced_gate import Reference, check_trace
    from pilotfish.export.traced_model import load_model, trace
    from pilotfish.export.traced_products import write_products

    model = load_model(model_folder)
    traced = trace(model)
    family = model.config.model_type
    try:
        graph = tidy(traced.graph, traced.weights)
    except Exception as error:  # ONNX Runtime raises a different class for each status code
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(
            f"{family} cannot be exported: ONNX Runtime does not accept its graph ({reason})"
        ) from error
    entry = ModelEntry(
        graph="model.onnx",
        family=family,
        num_layers=traced.num_layers,
        num_kv_heads=traced.num_kv_heads,
        head_dim=traced.head_dim,
        vocab_size=traced.vocab_size,
        max_positions=traced.max_positions,
        recipe=str(recipe),
        source={},
    )
    reference = Reference(model, entry.vocab_size)
    check_trace(model, graph, traced.weights, entry, reference)
    with WeightFile(directory / "model.onnx.data") as weight_file:
        write_products(graph, traced.weights, WeightWriter(weight_file, recipe, progress))
        graph.graph.initializer.extend(weight_file.initializers)
        digest = weight_file.sha256
    (directory / entry.graph).write_bytes(graph.SerializeToString())
    return digest, entry, reference
