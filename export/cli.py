"""The commands that fetch and convert models: `pull`, `export` and `demo`."""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pilotfish.runtime.catalog import downloads_dir, load_catalog
from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.flags import GenerationFlags, LoadFlags, expanded

SOURCE_HELP = "A GGUF file, a Hugging Face folder, a hub id, or a catalog name."


def register(app: typer.Typer) -> None:
    """Adds the commands to the program."""
    app.command()(pull)
    app.command()(export)
    app.command()(expanded(demo))


def pull(
    name: Annotated[str, typer.Argument(help="A model of the catalog.")] = "smollm2-135m",
    directory: Annotated[Path | None, typer.Option(help="Default: the user's cache folder.")] = None,
) -> None:
    """Fetches a model of the catalog, checks it, and prints its path."""
    _need_export_extra()
    from pilotfish.export import download
    from pilotfish.export.progress import ExportProgress

    model = load_catalog().model(name)
    with ExportProgress(Console(stderr=True)) as progress:
        path = download.pull(model, directory or downloads_dir(), progress=progress.bytes_of(f"fetching {name}"))
    print(path)  # noqa: T201


def export(
    target: Annotated[str, typer.Option(help=SOURCE_HELP)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the new bundle.")],
    draft: Annotated[str | None, typer.Option(help=f"{SOURCE_HELP} Default: none, drafts by lookup.")] = None,
    quant: Annotated[str, typer.Option(help="Recipe: fp32, int8, int4 or w8a8; int4-b128 sets a block size.")] = "int8",
    draft_quant: Annotated[str | None, typer.Option(help="Recipe of the draft; default: that of the target.")] = None,
) -> None:
    """Turns a target, and a draft if there is one, into a bundle."""
    _need_export_extra()
    from pilotfish.export.bundle_writer import Source, write_bundle
    from pilotfish.export.checkpoint import open_checkpoint
    from pilotfish.export.download import resolve_source
    from pilotfish.export.progress import ExportProgress
    from pilotfish.export.quantize import parse_recipe

    recipes = parse_recipe(quant), parse_recipe(draft_quant or quant)
    if output.exists():
        raise OptionError(f"{output} exists already; delete it or choose another folder")
    with ExitStack() as resources, ExportProgress(Console(stderr=True)) as progress:

        def source(text: str, number: int) -> Source:
            path = resolve_source(text, downloads_dir(), progress=progress.bytes_of(f"fetching {text}"))
            return Source(resources.enter_context(open_checkpoint(path)), recipes[number])

        write_bundle(source(target, 0), source(draft, 1) if draft else None, output, progress.weights)
    print(output)  # noqa: T201


def demo(
    generation: GenerationFlags,
    loading: LoadFlags,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="Default: a prompt of its own.")] = None,
    pair: Annotated[str | None, typer.Option(help="A pair of the catalog; default: the default pair.")] = None,
) -> None:
    """Fetches and exports the default pair on first use, answers one prompt, and measures the speed-up."""
    _need_export_extra()
    from pilotfish.export import demo as demonstration

    options = generation.options()
    console = Console(highlight=False)
    bundle = demonstration.prepared_bundle(pair, Console(stderr=True))
    with loading.load(bundle) as engine:
        demonstration.demo(engine, prompt or demonstration.PROMPT, options, console)


def _need_export_extra() -> None:
    if missing := [name for name in ("onnx", "safetensors", "huggingface_hub") if not importlib.util.find_spec(name)]:
        raise OptionError(f"this command needs {', '.join(missing)}; run `pip install 'pilotfish[export]'`")
