"""The commands that fetch, convert and check models, and those of the modules beside this one."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pilotfish.export.extra import need_export_extra
from pilotfish.export.inventory_commands import ls, rm
from pilotfish.export.pair_command import pair
from pilotfish.runtime.bundle import by_role, load_bundle
from pilotfish.runtime.catalog import cache_dir, downloads_dir, load_catalog
from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.flags import GenerationFlags, LoadFlags, expanded

SOURCE_HELP = "A GGUF file, a Hugging Face folder, a hub id, or a catalog name."
DRAFT_HELP = (
    f"{SOURCE_HELP} Or layers:N, the target's own first N layers. Repeatable: each drafts for the one before it. "
    "Default: none, drafts by lookup."
)

VOCABULARY_HELP = "Trim the draft's head to so many tokens, those most frequent; each pass then reads less."
TEXTS_HELP = "Text to count tokens in, with --draft-vocabulary; repeatable. Default: the order of the vocabulary."


def register(app: typer.Typer) -> None:
    """Adds the commands to the program."""
    app.command()(pull)
    app.command()(export)
    app.command()(expanded(demo))
    app.command()(ls)
    app.command()(rm)
    app.command()(expanded(pair))
    app.command()(verify)


def pull(
    name: Annotated[str, typer.Argument(help="A model of the catalog.")] = "smollm2-135m",
    directory: Annotated[Path | None, typer.Option(help="Default: the user's cache folder.")] = None,
) -> None:
    """Fetches a model of the catalog, checks it, and prints its path."""
    need_export_extra()
    from pilotfish.export import download
    from pilotfish.export.progress import ExportProgress

    model = load_catalog().model(name)
    with ExportProgress(Console(stderr=True)) as progress:
        path = download.pull(model, directory or downloads_dir(), progress=progress.bytes_of(f"fetching {name}"))
    print(path)  # noqa: T201


def export(
    target: Annotated[str, typer.Option(help=SOURCE_HELP)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder of the new bundle.")] = None,
    draft: Annotated[list[str] | None, typer.Option(help=DRAFT_HELP)] = None,
    quant: Annotated[str, typer.Option(help="Recipe, such as int8 or int4-b128 (see README), or auto.")] = "int8",
    draft_quant: Annotated[str | None, typer.Option(help="Recipe of the drafts; default: that of the target.")] = None,
    vocabulary: Annotated[int | None, typer.Option("--draft-vocabulary", help=VOCABULARY_HELP)] = None,
    texts: Annotated[list[Path] | None, typer.Option("--frequency-text", help=TEXTS_HELP)] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Print sizes on disk and in memory; write nothing.")] = False,
    context: Annotated[int | None, typer.Option(help="With --dry-run: context length in tokens.")] = None,
    skip_verify: Annotated[bool, typer.Option("--skip-verify", help="Do not compare with the source.")] = False,
    genai: Annotated[bool, typer.Option("--genai", help="Add the files that onnxruntime-genai needs.")] = False,
    progress_lines: Annotated[bool, typer.Option("--progress-lines", help="Progress as lines of JSON.")] = False,
) -> None:
    """Turns a target, and a draft or several if given, into a bundle."""
    need_export_extra()
    from pilotfish.export.agreement import report
    from pilotfish.export.bundle_writer import write_bundle
    from pilotfish.export.download import resolve_source
    from pilotfish.export.drafts import planned_drafts
    from pilotfish.export.dry_run import dry_run
    from pilotfish.export.progress import ExportProgress
    from pilotfish.export.quantize import parse_recipe
    from pilotfish.export.recipe_choice import AUTO, CANDIDATES, choose, explained, measure_recipes
    from pilotfish.export.sources import Source, open_source

    plans = planned_drafts(draft or (), draft_quant, vocabulary, texts or ())
    recipe_texts = {"target": quant, "draft": draft_quant or quant}
    if dry:
        if AUTO in recipe_texts.values():
            raise OptionError("a dry run measures nothing, so it cannot choose a recipe; name one instead of auto")
        recipes = parse_recipe(recipe_texts["target"]), parse_recipe(recipe_texts["draft"])
        dry_run(target, plans, recipes, downloads_dir(), context, output, Console(highlight=False))
        return
    given = {role: None if text == AUTO else parse_recipe(text) for role, text in recipe_texts.items()}
    if output is None:
        raise OptionError("no folder for the new bundle was given; add --output FOLDER, or --dry-run to see sizes")
    if context is not None:
        raise OptionError("--context belongs to --dry-run; a bundle is loaded with any context the model allows")
    if output.exists():
        raise OptionError(f"{output} exists already; delete it or choose another folder")
    explanations: list[str] = []
    with ExitStack() as resources, ExportProgress(Console(stderr=True), as_lines=progress_lines) as progress:

        def source(text: str, role: str) -> Source:
            path = resolve_source(text, downloads_dir(), progress=progress.bytes_of(f"fetching {text}"))
            recipe = given[role]
            if recipe is None:
                candidates = measure_recipes(path, CANDIDATES, cache_dir(), progress.weights)
                recipe = choose(candidates, role).recipe
                explanations.append(explained(candidates, role))
            return resources.enter_context(closing(open_source(path, recipe)))

        target_source = source(target, "target")
        drafts = [plan.source(target_source, lambda text: source(text, "draft")) for plan in plans]
        write_bundle(
            target_source, drafts[0] if drafts else None, output, progress.weights, lower_drafts=drafts[1:],
            verify=not skip_verify, genai=genai,
        )  # fmt: skip
    for text in explanations:
        print(text, file=sys.stderr)  # noqa: T201
    print("\n".join(report(load_bundle(output))), file=sys.stderr)  # noqa: T201
    print(output)  # noqa: T201


def verify(
    bundle: Annotated[Path, typer.Argument(help="A bundle folder, as `pilotfish export` writes it.")],
    target: Annotated[str | None, typer.Option(help=f"Compare the target with its source. {SOURCE_HELP}")] = None,
    draft: Annotated[
        list[str] | None,
        typer.Option(help="Compare the draft with its source; repeatable, one for each. layers:N has the target's."),
    ] = None,
) -> None:
    """Checks a bundle: its files, and whether its graphs agree with themselves and with sources that are given."""
    need_export_extra()
    from pilotfish.export import verification
    from pilotfish.export.download import resolve_source
    from pilotfish.export.progress import ExportProgress
    from pilotfish.export.quantize import parse_recipe
    from pilotfish.export.sources import open_source

    loaded = load_bundle(bundle)
    verification.check_files(loaded)
    given = {role: text for role, text in by_role(target, draft or ()).items() if text}
    verification.check_roles(loaded, given)
    with ExitStack() as resources, ExportProgress(Console(stderr=True)) as progress:
        paths = {
            role: resolve_source(text, downloads_dir(), progress=progress.bytes_of(f"fetching {text}"))
            for role, text in given.items()
        }
        recipes = {role: parse_recipe(model.recipe) for role, model in loaded.manifest.models.items()}
        sources = {
            role: resources.enter_context(closing(open_source(path, recipes[role]))) for role, path in paths.items()
        }
        reports = verification.measure_bundle(loaded, sources)
    print(verification.comparison(loaded, reports))  # noqa: T201
    verification.check_reports(loaded, reports)


def demo(
    generation: GenerationFlags,
    loading: LoadFlags,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="Default: a prompt of its own.")] = None,
    pair: Annotated[str | None, typer.Option(help="A pair of the catalog; default: the default pair.")] = None,
) -> None:
    """Fetches and exports the default pair on first use, answers one prompt, and measures the speed-up."""
    need_export_extra()
    from pilotfish.export import demo as demonstration

    options = generation.options()
    console = Console(highlight=False)
    bundle = demonstration.prepared_bundle(pair, Console(stderr=True))
    with loading.load(bundle) as engine:
        demonstration.demo(engine, prompt or demonstration.PROMPT, options, console)
