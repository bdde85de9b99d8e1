"""The demonstration: fetch and export the default pair if need be, answer one prompt, and measure what it brought."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.download import pull
from pilotfish.export.progress import ExportProgress
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import Source, open_source
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.catalog import CatalogPair, bundles_dir, downloads_dir, load_catalog
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.errors import BundleError
from pilotfish.runtime.generation import GenerationOptions
from pilotfish.runtime.terminal import print_stream, summary

PROMPT = """Fix the spelling in this text and repeat it in full: The pilot fish is a small fish that swims ahead of \
sharks, rays and sea turtles. The pilot fish eats parasites and leftovers, and the shark does not eat the pilot fsh."""


def demo(engine: Engine, prompt: str, options: GenerationOptions, console: Console) -> None:
    """Answers `prompt` with speculation, streamed, then again without it, and prints what both measured."""
    messages = [{"role": "user", "content": prompt}]
    console.print(f"[bold]> {prompt}[/bold]\n")
    _, with_speculation, _ = print_stream(console, engine.generate(messages, options))
    stats = engine.stats
    engine.reset()
    with console.status("the same answer by the target alone, to compare"):
        plain = engine.generate(messages, replace(options, draft="off"))
        token_ids = tuple(token_id for chunk in plain for token_id in chunk.token_ids)
    plain_stats = engine.stats
    same = "the same output" if token_ids == with_speculation else "another output"
    console.print(
        f"\n{summary(stats)} · target only {plain_stats.tokens_per_s:.1f} tokens/s, {same} · speed-up "
        f"{plain_stats.decode_s / stats.decode_s:.2f}×, measured just now",
        style="dim",
        soft_wrap=True,
    )


def prepared_bundle(pair_name: str | None, console: Console) -> Path:
    """The bundle of a catalog pair (default: the default pair), fetched and exported into the cache on first use."""
    catalog = load_catalog()
    pair = catalog.pair(pair_name or catalog.default_pair_name)
    path = bundles_dir() / pair.name
    try:
        return load_bundle(path).path
    except BundleError:
        shutil.rmtree(path, ignore_errors=True)  # the cache's own folder, and it can be made again
    _export_pair(pair, path, console)
    return path


def _export_pair(pair: CatalogPair, path: Path, console: Console) -> None:
    catalog = load_catalog()
    with ExportProgress(console) as progress:

        def source(model_name: str, recipe: str) -> Source:
            file = pull(
                catalog.model(model_name),
                downloads_dir(),
                progress=progress.bytes_of(f"fetching {model_name}"),
            )
            return open_source(file, parse_recipe(recipe))

        target = source(pair.target, pair.target_recipe)
        draft = source(pair.draft, pair.draft_recipe or pair.target_recipe) if pair.draft else None
        write_bundle(target, draft, path, progress.weights)
