"""Runs the same prompts and weights through pilotfish and its peers, by turns, and writes what came of it as a report.

Usage: python benchmarks/peers/run.py --bundles BUNDLE ... --target TARGET.gguf --draft DRAFT.gguf
           --environments FOLDER --models FOLDER [--results FILE.jsonl] [--report benchmarks/reports/peers.md]
           [--only pilotfish llama.cpp ...] [--kinds code ...] [--lengths short long] [--prompts 1] [--repeats 2]
           [--max-tokens 64]

`environments.py` makes the environments and `weights.py` the models; the bundles are exported from the same GGUF files.
Every prompt goes, as the same token ids, to every setup one after the other, greedily and from cold caches, each on the
same number of threads; which one begins turns with the prompt, and every other repeat goes backwards. Only the one that
is asked runs. Each answer is appended to the results at once: a run that was cut off goes on where it was when started
again with the same arguments. `--report-only` writes the report of what is there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from fidelity import fidelity_of, reference_of
from pass_profile import profile
from plot import save_plots
from pool import Pool, WorkerError
from report import report, summary
from results import ResultsFile, answer_of, line_of
from setups import OFF, OURS, Setup, chosen, peers_of

from pilotfish.export.parity import sample_ids
from pilotfish.runtime.bench import prompts as bench_prompts
from pilotfish.runtime.bench.prompts import Prompt, shipped_prompts
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.machine import collect, processor_name
from pilotfish.runtime.tokenizer import Tokenizer

PROFILED = (1, 5)  # tokens of the passes whose operators are timed
NUM_PAST, NUM_PASSES = 256, 10
ROOM = 64  # tokens of a context beyond the longest prompt and answer; what is drafted needs some


def order(setups: Sequence[Setup], prompt: int, repeat: int) -> list[Setup]:
    """In which order the setups answer a prompt."""
    start = prompt % len(setups)
    turned = [*setups[start:], *setups[:start]]
    return turned[::-1] if repeat % 2 else turned


def schedule(
    setups: Sequence[Setup], prompts: Sequence[Prompt], num_repeats: int
) -> Iterator[tuple[Setup, Prompt, int]]:
    """All answers that are wanted, as (setup, prompt, repeat)."""
    for repeat in range(num_repeats):
        for index, prompt in enumerate(prompts):
            yield from ((setup, prompt, repeat) for setup in order(setups, index, repeat))


def measure(arguments: argparse.Namespace, setups: Sequence[Setup], results: ResultsFile) -> None:
    """Adds what is missing to the results. A setup that fails is left out from then on."""
    at = datetime.now(UTC).isoformat(timespec="minutes")
    results.append("begun", {"at": at, "load_average": round(os.getloadavg()[0], 1)})
    measure_passes(arguments, setups, results)
    tokenizer = Tokenizer(load_bundle(arguments.bundles[0]))
    prompts = prompts_of(arguments)
    ids = {p.key: tokenizer.encode_chat([{"role": "user", "content": p.text}]) for p in prompts}
    context_length = max(map(len, ids.values())) + arguments.max_tokens + ROOM
    found = results.read()
    wanted = [run for run in schedule(setups, prompts, arguments.repeats) if key_of(run) not in found.done]
    broken: set[str] = set()
    log_path = arguments.results.with_suffix(".log")
    with log_path.open("a") as log, Pool(arguments.environments, context_length, arguments.threads, log) as pool:
        if not arguments.no_fidelity:
            measure_fidelity(arguments, pool, setups, results)
        for number, (setup, prompt, repeat) in enumerate(wanted, 1):
            if setup.name in broken:
                continue
            request = {"prompt_ids": ids[prompt.key], "text": prompt.text, "max_tokens": arguments.max_tokens}
            try:
                reply = pool.answer(setup, request)
                answer, token_ids = answer_of(
                    setup.name, prompt, repeat, len(ids[prompt.key]), reply, tokenizer.end_token_ids
                )
            except (WorkerError, ValueError) as error:
                broken.add(setup.name)
                results.append("failure", {setup.name: str(error)})
                say(f"{setup.name} failed: {error}")
                pool.drop(setup)
                continue
            results.append("answer", line_of(answer, token_ids))
            if setup.peer.name not in results.read().versions:
                results.append("versions", {setup.peer.name: pool.versions[setup.peer.name]})
            speed = f"{1 / answer.seconds_a_token:6.1f} tokens/s" if answer.seconds_a_token else ""
            say(f"{number:4} of {len(wanted)} {setup.name:26} {prompt.key:28} {speed}")


def measure_passes(arguments: argparse.Namespace, setups: Sequence[Setup], results: ResultsFile) -> None:
    """Adds where the time of pilotfish's passes goes, where that is not known yet."""
    known = results.read().profiles
    ours = {setup.peer.name: Path(setup.peer.paths["bundle"]) for setup in setups if setup.peer.worker == OURS}
    for name, bundle in ours.items():
        if name not in known:
            say(f"profiling {name}")
            found = {str(n): profile(bundle, n, NUM_PAST, NUM_PASSES, arguments.threads) for n in PROFILED}
            results.append("profile", {name: found})


