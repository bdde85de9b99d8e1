"""What a machine with a GPU should be asked, in one run of ten minutes, with one report.

Usage: python benchmarks/gpu.py FOLDER [--device cuda] [--sizes 0.5b 1.5b 7b] [--recipe int4-b128-fp16] [--seconds 540]

Needs nothing but this repository and its packages: the models have random weights at real shapes, so they say nothing
of acceptance. Two drafts stand for its ends: the target itself, of which all is accepted, and another random model, of
which nothing is. What a part finds is kept in FOLDER/parts, and a part that is there is not run again, so a run that
was cut off goes on; the report is FOLDER/gpu.md. A part that fails is told there, and the others go on. With
`--device cpu --sizes tiny` the script itself can be tried anywhere.
"""

from __future__ import annotations

import argparse
import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from random_models import random_bundle

from pilotfish.runtime import Engine, GenerationOptions, SamplingParams, load, load_bundle
from pilotfish.runtime.bundle import ModelEntry
from pilotfish.runtime.costs import WIDTHS, measure
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.doctor import examine, line
from pilotfish.runtime.filters import Logits, softmax
from pilotfish.runtime.fit import gigabytes
from pilotfish.runtime.machine import collect
from pilotfish.runtime.nvml import free_gpu_bytes
from pilotfish.runtime.plan import ROUND_WIDTHS, Plan
from pilotfish.runtime.text_table import markdown_table
from pilotfish.runtime.warm_up import warm_up

NUM_COMPARED, NUM_WRITTEN, CONTEXT_LENGTH = 96, 128, 2048
PARITY_RECIPES = ("fp32", "fp16", "int8-fp16", "int4-b128-fp16")
PROMPT = " ".join(f"w{number * number % 5000}" for number in range(1, 200))


@dataclass(frozen=True, slots=True)
class Asked:
    """What is measured: where bundles go, on which device, at which shapes, stored how."""

    bundles: Path
    device: str
    sizes: Sequence[str]
    recipe: str

    def pair(self, *, same: bool) -> Path:
        """The largest target with the smallest model as its draft, or with itself."""
        return random_bundle(self.bundles, self.sizes[-1], self.sizes[0], self.recipe, same=same)


def machine(_: Asked) -> str:
    """What `pilotfish doctor` finds."""
    return "```\n" + "\n".join(line(finding) for finding in examine(collect())) + "\n```"


def parity(asked: Asked) -> str:
    """The smallest shape on the device against the CPU, recipe by recipe."""
    rows = []
    for recipe in PARITY_RECIPES:
        bundle = load_bundle(random_bundle(asked.bundles, asked.sizes[0], None, recipe))
        token_ids = np.random.default_rng(0).integers(0, 5000, NUM_COMPARED).tolist()
        model, devices = bundle.manifest.target, (asked.device, "cpu")
        found, expected = (_logits(bundle.path, model, device, token_ids) for device in devices)
        probs, log_ratio = softmax(expected), np.log(softmax(expected)) - np.log(softmax(found))
        rows.append((
            recipe, f"{np.abs(found - expected).max():.3g}", f"{np.abs(expected).max():.3g}",
            f"{(probs * log_ratio).sum(axis=1).mean():.2g}",
            f"{(found.argmax(axis=1) == expected.argmax(axis=1)).mean():.1%}",
        ))  # fmt: skip
    return markdown_table(("recipe", ">max difference", ">largest logit", ">mean KL", ">same first"), rows)


def exactness(asked: Asked) -> str:
    """Greedy output with each drafter against output without, in both modes."""
    rows = []
    for exact in (True, False):
        for same in (False, True):
            with load(asked.pair(same=same), device=asked.device, exact=exact, context_length=CONTEXT_LENGTH) as engine:
                plain = _written(engine, "off")
                for draft in ("model", "lookup", "auto"):
                    equal = sum(a == b for a, b in zip(_written(engine, draft), plain, strict=False))
                    rows.append((
                        "exact" if exact else "fast", "itself" if same else "another", draft,
                        f"{equal} of {len(plain)}", str(engine.stats.num_near_ties),
                    ))  # fmt: skip
    return markdown_table(("mode", "draft", "drafter", ">equal tokens", ">near-ties"), rows)


def costs(asked: Asked) -> str:
    """Milliseconds of a pass by the number of its tokens."""
    rows = []
    for size in asked.sizes:
        bundle = load_bundle(random_bundle(asked.bundles, size, None, asked.recipe))
        model = bundle.manifest.target
        with Decoder(model, bundle.path / model.graph, device=asked.device, context_length=CONTEXT_LENGTH) as decoder:
            decoder.forward(list(range(1, 257)), 1)
            found = measure(decoder, repeats=9)
        rows.append((size, *(f"{1e3 * found.seconds(width):.2f}" for width in WIDTHS)))
    return markdown_table(("shape", *(f">{width}" for width in WIDTHS)), rows)


