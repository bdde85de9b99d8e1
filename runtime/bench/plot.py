"""A record as a picture: speed-up by kind of prompt, how long tokens are waited for, and speed-up against k.

Needs matplotlib, the extra `plot`, which nothing else of the runtime does; so it is imported when a plot is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pilotfish.runtime.bench import figures
from pilotfish.runtime.bench.figures import Ratio, percentile
from pilotfish.runtime.bench.record import Record
from pilotfish.runtime.bench.report import groups_of, heading
from pilotfish.runtime.errors import OptionError, StorageError

FORMATS = ("png", "svg")
# Apart for those who see no red or green too (Okabe & Ito); grey is the target alone, and what cannot be told from it.
ALONE, AUTO, FIXED, TEXT, GRID = "#7a7f87", "#0072b2", "#d55e00", "#24292f", "#e3e6ea"
TICKS = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32)
STYLE = {
    "font.family": "sans-serif", "font.size": 10, "text.color": TEXT, "axes.labelcolor": TEXT, "xtick.color": TEXT,
    "ytick.color": TEXT, "axes.edgecolor": "#b4bac2", "axes.spines.top": False, "axes.spines.right": False,
    "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 10,
    "svg.hashsalt": "pilotfish", "svg.fonttype": "none", "xtick.minor.size": 0, "ytick.minor.size": 0,
}  # fmt: skip


def plot_format(path: Path) -> str:
    """The format that a file's name asks for; `OptionError` if there is no such, or nothing to draw with."""
    found = path.suffix.lower().removeprefix(".")
    if found not in FORMATS:
        raise OptionError(f"a plot is a .png or an .svg file, and not {path.name}")
    if find_spec("matplotlib") is None:
        raise OptionError("a plot needs matplotlib; run `pip install 'pilotfish[plot]'`")
    return found


