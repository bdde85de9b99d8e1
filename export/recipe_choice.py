"""`--quant auto`: stores a model by each of a few recipes, measures them on this machine, and chooses one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.filesize import decimal

from pilotfish.export.bundle_writer import Progress, write_alone
from pilotfish.export.quantize import Recipe, parse_recipe
from pilotfish.export.staging import disk_errors, temporary_folder
from pilotfish.runtime.bundle import ParityReport
from pilotfish.runtime.costs import WidthCosts, measure
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.errors import ParityError
from pilotfish.runtime.text_table import text_table

AUTO = "auto"
CANDIDATES = tuple(parse_recipe(text) for text in ("w8a8", "w8a16", "int8", "int8-b128", "int4-mixed", "int4"))
WIDTHS = (1, 2, 4, 5, 8)
CONTEXT_LENGTH = 256  # tokens before the timed passes do not matter for a choice between recipes


@dataclass(frozen=True, slots=True)
class Needs:
    """What a role needs of a recipe: mean KL divergence in nats at most, and speed in passes of `width` tokens."""

    most_kl: float
    width: int


# A target must keep what it is, and reads a few drafted tokens at a time. A draft that strays costs some acceptance,
# and writes one token at a time.
NEEDS = {"target": Needs(0.05, 5), "draft": Needs(0.5, 1)}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model in one recipe: bytes of its data file, how near it is to its source, and the seconds of its passes."""

    recipe: Recipe
    num_bytes: int
    parity: ParityReport
    costs: WidthCosts

    @property
    def mean_kl(self) -> float:
        """Mean KL divergence from the source, in nats."""
        return self.parity.mean_kl if self.parity.mean_kl is not None else float("inf")


def measure_recipes(path: Path, recipes: Sequence[Recipe], cache: Path, progress: Progress) -> list[Candidate]:
    """Exports the model at `path` by each recipe below `cache`, measures it, and removes it.

    A recipe that the parity gate refuses is left out. `StorageError` if the disk is too full for one of them.
    """
    found = []
    with disk_errors(cache), temporary_folder(cache) as folder:
        for recipe in recipes:
            try:
                found.append(_measured(path, recipe, folder / "bundle", progress))
            except ParityError:
                continue
            finally:
                shutil.rmtree(folder / "bundle", ignore_errors=True)
    return found


def _measured(path: Path, recipe: Recipe, output: Path, progress: Progress) -> Candidate:
    model = write_alone(path, recipe, output, f"trying {recipe}", progress).manifest.target
    graph = output / model.graph
    context_length = min(CONTEXT_LENGTH, model.max_positions)
    with Decoder(model, graph, device="cpu", context_length=context_length) as decoder:
        costs = measure(decoder, WIDTHS)
    num_bytes = graph.with_name("model.onnx.data").stat().st_size
    return Candidate(recipe, num_bytes, model.parity or ParityReport(verified=False), costs)


def choose(candidates: Sequence[Candidate], role: str) -> Candidate:
    """The fastest for a role among those that are near enough; the nearest if none is.

    `ParityError` if there is no candidate.
    """
    needs = NEEDS[role]
    if not candidates:
        tried = ", ".join(str(recipe) for recipe in CANDIDATES)
        raise ParityError(f"every recipe that was tried ({tried}) is too far from the {role}; export it with fp32")
    near = [each for each in candidates if each.mean_kl <= needs.most_kl]
    if not near:
        return min(candidates, key=lambda each: each.mean_kl)
    return min(near, key=lambda each: each.costs.seconds(needs.width))


def explained(candidates: Sequence[Candidate], role: str) -> str:
    """A table of the candidates, and why the chosen one was chosen."""
    chosen, needs = choose(candidates, role), NEEDS[role]
    near = chosen.mean_kl <= needs.most_kl
    reason = (
        f"the fastest in passes of {needs.width} tokens with a mean KL of at most {needs.most_kl:g} nats"
        if near
        else f"the nearest to its source; none has a mean KL of at most {needs.most_kl:g} nats"
    )
    return f"{table(candidates)}\n{role}: {chosen.recipe}, {reason}"


def table(candidates: Sequence[Candidate]) -> str:
    """Size, distance from the source and duration of passes, a line for each candidate."""
    headings = (
        "recipe",
        ">size",
        ">mean KL",
        ">max KL",
        ">top-1",
        ">perplexity",
        *(f">{w} tokens, ms" for w in WIDTHS),
    )
    rows = [
        (
            str(each.recipe),
            decimal(each.num_bytes),
            f"{each.mean_kl:.4f}",
            f"{each.parity.max_kl or 0:.2f}",
            f"{each.parity.top1_agreement or 0:.1%}",
            f"{each.parity.perplexity or 0:.2f}",
            *(f"{1e3 * each.costs.seconds(width):.1f}" for width in WIDTHS),
        )
        for each in candidates
    ]
    return text_table(headings, rows)