def speed(asked: Asked) -> str:
    """Tokens a second of the target alone, with fixed numbers of drafted tokens, and with the controller."""
    rows = []
    for same in (True, False):
        with load(asked.pair(same=same), device=asked.device, exact=False, context_length=CONTEXT_LENGTH) as engine:
            for draft, number in (("off", 1), ("model", 2), ("model", 4), ("model", 8), ("auto", 4)):
                _written(engine, draft, number)
                _written(engine, draft, number)  # the first has bound the widths
                stats = engine.stats
                rows.append((
                    "itself" if same else "another", draft, str(number), f"{stats.tokens_per_s:.1f}",
                    f"{stats.acceptance_rate:.0%}", f"{1e3 * stats.host_s / stats.num_rounds:.2f}", stats.speculation,
                ))  # fmt: skip
    return markdown_table(
        ("draft", "drafter", ">k", ">tokens/s", ">accepted", ">host, ms a round", "what it says"), rows
    )


def cuda_graphs(asked: Asked) -> str:
    """Milliseconds of a pass by the number of its tokens, as it comes and as it is recorded (on the CPU: as planned).

    And tokens a second with a draft that is the target itself, 4 tokens a round.
    """
    rows = []
    for size in asked.sizes:
        bundle = load_bundle(random_bundle(asked.bundles, size, None, asked.recipe))
        model = bundle.manifest.target
        for plan in (Plan(), Plan(ROUND_WIDTHS, records=True)):
            with Decoder(
                model, bundle.path / model.graph, device=asked.device, context_length=CONTEXT_LENGTH, plan=plan
            ) as decoder:
                warm_up(decoder)
                decoder.forward(list(range(1, 257)), 1)
                found = measure(decoder, repeats=9)
            times = (f"{1e3 * found.seconds(width):.2f}" for width in WIDTHS)
            rows.append((size, "on" if plan.records else "off", *times))
    table = markdown_table(("shape", "graphs", *(f">{width}" for width in WIDTHS)), rows)
    speeds = []
    for is_on in (False, True) if asked.device == "cuda" else (False,):
        with load(
            asked.pair(same=True), device=asked.device, exact=False, context_length=CONTEXT_LENGTH, cuda_graphs=is_on
        ) as engine:
            speeds.append(("on" if is_on else "off", _tokens_per_s(engine)))
    return f"{table}\n\n{markdown_table(('graphs', '>tokens/s'), speeds)}"


def placement(asked: Asked) -> str:
    """Tokens a second with draft and target on one device and on two, 4 tokens a round, another model as draft."""
    rows = []
    places = dict.fromkeys([(asked.device, asked.device), (asked.device, "cpu"), ("cpu", asked.device)])
    for target, draft in places:
        with load(
            asked.pair(same=False), device=target, draft_device=draft, exact=False, context_length=CONTEXT_LENGTH
        ) as engine:
            rows.append((target, draft, _tokens_per_s(engine)))
    return markdown_table(("target", "draft", ">tokens/s"), rows)


def traffic(asked: Asked) -> str:
    """Bytes from the device to the host, and back, in a round; draft and target together."""
    rows = []
    for temperature_top_k in ((0.0, 0), (0.8, 40), (0.8, 0)):
        with load(asked.pair(same=True), device=asked.device, exact=False, context_length=CONTEXT_LENGTH) as engine:
            before = _crossed(engine)
            _written(engine, "model", 4, *temperature_top_k)
            crossed = [now - then for now, then in zip(_crossed(engine), before, strict=True)]
            per_round = (f"{num_bytes / engine.stats.num_rounds / 1e3:.2f}" for num_bytes in crossed)
            rows.append((*map(str, temperature_top_k), *per_round))
    return markdown_table((">temperature", ">top-k", ">kB to the host", ">kB to the device"), rows)


def memory(asked: Asked) -> str:
    """What was predicted, and what the GPU has less of while a bundle is loaded."""
    rows = []
    for size in asked.sizes:
        path, before = random_bundle(asked.bundles, size, None, asked.recipe), free_gpu_bytes()
        with load(path, device=asked.device, context_length=CONTEXT_LENGTH) as engine:
            _written(engine, "off")
            predicted = sum(each.weight_bytes + each.cache_bytes for each in engine.memory.values())
            after = free_gpu_bytes()
        taken = "not known" if before is None or after is None else gigabytes(before - after)
        rows.append((size, gigabytes(predicted), taken))
    return markdown_table(("shape", ">weights and caches", ">taken"), rows)