def save_plot(record: Record, path: Path) -> None:
    """Draws the record into a file; `StorageError` if it cannot be written."""
    file_format = plot_format(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        num_rows = len(groups_of(record))
        figure = Figure(figsize=(12, max(6.9, 3.1 + 0.36 * num_rows)), dpi=150, facecolor="white")
        _draw(figure, record)
        try:
            figure.savefig(path, format=file_format)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def _draw(figure: Any, record: Record) -> None:
    height = figure.get_figheight()
    grid = figure.add_gridspec(
        2, 2, left=0.135, right=0.965, top=1 - 1.95 / height, bottom=0.8 / height, hspace=0.52, wspace=0.2,
        width_ratios=(1, 1.05),
    )  # fmt: skip
    ratio = figures.speed_up(record.answers, "auto")
    figure.text(0.02, 1 - 0.42 / height, _headline(record, ratio), fontsize=16, fontweight="bold")
    figure.text(
        0.02, 1 - 0.55 / height, "\n".join(_lines(record)), fontsize=8.5, color="#57606a", va="top", linespacing=1.4
    )
    fixed = fixed_arms(record)
    draw_kinds(figure.add_subplot(grid[:, 0]), record)
    draw_latencies(figure.add_subplot(grid[0, 1] if fixed else grid[:, 1]), record)
    if fixed:
        draw_lengths(figure.add_subplot(grid[1, 1]), record, fixed)


def _headline(record: Record, ratio: Ratio | None) -> str:
    name = record.settings["bundle"]
    if ratio is None or not ratio.is_measurable:
        return f"{name}: speculation makes {ratio or 'no measurable difference'}"
    return f"{name}: with speculation {ratio.value:.2f} times as fast ({ratio.interval})"


def _lines(record: Record) -> list[str]:
    return [line for line in heading(record) if not line.startswith("note: ")]


def draw_kinds(axes: Any, record: Record) -> None:
    """The controller's speed-up for each kind and length of prompt, with its interval."""
    groups = groups_of(record)
    ratios = [figures.speed_up(record.answers, "auto", group) for group in groups]
    low, high = _limits([ratio for ratio in ratios if ratio])
    axes.axvline(1, color=ALONE, linewidth=1.2)
    for row, ratio in enumerate(ratios):
        if ratio is None:
            continue
        colour, fill = (AUTO, AUTO) if ratio.is_measurable else (ALONE, "white")
        ends = [max(ratio.low, low), min(ratio.high, high)]
        axes.plot(ends, [row, row], color=colour, linewidth=2.4, alpha=0.45, solid_capstyle="round")
        axes.plot(ratio.value, row, "o", color=colour, markerfacecolor=fill, markersize=7, markeredgewidth=1.6)
        if ratio.is_measurable:
            axes.annotate(
                f"{ratio.value:.2f}", (ratio.value, row), (0, 7), textcoords="offset points", ha="center",
                fontsize=8.5, color=colour,
            )  # fmt: skip
    axes.set_yticks(range(len(groups)), [f"{kind} · {length}" for kind, length in groups])
    axes.set_ylim(len(groups) - 0.5, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    _ratio_axis(axes, axes.xaxis, low, high)
    axes.set_title("Speed-up by kind of prompt")
    axes.set_xlabel("times as fast as the target alone, with 95 % interval\nhollow: no measurable difference")


def draw_latencies(axes: Any, record: Record) -> None:
    """Which part of the tokens came within which time, by the target alone and by the controller."""
    axes.set_xscale("log")
    medians, slowest = [], []
    for arm, colour, label in (("off", ALONE, "target alone"), ("auto", AUTO, "with speculation")):
        milliseconds = sorted(1e3 * seconds for answer in record.of(arm) for seconds in answer.inter_token_s)
        if not milliseconds:
            continue
        shares = [(number + 1) / len(milliseconds) for number in range(len(milliseconds))]
        median, p95 = percentile(milliseconds, 0.5), percentile(milliseconds, 0.95)
        axes.step(milliseconds, shares, where="post", color=colour, linewidth=2, label=label)
        axes.plot([median, p95], [0.5, 0.95], "o", color=colour, markersize=5)
        medians.append(f"{median:.1f}")
        slowest.append(f"{p95:.1f}")
    told = f"median {' → '.join(medians)} ms\np95 {' → '.join(slowest)} ms"
    axes.text(0.985, 0.05, told, transform=axes.transAxes, ha="right", fontsize=9, linespacing=1.5)
    every = [1e3 * s for arm in ("off", "auto") for a in record.of(arm) for s in a.inter_token_s]
    axes.set_xlim(percentile(every, 0.002) / 1.15, percentile(every, 0.998) * 1.15)
    _plain_ticks(axes.xaxis, axes.get_xlim())
    axes.set_ylim(0, 1.02)
    axes.set_yticks((0, 0.25, 0.5, 0.75, 0.95), ("0", "25 %", "50 %", "75 %", "95 %"))
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    _legend(axes)
    axes.set_title("Time of a token")
    axes.set_xlabel("milliseconds a token, each its share of its round")
    axes.set_ylabel("tokens that took no longer")


def draw_lengths(axes: Any, record: Record, fixed: Sequence[tuple[int, str]]) -> None:
    """Speed-up of a fixed number of drafted tokens, beside what the controller reaches."""
    found = [(k, ratio) for k, arm in fixed if (ratio := figures.speed_up(record.answers, arm))]
    auto = figures.speed_up(record.answers, "auto")
    low, high = _limits([ratio for _, ratio in found] + ([auto] if auto else []))
    numbers = [k for k, _ in found]
    axes.axhline(1, color=ALONE, linewidth=1.2)
    if auto:
        axes.axhspan(max(auto.low, low), min(auto.high, high), color=AUTO, alpha=0.15, linewidth=0)
        axes.axhline(auto.value, color=AUTO, linewidth=2, label="controller")
    axes.plot(numbers, [ratio.value for _, ratio in found], "-", color=FIXED, linewidth=1.4, alpha=0.6)
    for k, ratio in found:
        axes.plot([k, k], [max(ratio.low, low), min(ratio.high, high)], color=FIXED, linewidth=2.4, alpha=0.45,
                  solid_capstyle="round")  # fmt: skip
    axes.plot(numbers, [ratio.value for _, ratio in found], "o", color=FIXED, markersize=7,
              label=f"always k ({fixed[0][1].split()[0]})")  # fmt: skip
    axes.set_xticks(numbers)
    axes.set_xlim(min(numbers) - 0.6, max(numbers) + 0.6)
    _ratio_axis(axes, axes.yaxis, low, high)
    _legend(axes)
    axes.set_title("Speed-up against k")
    axes.set_xlabel("k, drafted tokens in every round")
    axes.set_ylabel("times as fast as alone")


def fixed_arms(record: Record) -> list[tuple[int, str]]:
    """(k, name) of the arms with a fixed number of drafted tokens, by number."""
    return sorted((int(arm.split()[1]), arm) for arm in record.arms if " " in arm)


def _legend(axes: Any) -> None:
    """In the line of the title, where no curve is."""
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=8.5, borderpad=0.2,
        handlelength=1.4, columnspacing=1.4,
    )  # fmt: skip


def _limits(ratios: Sequence[Ratio]) -> tuple[float, float]:
    """A range of ratios that holds 1, every value, and its interval as far as that is not beyond all others."""
    values = [1.0, *(ratio.value for ratio in ratios)]
    low, high = min(values), max(values)
    low = min([low, *(ratio.low for ratio in ratios if ratio.low > low / 2)])
    high = max([high, *(ratio.high for ratio in ratios if ratio.high < high * 2)])
    return low / 1.08, high * 1.08


def _ratio_axis(axes: Any, axis: Any, low: float, high: float) -> None:
    """Equal distances are equal ratios, so twice as fast is as far from 1 as half as fast."""
    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    (axes.set_xlim if axis is axes.xaxis else axes.set_ylim)(low, high)
    ticks = [tick for tick in TICKS if low <= tick <= high]
    if len(ticks) < 4:
        step = 10 if high / low > 1.5 else 5
        ticks = [tick / 100 for tick in range(step, 400, step) if low <= tick / 100 <= high]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)
    axes.grid(axis="x" if axis is axes.xaxis else "y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def _plain_ticks(axis: Any, limits: tuple[float, float]) -> None:
    """Ticks at 1, 2 and 5 times powers of ten, as plain numbers."""
    ticks = [base * 10.0**power for power in range(-3, 7) for base in (1, 1.5, 2, 3, 5, 7)]
    ticks = [tick for tick in ticks if limits[0] <= tick <= limits[1]]
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)
