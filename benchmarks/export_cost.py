"""Measures what an export costs: its peak memory, and its time against reading the source and writing the result.

Usage: python benchmarks/export_cost.py --target SRC [--draft SRC] [--quant RECIPE] [--draft-quant RECIPE]

Runs `pilotfish export` in a process of its own, then reads the same source files and writes as many bytes as the bundle
has with plain file operations, once into the page cache and once down to the disk (fsync).
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BLOCK = 1 << 22


def read_and_write(sources: list[Path], num_bytes: int, output: Path, *, to_disk: bool) -> float:
    """Seconds to read all sources and write `num_bytes`."""
    started = time.perf_counter()
    block = bytes(BLOCK)
    for source in sources:
        with source.open("rb", buffering=0) as file:
            while block_read := file.read(BLOCK):
                block = block_read
    with output.open("wb", buffering=0) as file:
        for start in range(0, num_bytes, BLOCK):
            file.write(block[: min(BLOCK, num_bytes - start)])
        if to_disk:
            os.fsync(file.fileno())
    output.unlink()
    return time.perf_counter() - started


def main() -> None:
    """Runs the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--quant", default="int8")
    parser.add_argument("--draft-quant", default="int4")
    arguments = parser.parse_args()
    sources = [path for path in (arguments.target, arguments.draft) if path]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as scratch:
        output = Path(scratch) / "bundle"
        command = [sys.executable, "-c", "from pilotfish.runtime.cli import main; main()", "export"]
        command += ["--target", str(arguments.target), "--quant", arguments.quant, "-o", str(output)]
        if arguments.draft:
            command += ["--draft", str(arguments.draft), "--draft-quant", arguments.draft_quant]
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        export_s = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        num_bytes = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
        plain = {to_disk: read_and_write(sources, num_bytes, Path(scratch) / "plain", to_disk=to_disk)
                 for to_disk in (False, True)}  # fmt: skip
    read = sum(path.stat().st_size for path in sources)
    print(f"read {read / 1e9:.2f} GB, wrote {num_bytes / 1e9:.2f} GB, peak resident memory {peak / 1e9:.2f} GB")
    print(f"export {export_s:.1f} s; plain read and write {plain[False]:.1f} s into the page cache (ratio "
          f"{export_s / plain[False]:.1f}), {plain[True]:.1f} s down to the disk "
          f"(ratio {export_s / plain[True]:.1f})")  # fmt: skip


if __name__ == "__main__":
    main()
