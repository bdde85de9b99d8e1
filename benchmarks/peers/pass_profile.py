"""Where the time of a pass of a bundle's target goes, by operator, as ONNX Runtime's own profiler sees it.

Usage: python benchmarks/peers/pass_profile.py BUNDLE [--widths 1 5] [--past 256] [--passes 10] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnxruntime

from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.text_table import markdown_table

MINOR = 0.005  # operators with a smaller share are shown together


def profile(bundle: Path, width: int, num_past: int, num_passes: int, num_threads: int) -> dict[str, float]:
    """Seconds of a pass by operator, the most first: of `width` tokens after `num_past`, the mean of `num_passes`.

    `outside` is what a pass takes beyond its operators.
    """
    loaded = load_bundle(bundle)
    target = loaded.manifest.target
    token_ids = [number % 1000 for number in range(num_past + width)]
    with tempfile.TemporaryDirectory() as folder, _profiling(Path(folder) / "pass"):
        with Decoder(
            target, bundle / target.graph, device="cpu", context_length=len(token_ids), num_threads=num_threads
        ) as decoder:
            decoder.forward(token_ids[:num_past], 0)
            for _ in range(num_passes + 1):  # the first of this width warms up
                decoder.forward(token_ids[num_past:], width)
                decoder.rollback(num_past)
            path = Path(decoder._session.end_profiling())
        return by_operator(json.loads(path.read_text(encoding="utf-8")), num_passes)


def by_operator(events: Sequence[Mapping[str, Any]], num_passes: int) -> dict[str, float]:
    """Seconds by operator, the mean of the last `num_passes` runs in a profile of ONNX Runtime."""
    runs = sorted((e for e in events if e.get("name") == "model_run"), key=lambda event: event["ts"])[-num_passes:]
    spans = [(run["ts"], run["ts"] + run["dur"]) for run in runs]
    found: Counter[str] = Counter()
    for event in events:
        operator = event.get("args", {}).get("op_name")
        if event.get("cat") == "Node" and operator and any(start <= event["ts"] < end for start, end in spans):
            found[operator] += event["dur"]
    found["outside"] = max(sum(run["dur"] for run in runs) - sum(found.values()), 0)
    return {operator: micros / 1e6 / len(runs) for operator, micros in found.most_common()}


def profile_table(by_width: Mapping[str, Mapping[str, float]]) -> str:
    """Markdown: milliseconds and share of each operator, for each width of a pass."""
    totals = {width: sum(found.values()) for width, found in by_width.items()}
    operators = dict.fromkeys(
        operator for width, found in by_width.items() for operator in found if found[operator] >= MINOR * totals[width]
    )
    rows = [[operator, *(_cell(by_width[w].get(operator, 0.0), totals[w]) for w in by_width)] for operator in operators]
    rest = {w: totals[w] - sum(by_width[w].get(operator, 0.0) for operator in operators) for w in by_width}
    rows.append(["all else", *(_cell(rest[w], totals[w]) for w in by_width)])
    rows.append(["a pass", *(f"{1e3 * total:.1f} ms" for total in totals.values())])
    return markdown_table(["operator", *(f"{width} token{'s' if width != '1' else ''}" for width in by_width)], rows)


def _cell(seconds: float, total: float) -> str:
    return f"{1e3 * seconds:.2f} ms, {seconds / total:.1%}"


@contextmanager
def _profiling(prefix: Path) -> Iterator[None]:
    """Sessions that are opened meanwhile write a profile; `open_session` has no such option, as no user needs it."""
    plain = onnxruntime.SessionOptions

    def options() -> Any:
        found = plain()
        found.enable_profiling, found.profile_file_prefix = True, str(prefix)
        return found

    onnxruntime.SessionOptions = options
    try:
        yield
    finally:
        onnxruntime.SessionOptions = plain


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--past", type=int, default=256)
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    found = {
        str(width): profile(arguments.bundle, width, arguments.past, arguments.passes, arguments.threads)
        for width in arguments.widths
    }
    print(profile_table(found))


if __name__ == "__main__":
    main()