def tensorrt(asked: Asked) -> str:
    """Whether TensorRT runs the smallest shape, and what a pass then costs."""
    bundle = load_bundle(random_bundle(asked.bundles, asked.sizes[0], None, "fp16"))
    model, started = bundle.manifest.target, time.perf_counter()
    with Decoder(model, bundle.path / model.graph, device="tensorrt", context_length=CONTEXT_LENGTH) as decoder:
        warm_up(decoder)
        found, load_s = measure(decoder, widths=(1, 5)), time.perf_counter() - started
    passes = f"a pass of 1 token {1e3 * found.seconds(1):.2f} ms, of 5 {1e3 * found.seconds(5):.2f} ms"
    return f"loads and builds in {load_s:.0f} s; {passes}"


PARTS: tuple[Callable[[Asked], str], ...] = (
    machine, parity, costs, speed, exactness, traffic, cuda_graphs, placement, memory, tensorrt,
)  # fmt: skip


def main() -> None:
    """Runs the parts that are missing, as long as there is time, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", nargs="+", default=["0.5b", "1.5b", "7b"])
    parser.add_argument("--recipe", default="int4-b128-fp16")
    parser.add_argument("--bundles", type=Path, help="where the models are kept; default: FOLDER/bundles")
    parser.add_argument("--seconds", type=float, default=540, help="no part begins after so many")
    arguments = parser.parse_args()
    kept = arguments.folder / "parts"
    kept.mkdir(parents=True, exist_ok=True)
    bundles = arguments.bundles or arguments.folder / "bundles"
    asked = Asked(bundles, arguments.device, arguments.sizes, arguments.recipe)
    ends = time.monotonic() + arguments.seconds
    for part in PARTS:
        if not (kept / f"{part.__name__}.md").exists() and time.monotonic() < ends:
            _run(part, asked, kept)
        # after each part, since the machine may be taken away
        (arguments.folder / "gpu.md").write_text(report(asked, kept), encoding="utf-8")


def _run(part: Callable[[Asked], str], asked: Asked, kept: Path) -> None:
    started, failure = time.monotonic(), kept / f"{part.__name__}.failed"
    try:
        text = part(asked)
    except Exception:  # whatever a device of an unknown kind says belongs into the report
        failure.write_text(f"failed:\n\n```\n{traceback.format_exc()}```", encoding="utf-8")
        return
    (kept / f"{part.__name__}.md").write_text(f"{text}\n\n{time.monotonic() - started:.0f} s", encoding="utf-8")
    failure.unlink(missing_ok=True)


def report(asked: Asked, kept: Path) -> str:
    """The parts in order; what is missing is named."""
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    at = revision.stdout.strip() or "an unknown revision"
    parts = [f"# On {asked.device}\n\nShapes {', '.join(asked.sizes)}, {asked.recipe}, at {at}."]
    for part in PARTS:
        found = [path for path in (kept / f"{part.__name__}.md", kept / f"{part.__name__}.failed") if path.exists()]
        text = found[0].read_text(encoding="utf-8") if found else "not run: no time was left"
        parts.append(f"## {part.__name__.capitalize()}\n\n{(part.__doc__ or '').strip()}\n\n{text}")
    return "\n\n".join(parts) + "\n"


def _logits(folder: Path, model: ModelEntry, device: str, token_ids: list[int]) -> Logits:
    with Decoder(model, folder / model.graph, device=device, context_length=CONTEXT_LENGTH) as decoder:
        found: Logits = decoder.forward(token_ids, len(token_ids)).copy()
        return found


def _crossed(engine: Engine) -> tuple[int, int]:
    decoders = engine._context.decoders.values()
    return sum(each.num_host_bytes for each in decoders), sum(each.num_device_bytes for each in decoders)


def _tokens_per_s(engine: Engine) -> str:
    for _ in range(2):  # the first has bound what it needs
        _written(engine, "model", 4)
    return f"{engine.stats.tokens_per_s:.1f}"


def _written(engine: Engine, draft: str, number: int = 4, temperature: float = 0.0, top_k: int = 0) -> list[int]:
    engine.reset()
    sampling = SamplingParams(temperature=temperature, top_k=top_k, seed=0, min_tokens=NUM_WRITTEN)
    options = GenerationOptions(NUM_WRITTEN, sampling, draft, number)
    return [token_id for chunk in engine.generate(PROMPT, options) for token_id in chunk.token_ids]


if __name__ == "__main__":
    main()
