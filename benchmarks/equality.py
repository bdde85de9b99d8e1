"""Counts how often greedy output with speculation equals output without it, token for token, on real prompts.

Usage: python benchmarks/equality.py BUNDLE [--max-tokens 128] [--most 6] [--prompts 10] [--fast]

For each prompt the target alone is run first, then the n-gram lookup and the draft model with 1 to `--most` drafted
tokens, each from cold caches. Prints one line for each way of drafting: equal outputs, tokens per second as a ratio to
the target alone in the same run, acceptance rate, tokens per round, and the share of decoding outside ONNX Runtime.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import common
import numpy as np

from pilotfish import runtime as pilotfish
from pilotfish.runtime import GenerationOptions
from pilotfish.runtime.text_table import markdown_table

HEADINGS = ("draft", "k", "equal", "speed-up (median)", "acceptance rate", "tokens per round", "host share")


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--most", type=int, default=6, help="largest number of drafted tokens")
    parser.add_argument("--prompts", type=int, default=10, help="how many of the file, from its beginning")
    parser.add_argument("--fast", action="store_true", help="without exact mode")
    arguments = parser.parse_args()
    prompts = common.prompts()[: arguments.prompts]
    with pilotfish.load(arguments.bundle, exact=not arguments.fast) as engine:
        ways = [("lookup", 4)]
        if engine.bundle.manifest.draft is not None:
            ways += [("model", number) for number in range(1, arguments.most + 1)]
        plain, equal, stats = [], dict.fromkeys(ways, 0), {way: [] for way in ways}
        for prompt in prompts:
            expected, alone = common.run(engine, prompt.text, GenerationOptions(arguments.max_tokens, draft="off"))
            plain.append(alone)
            for draft, number in ways:
                options = GenerationOptions(arguments.max_tokens, draft=draft, num_draft_tokens=number)
                tokens, stat = common.run(engine, prompt.text, options)
                equal[draft, number] += tokens == expected
                stats[draft, number].append(stat)
    print(f"{arguments.bundle.name}, {len(prompts)} prompts, {arguments.max_tokens} tokens, greedy")
    print(f"target alone: {np.median([s.tokens_per_s for s in plain]):.1f} tokens/s (median)")
    rows = []
    for (draft, number), found in equal.items():
        runs = stats[draft, number]
        speed_up = np.median([s.tokens_per_s / p.tokens_per_s for s, p in zip(runs, plain, strict=True)])
        accepted = sum(s.num_accepted for s in runs) / max(sum(s.num_drafted for s in runs), 1)
        per_round = sum(s.num_tokens for s in runs) / sum(s.num_rounds for s in runs)
        host = sum(s.host_s for s in runs) / sum(s.decode_s for s in runs)
        rows.append((
            draft, str(number), f"{found} of {len(runs)}", f"{speed_up:.2f}", f"{accepted:.2f}", f"{per_round:.2f}",
            f"{host:.1%}",
        ))  # fmt: skip
    print(markdown_table(HEADINGS, rows))


if __name__ == "__main__":
    main()
