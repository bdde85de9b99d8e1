"""`pilotfish bench`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.progress import track
from typer import Argument, Option

from pilotfish.runtime.bench.measure import measured
from pilotfish.runtime.bench.meters import Meters, peak_memory_bytes
from pilotfish.runtime.bench.plan import arms_of, schedule
from pilotfish.runtime.bench.plot import plot_format, save_plot
from pilotfish.runtime.bench.prompts import Prompt, chosen, read_prompts, shipped_prompts
from pilotfish.runtime.bench.record import Record, read_record, write_record
from pilotfish.runtime.bench.report import Prices, comparison, report, summary
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.flags import LoadFlags
from pilotfish.runtime.generation import GenerationOptions
from pilotfish.runtime.machine import collect, processor_name
from pilotfish.runtime.sampling import SamplingParams

PLOTTED_LENGTHS = (2, 4, 8)  # of drafts, where a plot is wanted and none was asked for
SEED = 1


def bench(
    bundle: Annotated[Path, Argument(help="A bundle folder, as `pilotfish export` writes it.")],
    loading: LoadFlags,
    prompts: Annotated[Path | None, Option(help="TOML file of your own prompts; default: those that ship.")] = None,
    kinds: Annotated[str, Option(help="Only these kinds of prompts, separated by commas.")] = "",
    lengths: Annotated[
        str, Option(help="Only these lengths of short, long, context; default: short,long, or all of your own.")
    ] = "",
    per_group: Annotated[
        int | None, Option(min=0, help="Prompts of each kind and length, 0 for all; default: 1, or all of your own.")
    ] = None,
    num_draft_tokens: Annotated[
        list[int] | None, Option("--num-draft-tokens", "-k", help="Measure a fixed number too; may be repeated.")
    ] = None,
    drafter: Annotated[str | None, Option(help="Who drafts it: model, suffix, lookup or cascade.")] = None,
    max_tokens: Annotated[int, Option(min=2, help="Most tokens of an answer.")] = 128,
    temperature: Annotated[float, Option(help="0 is greedy; else all arms draw with the same seed.")] = 0.0,
    repeats: Annotated[int, Option(min=2, help="Answers to each prompt by each arm.")] = 3,
    warm_up: Annotated[int, Option(min=0, help="Answers of each arm before, which count nowhere.")] = 1,
    price_per_hour: Annotated[float, Option(min=0, help="Of the machine; adds the cost of an answer.")] = 0.0,
    price_per_kwh: Annotated[float, Option(min=0, help="Of its energy, where that is measured.")] = 0.0,
    json: Annotated[Path | None, Option(help="Write everything that was measured to this file.")] = None,
    plot: Annotated[Path | None, Option(help="Draw it: .png or .svg; needs the extra plot.")] = None,
    compare: Annotated[Path | None, Option(help="A file of --json: say what changed since.")] = None,
) -> None:
    """Measures what speculation brings on this machine: speed, latency, acceptance, memory, with their spread.

    Each prompt is answered by the target alone (off), by what pilotfish chooses (auto), and with each -k, in turn.
    """
    former = read_record(compare) if compare else None
    if plot is not None:
        plot_format(plot)
    asked = _asked(prompts, _names(kinds), _names(lengths), per_group)
    sampling = SamplingParams(temperature, seed=SEED if temperature else None)
    prices, console = Prices(price_per_hour, price_per_kwh), Console(stderr=True)
    with Meters(on_gpu=loading.device != "cpu") as meters:
        if price_per_kwh and not meters.measures_energy:
            raise OptionError("nothing here measures energy that this process may read; use --price-per-hour instead")
        machine = _machine(meters)
        with loading.load(bundle) as engine:
            wanted = num_draft_tokens or (PLOTTED_LENGTHS if plot else ())
            arms = arms_of(drafter or ("model" if engine.bundle.manifest.draft else "suffix"), wanted)
            _require_room(engine, asked)
            runs = schedule(asked, arms, repeats)
            settings = _settings(engine, loading, asked, max_tokens, temperature, repeats)
            answers = measured(engine, runs, GenerationOptions(max_tokens, sampling), meters, warm_up)
            shown = track(answers, "measuring", len(runs), console=console, transient=True)
            found = tuple(shown)
        notes = tuple(note for note in (_load_note(machine), meters.note) if note)
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        record = Record(made_at, settings, machine, peak_memory_bytes(), meters.peak_gpu_bytes, notes, found)
    _show(record, prices, former)
    if json is not None:
        write_record(json, record, summary(record, prices))
    if plot is not None:
        save_plot(record, plot)


def _show(record: Record, prices: Prices, former: Record | None) -> None:
    print("\n\n".join(report(record, prices)))  # noqa: T201
    if former is not None:
        print("\n" + "\n".join(comparison(former, record)))  # noqa: T201


def _asked(path: Path | None, kinds: list[str], lengths: list[str], per_group: int | None) -> list[Prompt]:
    """The prompts to measure; of the shipped ones so few by default that it is done in minutes."""
    if path is not None:
        return chosen(read_prompts(path), kinds, lengths, per_group or None)
    return chosen(shipped_prompts(), kinds, lengths or ["short", "long"], 1 if per_group is None else per_group or None)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _require_room(engine: Engine, prompts: Sequence[Prompt]) -> None:
    """Says before anything is measured which prompt does not fit."""
    for prompt in prompts:
        length = len(engine.tokenizer.encode_chat([{"role": "user", "content": prompt.text}]))
        if length >= engine.context_length:
            raise OptionError(
                f"prompt {prompt.key} is {length} tokens long and the context holds {engine.context_length}; "
                "give a longer --context, or leave it out with --lengths or --kinds"
            )


def _settings(
    engine: Engine, loading: LoadFlags, prompts: Sequence[Prompt], max_tokens: int, temperature: float, repeats: int
) -> dict[str, Any]:
    manifest = engine.bundle.manifest
    return {
        "bundle": engine.bundle.path.resolve().name,
        "target_recipe": manifest.target.recipe,
        "draft_recipe": manifest.draft.recipe if manifest.draft else None,
        "device": loading.device,
        "threads": loading.threads,
        "context_length": engine.context_length,
        "mode": "exact" if loading.exact else "fast",
        "num_prompts": len(prompts),
        "num_repeats": repeats,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": SEED,
    }


def _machine(meters: Meters) -> dict[str, Any]:
    facts = asdict(collect())
    kept = ("system", "python", "versions", "num_cores", "num_usable_cores")
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return (
        {"processor": processor_name(), "gpu": meters.gpu_name} | {k: facts[k] for k in kept} | {"load_average": load}
    )


def _load_note(machine: dict[str, Any]) -> str:
    load, cores = machine["load_average"], machine["num_usable_cores"]
    if load is None or load < cores / 2:
        return ""
    return f"other programs were running when it began (load {load} on {cores} cores), which widens the spread"
