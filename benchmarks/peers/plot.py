"""The results of `run.py` as a picture: tokens per second of each setup, over all prompts and for each kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from report import answers_of, tokens_per_s
from results import Results
from setups import OFF, OURS, Setup

from pilotfish.runtime.bench.plot import ALONE, AUTO, FIXED, FORMATS, GRID, STYLE


def save_plots(results: Results, setups: Sequence[Setup], path: Path) -> None:
    """Draws the results beside a report, in every format; nothing if no setup answered."""
    found = [(setup, speed) for setup in setups if (speed := tokens_per_s(answers_of(results, setup)))]
    if not found:
        return
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 1.9 + 0.34 * len(found)), dpi=150, facecolor="white", layout="constrained")
        axes = figure.add_subplot()
        draw_speeds(axes, results, sorted(found, key=lambda pair: -pair[1]))
        for file_format in FORMATS:
            # Without its date, the same results give the same file.
            figure.savefig(path.with_suffix(f".{file_format}"), format=file_format, metadata=_without_date(file_format))


def draw_speeds(axes: Any, results: Results, found: Sequence[tuple[Setup, float]]) -> None:
    """A bar for each setup, the fastest on top, and a dot for each kind of prompt."""
    for row, (setup, speed) in enumerate(found):
        axes.barh(row, speed, height=0.62, color=colour_of(setup))
        kinds = dict.fromkeys((a.kind, a.length) for a in results.answers)
        answers = answers_of(results, setup)
        dots = [tokens_per_s([a for a in answers if (a.kind, a.length) == kind]) for kind in kinds]
        known = [dot for dot in dots if dot is not None]
        axes.plot(known, [row] * len(known), "o", color="white", markeredgecolor="#24292f", markersize=3.5)
        axes.annotate(f"{speed:.1f}", (max([speed, *known]), row), (6, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(found)), [setup.name for setup, _ in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlim(0, None)
    axes.set_title(f"{results.settings['target']}: tokens per second")
    axes.set_xlabel(
        "geometric mean over all prompts; dots: each kind of prompt\n"
        "blue: pilotfish's controller, orange: a peer that drafts, grey: target alone"
    )


def colour_of(setup: Setup) -> str:
    """Grey for a target alone, blue for our controller, orange for a peer that drafts."""
    if setup.draft == OFF:
        return ALONE
    return AUTO if setup.peer.worker == OURS else FIXED


def _without_date(file_format: str) -> dict[str, None]:
    return {"Date": None} if file_format == "svg" else {}
