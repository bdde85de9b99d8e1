"""Compares the acceptance rules on real prompts, and a seed's text with and without a draft.

Usage: python benchmarks/acceptance_rules.py BUNDLE [--max-tokens 96] [--seeds 3] [-k 4]

Eight prompts, each with every seed and every rule, in turn, from cold caches; the target alone runs with the same seed
beside them. Prints one line for each rule: acceptance rate, tokens per round, tokens per second as a ratio to the
target alone in the same run (median), share of decoding outside ONNX Runtime, and for the rule `seed` equal texts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import common
import numpy as np

from pilotfish import runtime as pilotfish
from pilotfish.runtime import GenerationOptions, SamplingParams, Stats
from pilotfish.runtime.text_table import markdown_table

HEADINGS = ("rule", "acceptance rate", "tokens per round", "tokens/s ÷ target alone (median)", "host share")

RULES = ("token", "block", "seed")
NUM_PROMPTS = 8


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("-k", "--num-draft-tokens", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-p", type=float, default=0.95)
    arguments = parser.parse_args()
    prompts = common.prompts()[:NUM_PROMPTS]
    stats: dict[str, list[Stats]] = {rule: [] for rule in RULES}
    ratios: dict[str, list[float]] = {rule: [] for rule in RULES}
    num_equal = 0
    with pilotfish.load(arguments.bundle) as engine:
        draft = "model" if engine.bundle.manifest.draft else "suffix"
        for prompt in prompts:
            for seed in range(arguments.seeds):

                def options(rule: str, draft: str, seed: int = seed) -> GenerationOptions:
                    sampling = SamplingParams(arguments.temperature, top_p=arguments.top_p, seed=seed, acceptance=rule)
                    return GenerationOptions(
                        arguments.max_tokens, sampling, draft, num_draft_tokens=arguments.num_draft_tokens
                    )

                expected, alone = common.run(engine, prompt.text, options("seed", "off"))
                for rule in RULES:
                    tokens, found = common.run(engine, prompt.text, options(rule, draft))
                    stats[rule].append(found)
                    ratios[rule].append(found.tokens_per_s / alone.tokens_per_s)
                    num_equal += rule == "seed" and tokens == expected
    print(
        f"{arguments.bundle.name}, {len(prompts)} prompts × {arguments.seeds} seeds, {arguments.max_tokens} tokens, "
        f"k = {arguments.num_draft_tokens}, temperature {arguments.temperature}, top-p {arguments.top_p}"
    )
    print(f"rule seed: the same text with and without speculation in {num_equal} of {len(stats['seed'])} runs")
    rows = []
    for rule, runs in stats.items():
        accepted = sum(s.num_accepted for s in runs) / max(sum(s.num_drafted for s in runs), 1)
        per_round = sum(s.num_tokens for s in runs) / sum(s.num_rounds for s in runs)
        host = sum(s.host_s for s in runs) / sum(s.decode_s for s in runs)
        rows.append((rule, f"{accepted:.3f}", f"{per_round:.2f}", f"{np.median(ratios[rule]):.2f}", f"{host:.1%}"))
    print(markdown_table(HEADINGS, rows))


if __name__ == "__main__":
    main()
