"""`export --dry-run`: whether the pair fits, and what it would take on disk and in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal

from pilotfish.export.drafts import DraftPlan
from pilotfish.export.outline import find_outline
from pilotfish.export.pairing import pair_drafts
from pilotfish.export.quantize import Recipe
from pilotfish.export.sizes import ExportSize, ModelSize
from pilotfish.export.staging import free_bytes, require_free_space
from pilotfish.runtime.text_table import text_table


def dry_run(
    target: str, plans: Sequence[DraftPlan], recipes: tuple[Recipe, Recipe], downloads: Path,
    context_length: int | None, output: Path | None, console: Console,
) -> None:  # fmt: skip
    """Prints the sizes of a target and its drafts; of `recipes` the second is theirs.

    Raises what an export of them would: `PairingError`, and `StorageError` if the disk of `output` has no room.
    """
    target_size = ModelSize(find_outline(target, downloads), recipes[0])
    size = ExportSize(target_size, tuple(plan.size(target_size, recipes[1], downloads) for plan in plans))
    target_json, *draft_jsons = (each.outline.tokenizer.tokenizer_json for each in size.models.values())
    pairings = pair_drafts(target_json, draft_jsons)
    context_length = size.context_length(context_length)
    console.print(_table(size, context_length), soft_wrap=True)
    console.print(
        f"bundle: about {decimal(size.disk_bytes)}; "
        f"in memory at a context of {context_length} tokens: {decimal(size.memory_bytes(context_length))}",
        soft_wrap=True,
    )
    for pairing in pairings[:1]:
        if pairing.passes_text:
            console.print(str(pairing), soft_wrap=True)
    if output is not None:
        console.print(f"free on the disk of {output}: {decimal(free_bytes(output))}", soft_wrap=True)
        require_free_space(output, size.disk_bytes)


def _table(size: ExportSize, context_length: int) -> str:
    headings = ("model", "source", "recipe", ">parameters", ">data file, bytes", ">caches", ">memory")
    rows = []
    for role, model in size.models.items():
        caches = model.cache_bytes(context_length)
        memory = decimal(model.weight_bytes + caches)
        parameters = f"{model.num_parameters / 1e6:,.1f} M"
        data_bytes = f"{model.data_bytes:,}"
        rows.append((role, model.outline.name, str(model.recipe), parameters, data_bytes, decimal(caches), memory))
    return text_table(headings, rows)
