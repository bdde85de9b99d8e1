"""Measures what exports cost: peak memory, and time against reading the source and writing the result.

Usage: python benchmarks/export_cost.py SOURCE [SOURCE ...] [--quant int8]

Each source is exported twice by `pilotfish export` in a process of its own, without and with the comparison with its
source, which has to run the model. Then the same source file is read and as many bytes as the bundle has are written
with plain file operations, down to the disk (fsync). Memory is what the process itself took (anonymous pages), looked
at every 10 ms; pages of mapped files, which the system takes back when it needs them, are apart.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.filesize import decimal

from pilotfish.export.outline import outline_of_path
from pilotfish.runtime.text_table import text_table

BLOCK = 1 << 22
INTERVAL_S = 0.01
HEADINGS = (
    "source", ">bytes", ">bundle", ">largest tensor in fp32", "compared", ">peak", ">and of files", ">seconds",
    ">plain copy, s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a process, and the peaks of its own memory and of the pages of files that it had mapped, in bytes."""

    seconds: float
    anonymous: int
    of_files: int


def watched(command: list[str]) -> Cost:
    """Runs a command to its end."""
    started, peaks = time.perf_counter(), {"RssAnon": 0, "RssFile": 0}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in peaks:
                    peaks[name] = max(peaks[name], int(value.split()[0]) * 1024)
            time.sleep(INTERVAL_S)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return Cost(time.perf_counter() - started, peaks["RssAnon"], peaks["RssFile"])


def copy_seconds(source: Path, num_bytes: int, output: Path) -> float:
    """Seconds to read the source and write `num_bytes` to the disk."""
    started = time.perf_counter()
    block = bytes(BLOCK)
    with source.open("rb", buffering=0) as file:
        while block_read := file.read(BLOCK):
            block = block_read
    with output.open("wb", buffering=0) as file:
        for start in range(0, num_bytes, BLOCK):
            file.write(block[: min(BLOCK, num_bytes - start)])
        os.fsync(file.fileno())
    output.unlink()
    return time.perf_counter() - started


def measured(source: Path, quant: str) -> list[tuple[str, ...]]:
    """The rows of one source."""
    config = outline_of_path(source).config
    largest = 4 * config.hidden_size * max(config.vocab_size, config.intermediate_size)
    rows = []
    for options in (["--skip-verify"], []):
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
            output = Path(scratch) / "bundle"
            command = [sys.executable, "-c", "from pilotfish.runtime.cli import main; main()", "export"]
            cost = watched([*command, "--target", str(source), "--quant", quant, "-o", str(output), *options])
            num_bytes = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
            plain = copy_seconds(source, num_bytes, Path(scratch) / "plain")
        sizes = (decimal(size) for size in (source.stat().st_size, num_bytes, largest))
        peaks = (decimal(cost.anonymous), decimal(cost.of_files))
        compared = "no" if options else "yes"
        rows.append((source.stem, *sizes, compared, *peaks, f"{cost.seconds:.1f}", f"{plain:.1f}"))
    return rows


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--quant", default="int8")
    arguments = parser.parse_args()
    print(text_table(HEADINGS, [row for source in arguments.sources for row in measured(source, arguments.quant)]))


if __name__ == "__main__":
    main()
