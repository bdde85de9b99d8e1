"""Compares ways of drafting with the target alone, over prompts of six kinds, and with the best of them in hindsight.

Usage: python benchmarks/drafting.py BUNDLE [--max-tokens 128] [--kinds code,edit] [--temperature 0.8] [-k 2 4 6]
       python benchmarks/drafting.py BUNDLE --hopeless [...]

Every prompt is answered by every arm from cold caches, one arm after the other, in an order that turns from prompt to
prompt: the target alone (`off`), the draft model with each fixed k (`model k`), `lookup`, and the controller (`auto`).
Rows are kinds of prompts, cells the time of the target alone divided by the arm's, for the same number of tokens: each
arm's seconds a token, summed over the prompts of the kind. Sampled output is seed-exact, so all arms write one text.

`oracle` takes for each prompt the arm that was fastest in this run, which no controller can know beforehand. With
`--hopeless` the codes of the draft model's weights are shuffled first, so that it guesses.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import numpy as np
import onnx

from pilotfish import runtime as pilotfish
from pilotfish.runtime import Engine, GenerationOptions, SamplingParams, Stats
from pilotfish.runtime.bench.prompts import Prompt
from pilotfish.runtime.bundle import MANIFEST, load_bundle, manifest_to_json
from pilotfish.runtime.text_table import markdown_table

Arm = tuple[str, int]  # draft and number of drafted tokens
ALONE, AUTO = ("off", 1), ("auto", 4)


@contextmanager
def hopeless(bundle: Path) -> Any:
    """A copy of the bundle whose draft has the codes of each weight in another order; scales and norms stay."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "bundle"
        shutil.copytree(bundle, copy)
        graph = onnx.load(copy / "draft" / "model.onnx", load_external_data=False).graph
        data = np.memmap(copy / "draft" / "model.onnx.data", np.uint8, "r+")
        rng = np.random.default_rng(0)
        for tensor in graph.initializer:
            if tensor.data_type in (onnx.TensorProto.UINT8, onnx.TensorProto.INT8) and tensor.external_data:
                place = {entry.key: int(entry.value) for entry in tensor.external_data if entry.key != "location"}
                codes = data[place["offset"] : place["offset"] + place["length"]].reshape(-1, 16)
                codes[:] = codes[rng.permutation(len(codes))]
        data.flush()
        # Another bundle to the kept calibrations, as this draft agrees with the target no more.
        manifest = load_bundle(copy).manifest
        changed = replace(manifest, created_by=f"{manifest.created_by}, shuffled")
        (copy / MANIFEST).write_text(manifest_to_json(changed), encoding="utf-8")
        yield copy


def seconds_a_token(stats: Stats) -> float:
    """The pause before each token but the first, on average."""
    return 1 / stats.tokens_per_s


def name_of(arm: Arm) -> str:
    """How the table names an arm."""
    return f"{arm[0]} {arm[1]}" if arm[0] == "model" else arm[0]


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--kinds", default="", help="separated by commas; default: all")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("-k", "--num-draft-tokens", type=int, nargs="+", default=[2, 4, 6])
    parser.add_argument("--hopeless", action="store_true")
    arguments = parser.parse_args()
    prompts = common.prompts()
    kinds = [kind for kind in arguments.kinds.split(",") if kind] or list(dict.fromkeys(p.kind for p in prompts))
    prompts = [prompt for prompt in prompts if prompt.kind in kinds]
    if arguments.hopeless:
        with hopeless(arguments.bundle) as bundle, pilotfish.load(bundle) as engine:
            compare(engine, arguments, kinds, prompts)
    else:
        with pilotfish.load(arguments.bundle) as engine:
            compare(engine, arguments, kinds, prompts)


def compare(engine: Engine, arguments: argparse.Namespace, kinds: list[str], prompts: list[Prompt]) -> None:
    """Runs all arms on all prompts and prints the table."""
    arms: list[Arm] = [ALONE, ("lookup", 4), AUTO]
    if engine.bundle.manifest.draft is not None:
        arms += [("model", number) for number in arguments.num_draft_tokens]
    seconds: dict[tuple[str, Arm], list[float]] = {(kind, arm): [] for kind in kinds for arm in arms}
    rates: list[float] = []
    overheads: list[float] = []
    num_equal = num_compared = 0
    reasons: dict[str, str] = {}
    sampling = SamplingParams(arguments.temperature, top_p=0.95 if arguments.temperature else 1.0, seed=1)
    for index, prompt in enumerate(prompts):
        order = arms[index % len(arms) :] + arms[: index % len(arms)]
        outputs = {}
        for arm in order:
            options = GenerationOptions(arguments.max_tokens, sampling, draft=arm[0], num_draft_tokens=arm[1])
            outputs[arm], stats = common.run(engine, prompt.text, options)
            seconds[prompt.kind, arm].append(seconds_a_token(stats))
            if arm == AUTO:
                rates.append(stats.acceptance_rate)
                reasons[prompt.kind] = stats.speculation
                overheads.append(stats.host_s / stats.num_rounds)
        num_compared += len(arms) - 1
        num_equal += sum(outputs[arm] == outputs[ALONE] for arm in arms) - 1
        print(f"{index + 1} of {len(prompts)} done", flush=True)
    what = f"temperature {arguments.temperature}" if arguments.temperature else "greedy"
    print(f"\n{arguments.bundle.name}, {len(prompts)} prompts, {arguments.max_tokens} tokens, {what}")
    print(f"outputs equal to the target's alone: {num_equal} of {num_compared}")
    print(f"auto: acceptance rate {np.mean(rates):.2f}, host {np.median(overheads) * 1e3:.2f} ms a round (median)")
    rows = []
    for label, chosen in [*((kind, [kind]) for kind in kinds), ("**all**", kinds)]:
        by_arm = {arm: np.concatenate([seconds[kind, arm] for kind in chosen]) for arm in arms}
        alone = by_arm[ALONE].sum()
        cells = [alone / by_arm[arm].sum() for arm in arms] + [alone / np.min(list(by_arm.values()), axis=0).sum()]
        rows.append((label, *(f"{cell:.2f}" for cell in cells)))
    print(markdown_table(("prompts", *map(name_of, arms), "oracle"), rows))
    for kind, reason in reasons.items():
        print(f"{kind}, last prompt: {reason}")


if __name__ == "__main__":
    main()
