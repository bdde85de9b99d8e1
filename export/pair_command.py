"""`pilotfish pair`: which drafts fit a target, why the others do not, and, if asked, what those that fit bring."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.filesize import decimal

from pilotfish.export.extra import need_export_extra
from pilotfish.export.quantize import Recipe, parse_recipe
from pilotfish.runtime.bundle import Bundle
from pilotfish.runtime.catalog import cache_dir, downloads_dir, load_catalog
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.flags import LoadFlags
from pilotfish.runtime.generation import GenerationOptions
from pilotfish.runtime.text_table import text_table

if TYPE_CHECKING:
    from pilotfish.export.pair_search import Candidate


def pair(
    target: Annotated[str, typer.Argument(help="The target: what `export` takes.")],
    loading: LoadFlags,
    candidates: Annotated[list[str] | None, typer.Argument(help="Drafts to look at; what `export` takes.")] = None,
    folders: Annotated[list[Path] | None, typer.Option("--in", help="Folder with models to look at, too.")] = None,
    quant: Annotated[str, typer.Option(help="Recipe of the target, to measure.")] = "int8",
    draft_quant: Annotated[str | None, typer.Option(help="Recipe of the drafts; default: that of the target.")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure those that fit; fetches given ones.")] = False,
    bundle: Annotated[Path | None, typer.Option(help="With --measure: a bundle of the target that there is.")] = None,
    max_tokens: Annotated[int, typer.Option(help="With --measure: tokens of an answer.")] = 96,
    num_draft_tokens: Annotated[int, typer.Option("--num-draft-tokens", "-k", help="With --measure.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; measures nothing.")] = False,
) -> None:
    """Lists drafts that fit a target: given ones, the catalog's, downloaded ones, and those of folders."""
    need_export_extra()
    from pilotfish.export.outline import find_outline
    from pilotfish.export.pair_search import find_drafts, sources_to_try

    if as_json and measure:
        raise OptionError("--json lists drafts and --measure runs them; give one of the two")
    recipes = parse_recipe(quant), parse_recipe(draft_quant or quant)
    options = GenerationOptions(max_tokens, num_draft_tokens=num_draft_tokens)
    outline = find_outline(target, downloads_dir())
    sources = sources_to_try(candidates or (), load_catalog(), cache_dir(), folders or ())
    found = find_drafts(outline, sources, downloads_dir(), recipes[1])
    print(_as_json(found) if as_json else _listed(found, recipes[1]))  # noqa: T201
    if measure:
        worth_it = [each.source for each in found if each.is_worth_trying]
        print("\n" + _measured(target, worth_it, recipes, loading, options, bundle))  # noqa: T201


def _as_json(found: Sequence[Candidate]) -> str:
    drafts = [
        {
            "source": each.source, "fits": each.fits, "is_worth_trying": each.is_worth_trying,
            "ratio": each.ratio, "data_bytes": each.data_bytes, "verdict": each.verdict, "fault": each.fault,
        }
        for each in found
    ]  # fmt: skip
    return json.dumps({"drafts": drafts})


def _listed(found: Sequence[Candidate], recipe: Recipe) -> str:
    if not found:
        return "no candidates; name some, or give a folder with --in"
    rows = [
        (
            each.source,
            f"{each.ratio:.2f}" if each.outline else "",
            decimal(each.data_bytes) if each.outline else "",
            each.verdict,
        )
        for each in found
    ]
    table = text_table(("draft", ">size ÷ target's", f">as {recipe}", "verdict"), rows)
    return "\n\n".join((table, *(f"{each.source}: {each.fault}" for each in found if each.fault)))


def _measured(
    target: str, drafts: Sequence[str], recipes: tuple[Recipe, Recipe], loading: LoadFlags, options: GenerationOptions,
    existing: Path | None,
) -> str:  # fmt: skip
    """The table of what look-up and each draft bring."""
    from pilotfish.export.download import resolve_source
    from pilotfish.export.pair_measure import PROMPTS, Measurement, measure, measure_drafts
    from pilotfish.export.progress import ExportProgress

    def measure_bundle(bundle: Bundle, draft: str) -> Measurement:
        with Engine(
            bundle, device=loading.device, context_length=loading.context, num_threads=loading.threads,
            exact=loading.exact,
        ) as engine:  # fmt: skip
            return measure(engine, draft, PROMPTS, options)

    with ExportProgress(Console(stderr=True)) as progress:

        def fetched(source: str) -> Path:
            return resolve_source(source, downloads_dir(), progress=progress.bytes_of(f"fetching {source}"))

        paths = [fetched(source) for source in (target, *drafts)]
        results = measure_drafts(paths[0], paths[1:], recipes, cache_dir(), measure_bundle, progress.weights, existing)
    rows = []
    for name, result in zip(("lookup, no draft model", *drafts), results, strict=True):
        if isinstance(result, str):
            rows.append((name, "", "", "", "", f"not measured: {result}"))
        else:
            rows.append(
                (
                    name,
                    f"{result.acceptance_rate:.0%}",
                    f"{result.tokens_per_s:.1f}",
                    f"{result.plain_tokens_per_s:.1f}",
                    f"{result.speed_up:.2f}×",
                    f"{result.num_equal} of {result.num_prompts}",
                )
            )
    headings = ("measured", ">accepted", ">tokens/s", ">target only", ">speed-up", "same output")
    return text_table(headings, rows)
