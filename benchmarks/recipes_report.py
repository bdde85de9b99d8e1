"""The report of `recipes.py`: what was measured of each stored model, and the Markdown that shows it."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pass_times import WIDTHS

HEADINGS = (
    "engine", "weights", "MB", "mean KL", "median KL", "max KL", "top-1", "perplexity",
    *(f"t({width})" for width in WIDTHS), *(f"t({width})/t(1)" for width in WIDTHS[1:]), "nearer at no more MB",
)  # fmt: skip
OURS = "pilotfish"
AIM = 0.005  # nats of mean KL, for recipes of 8 bits

REPORT = """\
# Recipes on {name}

```sh
{command}
```

{machine}. {versions}.

{table}

- MB: all files of the bundle, or the GGUF file, tokenizer included. A bundle holds a head that is the embedding once.
- KL divergence (nats), top-1 and perplexity: {num_tokens} tokens of the shipped sample, against the float32 logits of
  the source's own weights, which have a perplexity of {perplexity:.3f}. Where the median is far below the mean, a few
  tokens make the mean. Recipes with a mean KL below {aim:g}: {near}.
- t(n): a pass of n tokens after {past}, with the logits of all n, in ms: the median of {num_times} and, in brackets,
  the least. In each of {num_rounds} rounds every model is loaded and timed in turn. Ratios are of the least, which
  other programs on the machine disturb least. Where a median is far above its least, the machine was too busy:
  run this again; llama.cpp, whose threads wait for each other busily, suffers most.
"""

WITH_LLAMA_CPP = """\
- llama.cpp runs with its defaults (caches of 16 bits). Its copies are the GGUF's weights, rounded once more to another
  type. "nearer at no more MB" names the copies with a smaller mean KL than a recipe that are no larger than it. A copy
  in the source's own types meets most of its weights on the grid where they lie already, which favours it.
- The error of the source's own rounding cannot be measured without the model that it was made from. The estimate is the
  source's distance from a model that it may have been made from: each quantized weight moved by a random part, at most
  half, of its rounding step.
"""


@dataclass(frozen=True, slots=True)
class Distance:
    """How far logits are from the reference: KL divergence in nats, the share of equal top tokens, the perplexity."""

    mean_kl: float
    median_kl: float
    max_kl: float
    top1_agreement: float
    perplexity: float


@dataclass(frozen=True, slots=True)
class Result:
    """One stored model: bytes of its files, its distance from the source, and the seconds of passes by their width.

    `is_copy` says that its weights were rounded once more by the other engine, to be compared with ours.
    """

    engine: str
    name: str
    num_bytes: int
    distance: Distance
    seconds: dict[str, list[float]]
    is_copy: bool = False


def machine(num_threads: int) -> str:
    """The processor, what of it was used, and how busy it was meanwhile."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = set(fields.get("flags", "").split())
    units = [name for name in ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "amx_int8") if name in flags]
    name = fields.get("model name", platform.machine())
    busy = f", load average of 15 minutes {os.getloadavg()[2]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{name} ({', '.join(units)}), {os.cpu_count()} logical cores, {num_threads} threads used{busy}"


def table(results: Sequence[Result]) -> str:
    """One line for each result, the largest first."""
    copies = [result for result in results if result.is_copy]
    rows = [_row(each, copies) for each in sorted(results, key=lambda each: -each.num_bytes)]
    return "\n".join([_line(HEADINGS), "|" + "---|" * len(HEADINGS), *rows])


def _row(result: Result, copies: Sequence[Result]) -> str:
    distance = result.distance
    by_width = [result.seconds[str(width)] for width in WIDTHS] if result.seconds else []
    times = [f"{1e3 * statistics.median(each):.1f} ({1e3 * min(each):.1f})" for each in by_width]
    times += [f"{min(each) / min(by_width[0]):.2f}" for each in by_width[1:]]
    return _line(
        (
            result.engine,
            result.name,
            f"{result.num_bytes / 1e6:.0f}",
            f"{distance.mean_kl:.5f}",
            f"{distance.median_kl:.5f}",
            f"{distance.max_kl:.3f}",
            f"{distance.top1_agreement:.1%}",
            f"{distance.perplexity:.3f}",
            *(times or [""] * (2 * len(WIDTHS) - 1)),
            _nearer(result, copies) if copies and result.engine == OURS else "",
        )
    )


def _nearer(result: Result, copies: Sequence[Result]) -> str:
    """The copies that are both no larger and nearer to the source."""
    names = [
        copy.name
        for copy in copies
        if copy.num_bytes <= result.num_bytes and copy.distance.mean_kl < result.distance.mean_kl
    ]
    return ", ".join(names) or "none"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
