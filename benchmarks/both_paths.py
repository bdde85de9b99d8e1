"""Exports real models by the builder and by tracing, and compares both with PyTorch and with each other.

Usage: python benchmarks/both_paths.py MODEL.gguf [MODEL.gguf ...] [--quant fp32]

transformers turns each GGUF file into a Hugging Face folder, in float32, below the current folder. Both paths export
that folder, each in a process of its own whose peak memory is taken, and both graphs run over the shipped text sample.
Needs the extra torch, and the packages gguf and accelerate for transformers to read GGUF files.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import asdict, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from pilotfish.export.parity import MAX_TOKENS, divergences, logits_of
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import open_source
from pilotfish.export.traced import write_traced
from pilotfish.export.traced_gate import eager_logits
from pilotfish.export.traced_model import load_model
from pilotfish.runtime.bundle import ModelEntry, TensorNames
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.text_table import text_table

PATHS = ("builder", "traced")


def folder_of(gguf: Path, folder: Path) -> Path:
    """Writes the model as a Hugging Face folder, whose embedding is the head, as in the originals of these models.

    Their GGUF files have the two in different types.
    """
    names = {"gguf_file": gguf.name}
    AutoTokenizer.from_pretrained(gguf.parent, **names).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, **names, dtype="float32")
    model.get_input_embeddings().weight = model.get_output_embeddings().weight
    model.config.tie_word_embeddings = True
    model.save_pretrained(folder)
    return folder


def export(path: str, model: Path, recipe: str, scratch: Path) -> None:
    """Exports by one path, and leaves the entry of a manifest, seconds and peak memory beside the graph."""
    output = scratch / path
    started = time.perf_counter()
    if path == "builder":
        with closing(open_source(model, parse_recipe(recipe))) as source:
            _, entry = source.write(scratch, path, lambda num_weights: None)
    else:
        output.mkdir()
        _, entry = write_traced(model, parse_recipe(recipe), output)
        entry = replace(entry, graph=f"{path}/{entry.graph}")
    seconds, peak = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    (output / "result.json").write_text(json.dumps({"entry": asdict(entry), "seconds": seconds, "peak": peak}))


def logits(entry: ModelEntry, folder: Path, token_ids: list[int]) -> NDArray[np.float32]:
    """The logits of a graph after each token."""
    with Decoder(entry, folder / entry.graph, device="cpu", context_length=len(token_ids)) as decoder:
        return logits_of(decoder, token_ids)


def compare(gguf: Path, recipe: str, scratch: Path) -> list[tuple[str, ...]]:
    """A row of the table for each path."""
    model = folder_of(gguf, scratch / "model")
    results = {}
    for path in PATHS:
        command = [sys.executable, __file__, "--one", path, str(model), recipe, str(scratch)]
        subprocess.run(command, check=True)
        results[path] = json.loads((scratch / path / "result.json").read_text())
    entries = {
        path: ModelEntry(**result["entry"] | {"tensors": TensorNames(**result["entry"]["tensors"])})
        for path, result in results.items()
    }
    text = files("pilotfish.export").joinpath("sample.txt").read_text(encoding="utf-8")
    token_ids = (
        Tokenizer.from_file(str(model / "tokenizer.json")).encode(text, add_special_tokens=False).ids[:MAX_TOKENS]
    )
    found = {path: logits(entry, scratch, token_ids) for path, entry in entries.items()}
    expected = eager_logits(load_model(model), token_ids)
    apart = np.abs(found["builder"] - found["traced"]).max()
    return [
        (
            gguf.stem, path, recipe, f"{result['seconds']:.0f}", f"{result['peak'] / 1e9:.1f}",
            f"{divergences(expected, found[path]).mean():.1g}", f"{np.abs(found[path] - expected).max():.1g}",
            f"{apart:.1g}", f"{np.abs(expected).max():.0f}",
        )
        for path, result in results.items()
    ]  # fmt: skip


def main() -> None:
    """Prints the table."""
    if sys.argv[1:2] == ["--one"]:
        path, model, recipe, scratch = sys.argv[2:]
        export(path, Path(model), recipe, Path(scratch))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--quant", default="fp32")
    arguments = parser.parse_args()
    rows = []
    for gguf in arguments.models:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
            rows += compare(gguf, arguments.quant, Path(scratch))
    headings = (
        "model", "path", "recipe", ">seconds", ">peak, GB", ">mean KL", ">from PyTorch", ">from the other", ">largest",
    )  # fmt: skip
    print(text_table(headings, rows))


if __name__ == "__main__":
    main()
