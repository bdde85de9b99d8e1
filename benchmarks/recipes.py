"""Compares recipes on one model, with each other and with llama.cpp: size, distance from the source, pass durations.

Usage: python benchmarks/recipes.py SOURCE [RECIPE ...] [--threads 2] [--rounds 5]
       python benchmarks/recipes.py MODEL.gguf --llama-cpp PYTHON > benchmarks/reports/recipes.md

`SOURCE` is a GGUF file or a Hugging Face folder; all that is stored of it goes into a temporary folder. `PYTHON` is the
interpreter of the environment that `recipes_llama_cpp.py` describes: llama.cpp then runs the GGUF file as it is, and
copies of it that it quantized once more, on the same token ids and with as many threads.

Prints a report in Markdown, which says how things are measured.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pass_times import NUM_PAST, REPEATS, WIDTHS, pass_times
from recipes_report import AIM, OURS, REPORT, WITH_LLAMA_CPP, Distance, Result, machine, table

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.checkpoint import Tensor, open_checkpoint
from pilotfish.export.parity import divergences, logits_of, perplexity, sample_ids
from pilotfish.export.quantize import Recipe, parse_recipe
from pilotfish.export.recipe_choice import CANDIDATES
from pilotfish.export.reference import reference_logits
from pilotfish.export.sources import open_source
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.tokenizer import Tokenizer

Floats = NDArray[np.float32]
Seconds = dict[str, list[float]]

DEFAULT = ("source", "int4-b128", *map(str, CANDIDATES))
COPIES = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0")
THEIRS = "llama.cpp"


@dataclass(frozen=True, slots=True)
class Stored:
    """A model as one engine stores it. `logits` and `seconds` load it, run it over the sample, and close it."""

    engine: str
    name: str
    num_bytes: int
    logits: Callable[[], Floats]
    seconds: Callable[[], Seconds]
    is_copy: bool = False


def export(path: Path, recipe: Recipe, folder: Path, num_threads: int) -> tuple[Stored, list[int]]:
    """Exports the model by a recipe; also the token ids of the sample."""
    say(f"exporting {recipe}")
    with closing(open_source(path, recipe)) as source:
        bundle = load_bundle(write_bundle(source, None, folder / str(recipe), verify=False))
    model = bundle.manifest.target
    token_ids = sample_ids(Tokenizer(bundle), model)

    def opened() -> Decoder:
        graph, length = bundle.path / model.graph, len(token_ids)
        return Decoder(model, graph, device="cpu", context_length=length, num_threads=num_threads)

    def logits() -> Floats:
        with opened() as decoder:
            return logits_of(decoder, token_ids)

    def seconds() -> Seconds:
        with opened() as decoder:
            return pass_times(lambda ids: decoder.forward(ids, len(ids)), decoder.rollback, token_ids)

    num_bytes = sum(file.stat().st_size for file in bundle.path.rglob("*") if file.is_file())
    return Stored(OURS, str(recipe), num_bytes, logits, seconds), token_ids


class LlamaCpp:
    """llama.cpp behind the interpreter that has it."""

    def __init__(self, python: Path, folder: Path, token_ids: Sequence[int], num_threads: int) -> None:
        """Writes the token ids into `folder`, which copies and logits go into as well."""
        self._python, self._folder, self._threads = python, folder, f"--threads={num_threads}"
        self._ids = folder / "ids.npy"
        np.save(self._ids, np.array(token_ids, np.int32))

    def call(self, *task: str | Path) -> Any:
        """The JSON that a task prints, None if nothing; its errors go to standard error, and end the program."""
        script = Path(__file__).with_name("recipes_llama_cpp.py")
        command = [str(part) for part in (self._python, script, *task)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{shlex.join(command)} failed:\n{done.stderr[-2000:]}")
        return json.loads(done.stdout) if done.stdout else None

    def copy(self, source: Path, type_name: str) -> Stored:
        """The GGUF file with its weights quantized once more."""
        say(f"quantizing to {type_name}")
        output = self._folder / f"{type_name}.gguf"
        self.call("quantize", source, type_name, output)
        return replace(self.stored(output, f"{type_name} of it"), is_copy=True)

    def stored(self, path: Path, name: str) -> Stored:
        """A GGUF file."""
        return Stored(THEIRS, name, path.stat().st_size, lambda: self._logits(path), lambda: self._seconds(path))

    def _logits(self, path: Path) -> Floats:
        output = self._folder / "logits.npy"
        self.call("logits", path, self._ids, output, self._threads)
        logits: Floats = np.load(output)
        return logits

    def _seconds(self, path: Path) -> Seconds:
        seconds: Seconds = self.call("times", path, self._ids, self._threads)
        return seconds


def logits_of_an_original(path: Path, token_ids: Sequence[int]) -> Floats:
    """The logits of weights that the source may have been rounded from.

    To each quantized weight comes an error that is uniform within its rounding step.
    """

    def unrounded(tensor: Tensor) -> Tensor:
        if tensor.packed is None:
            return tensor
        packed = tensor.packed

        def rows(start: int, stop: int) -> Floats:
            weights = tensor.rows(start, stop)
            steps = np.repeat(packed.rows(start, stop).scales, packed.layout.block_size, axis=1)
            # Pieces are read side by side, so each has a generator of its own.
            rng = np.random.default_rng((zlib.crc32(tensor.name.encode()), start))
            return weights + steps * (rng.random(weights.shape, np.float32) - np.float32(0.5))

        return replace(tensor, rows=rows)

    with open_checkpoint(path) as checkpoint:
        tensors = {key: unrounded(tensor) for key, tensor in checkpoint.tensors.items()}
        return reference_logits(replace(checkpoint, tensors=tensors), token_ids)


def distance(reference: Floats, logits: Floats, token_ids: Sequence[int]) -> Distance:
    """How far `logits` are from `reference`; both (N, V)."""
    divergence = divergences(reference, logits)
    return Distance(
        mean_kl=float(divergence.mean()),
        median_kl=float(np.median(divergence)),
        max_kl=float(divergence.max()),
        top1_agreement=float(np.mean(reference.argmax(axis=1) == logits.argmax(axis=1))),
        perplexity=perplexity(logits, token_ids),
    )


def measured(models: Sequence[Stored], reference: Floats, token_ids: Sequence[int], num_rounds: int) -> list[Result]:
    """Distances, then times by turns, so that a slow moment of the machine meets all models alike."""
    distances = []
    for model in models:
        say(f"comparing {model.engine} {model.name}")
        distances.append(distance(reference, model.logits(), token_ids))
    seconds: list[Seconds] = [{str(width): [] for width in WIDTHS} for _ in models]
    for number in range(num_rounds):
        say(f"timing, round {number + 1} of {num_rounds}")
        for model, found in zip(models, seconds, strict=True):
            for width, times in model.seconds().items():
                found[width] += times
    return [
        Result(model.engine, model.name, model.num_bytes, far, times, model.is_copy)
        for model, far, times in zip(models, distances, seconds, strict=True)
    ]


def say(what: str) -> None:
    """Progress, beside the report."""
    print(what, file=sys.stderr, flush=True)


def compare(arguments: argparse.Namespace, folder: Path) -> str:
    """Runs the comparison, with all files in `folder`, and returns the report."""
    path, num_threads = arguments.source, arguments.threads
    recipes = dict.fromkeys(map(parse_recipe, arguments.recipes))
    exported = [export(path, recipe, folder, num_threads) for recipe in recipes]
    models, token_ids = [model for model, _ in exported], exported[0][1]
    say("computing the reference")
    with closing(open_source(path, parse_recipe("fp32"))) as source:
        reference = source.logits(token_ids, lambda num_weights: None)
    versions = [f"{name} {version(name)}" for name in ("pilotfish", "onnxruntime", "numpy")]
    estimates = []
    if arguments.llama_cpp:
        peer = LlamaCpp(arguments.llama_cpp, folder, token_ids, num_threads)
        versions.append(peer.call("version"))
        models += [peer.stored(path, "the GGUF as it is"), *(peer.copy(path, name) for name in COPIES)]
        say("estimating the source's own rounding")
        own = distance(logits_of_an_original(path, token_ids), reference, token_ids)
        estimates.append(Result("", "the source's own rounding, estimated", path.stat().st_size, own, {}))
    results = measured(models, reference, token_ids, arguments.rounds)
    near = [each.name for each in results if each.engine == OURS and each.distance.mean_kl < AIM]
    shown = {str(path): path.name, str(arguments.llama_cpp): "PYTHON"}
    report = REPORT.format(
        name=path.name,
        command=shlex.join(["python", "benchmarks/recipes.py", *(shown.get(part, part) for part in sys.argv[1:])]),
        machine=machine(num_threads),
        versions=", ".join(versions),
        table=table(results + estimates),
        num_tokens=len(token_ids),
        perplexity=perplexity(reference, token_ids),
        aim=AIM,
        near=", ".join(near) or "none",
        past=NUM_PAST,
        num_times=arguments.rounds * REPEATS,
        num_rounds=arguments.rounds,
    )
    return report + WITH_LLAMA_CPP if arguments.llama_cpp else report


def main() -> None:
    """Prints the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("recipes", nargs="*", default=DEFAULT)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--llama-cpp", type=Path, metavar="PYTHON")
    arguments = parser.parse_args()
    if arguments.llama_cpp and arguments.source.is_dir():
        parser.error("--llama-cpp needs a GGUF file")
    with tempfile.TemporaryDirectory() as folder:
        print(compare(arguments, Path(folder)), end="")


if __name__ == "__main__":
    main()
