"""The commands that show and tidy what is kept on disk: `ls` and `rm`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.filesize import decimal

from pilotfish.export.inventory import (
    BundleEntry,
    FileEntry,
    Inventory,
    bundles_in,
    find_entries,
    idle_leftovers,
    remove,
    take_inventory,
)
from pilotfish.runtime.bundle import Manifest
from pilotfish.runtime.catalog import cache_dir
from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.text_table import text_table

NOT_DONE = 1


def ls(
    folders: Annotated[list[Path] | None, typer.Argument(help="Bundles, or folders with bundles in them.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Lists bundles and downloaded models: those of the cache folder, and the bundles of given folders."""
    inventory = take_inventory(cache_dir())
    bundles = [*inventory.bundles, *(entry for folder in folders or () for entry in bundles_in(folder))]
    if as_json:
        print(json.dumps(_as_json(bundles, inventory), ensure_ascii=False, indent=2))  # noqa: T201
    else:
        print("\n\n".join(_sections(bundles, inventory)))  # noqa: T201


def rm(
    names: Annotated[list[str] | None, typer.Argument(help="Names of the cache folder, as `ls` lists them.")] = None,
    leftovers: Annotated[bool, typer.Option("--leftovers", help="What interrupted commands have left, too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Deletes bundles and downloads of the cache folder."""
    if not names and not leftovers:
        raise OptionError("nothing to delete was named; give names that `pilotfish ls` lists, or --leftovers")
    paths = find_entries(cache_dir(), dict.fromkeys(names or ()))
    if leftovers:
        inventory = take_inventory(cache_dir())
        idle = idle_leftovers(inventory, time.time())
        if num_busy := len(inventory.leftovers) - len(idle):
            print(f"{num_busy} leftovers are left alone: a command may still be writing them")  # noqa: T201
        paths += tuple(entry.path for entry in idle)
    if not paths:
        print("nothing to delete")  # noqa: T201
        return
    for path in paths:
        print(path)  # noqa: T201
    if not yes and not typer.confirm("delete these?"):
        raise typer.Exit(NOT_DONE)
    for path in paths:
        remove(path)


def _sections(bundles: Iterable[BundleEntry], inventory: Inventory) -> Iterable[str]:
    rows = [_bundle_row(entry) for entry in bundles]
    headings = ("bundle", "target", "draft", "recipes", ">context", ">size", "folder")
    yield text_table(headings, rows) if rows else f"no bundles in {cache_dir()}"
    for heading, entries in (("download", inventory.downloads), ("leftover", inventory.leftovers)):
        if entries:
            rows = [(entry.path.name, decimal(entry.num_bytes), str(entry.path.parent)) for entry in entries]
            yield text_table((heading, ">size", "folder"), rows)
    if inventory.leftovers:
        yield "`pilotfish rm --leftovers` deletes the leftovers"


def _bundle_row(entry: BundleEntry) -> tuple[str, ...]:
    name, size, folder = entry.path.name, decimal(entry.num_bytes), str(entry.path.parent)
    if entry.manifest is None:
        return name, f"damaged: {entry.fault}", "", "", "", size, folder
    about = _about(entry.manifest)
    recipes = " + ".join(filter(None, (about["target_recipe"], about["draft_recipe"])))
    return name, about["target"], about["draft"] or "lookup", recipes, str(about["context_length"]), size, folder


def _about(manifest: Manifest) -> dict[str, Any]:
    target, draft = manifest.target, manifest.draft
    return {
        "target": target.source.get("name", "unknown"),
        "target_recipe": target.recipe,
        "draft": draft.source.get("name", "unknown") if draft else None,
        "draft_recipe": draft.recipe if draft else None,
        "context_length": target.max_positions,
    }


def _as_json(bundles: Iterable[BundleEntry], inventory: Inventory) -> dict[str, Any]:
    def named(entry: BundleEntry | FileEntry) -> dict[str, Any]:
        return {"name": entry.path.name, "path": str(entry.path), "num_bytes": entry.num_bytes}

    return {
        "bundles": [
            named(entry) | {"fault": entry.fault or None} | (_about(entry.manifest) if entry.manifest else {})
            for entry in bundles
        ],
        "downloads": [named(entry) for entry in inventory.downloads],
        "leftovers": [named(entry) for entry in inventory.leftovers],
    }
