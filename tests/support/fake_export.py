"""Stands for `pilotfish export`: tells some progress, then copies a bundle, fails, or waits to be ended.

`fake_export(bundle)` is what widgets take as `command`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def fake_export(bundle: Path, ending: str = "copy") -> Callable[[Sequence[str]], list[str]]:
    """`ending` is `copy`, `wait`, or the words that it fails with."""
    return lambda arguments: [sys.executable, __file__, str(bundle), ending, *arguments]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("bundle", type=Path)
    parser.add_argument("ending")
    parser.add_argument("command", choices=["export"])
    parser.add_argument("--output", type=Path, required=True)
    options, _ = parser.parse_known_args()
    for work, done, total in (("fetching model", 5_000_000_000, 10_000_000_000), ("exporting target", 3, 4)):
        print(json.dumps({"progress": work, "done": done, "total": total}), file=sys.stderr, flush=True)
    if options.ending == "wait":
        time.sleep(600)
    if options.ending != "copy":
        sys.exit(f"pilotfish: {options.ending}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(options.bundle, options.output)


if __name__ == "__main__":
    main()