def measure_fidelity(arguments: argparse.Namespace, pool: Pool, setups: Sequence[Setup], results: ResultsFile) -> None:
    """Adds how far each peer's target is from its source, where that is not known yet."""
    known = results.read().fidelity
    alone = [setup for setup in setups if setup.draft == OFF and setup.peer.name not in known]
    if not alone:
        return
    bundle = load_bundle(arguments.bundles[0])
    token_ids = sample_ids(Tokenizer(bundle), bundle.manifest.target)
    say("computing the reference")
    reference = reference_of(arguments.target, token_ids, arguments.models)
    for setup in alone:
        say(f"comparing {setup.peer.name}")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "logits.npy"
            try:
                pool.logits(setup, token_ids, path)
            except WorkerError as error:
                say(f"no logits of {setup.peer.name}: {error}")
                continue
            results.append("fidelity", {setup.peer.name: fidelity_of(reference, np.load(path))})


def key_of(run: tuple[Setup, Prompt, int]) -> tuple[str, str, int]:
    """Setup, prompt and repeat, as results know them."""
    setup, prompt, repeat = run
    return setup.name, prompt.key, repeat


def prompts_of(arguments: argparse.Namespace) -> list[Prompt]:
    """Those that ship with the project, so many of each kind and length."""
    return bench_prompts.chosen(shipped_prompts(), arguments.kinds, arguments.lengths, arguments.prompts)


def settings_of(arguments: argparse.Namespace) -> dict[str, object]:
    """What all answers of a results file have in common."""
    machine = collect()
    return {
        "prompts": [prompt.key for prompt in prompts_of(arguments)],
        "max_tokens": arguments.max_tokens,
        "threads": arguments.threads,
        "target": arguments.target.name,
        "draft": arguments.draft.name,
        "machine": f"{processor_name()}, {machine.num_usable_cores} cores, {machine.system}",
    }


def say(what: str) -> None:
    """Progress, beside the report."""
    print(what, file=sys.stderr, flush=True)


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", type=Path, nargs="+", required=True)
    for name in ("target", "draft", "environments", "models"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path("peers.jsonl"))
    parser.add_argument("--report", type=Path, default=Path(__file__).parents[1] / "reports" / "peers.md")
    parser.add_argument("--only", nargs="+", default=[], metavar="SETUP", help="setups whose names begin so")
    parser.add_argument("--kinds", nargs="+", default=[], help="of prompts; default: all")
    parser.add_argument("--prompts", type=int, default=1, help="of each kind and length")
    parser.add_argument("--lengths", nargs="+", default=["short", "long"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-fidelity", action="store_true", help="leave out the distance from the source")
    parser.add_argument("--report-only", action="store_true")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, and writes the report, a summary beside it in JSON, and the plots."""
    arguments = parsed(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    ggufs = {"target": arguments.target.absolute(), "draft": arguments.draft.absolute()}
    peers = peers_of(arguments.bundles, ggufs, arguments.models.absolute(), arguments.environments.absolute())
    setups = chosen(peers, arguments.only)
    results = ResultsFile(arguments.results, settings_of(arguments))
    if not arguments.report_only:
        with contextlib.suppress(KeyboardInterrupt):
            measure(arguments, setups, results)
    found = results.read()
    command = shlex.join(["python", "benchmarks/peers/run.py", *(argv or sys.argv[1:])])
    arguments.report.write_text(report(found, setups, command, arguments.report.stem), encoding="utf-8")
    text = json.dumps(summary(found, setups), indent=1)
    arguments.report.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    save_plots(found, setups, arguments.report)


if __name__ == "__main__":
    main()
