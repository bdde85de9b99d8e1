"""Measures what a draft with a tokenizer of its own brings: acceptance, speed and host time, by kind of prompt.

Usage: python benchmarks/other_tokenizer.py BUNDLE [--max-tokens 64] [-k 4] [--prompts-of-a-kind 2] [--as-text]

Each prompt is answered three times from cold caches, greedy: by the target alone, with the draft and a fixed number of
drafted tokens, and with what the controller chooses. With --as-text a draft that shares the target's ids is treated as
one that does not, which shows what passing text costs.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import common

from pilotfish.runtime import Engine, GenerationOptions, Stats
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.text_table import text_table

ARMS = ("off", "model", "auto")
HEADINGS = (
    "prompts", ">accepted", ">tokens per round", ">draft, ms a round", ">host, ms a round", ">model", ">auto",
    ">equal",
)  # fmt: skip


def answers(engine: Engine, text: str, arguments: argparse.Namespace) -> list[tuple[list[int], Stats]]:
    """The answer of each arm to a prompt."""
    options = [
        GenerationOptions(arguments.max_tokens, draft=arm, num_draft_tokens=arguments.num_draft_tokens) for arm in ARMS
    ]
    return [common.run(engine, text, each) for each in options]


def row(name: str, found: list[list[tuple[list[int], Stats]]]) -> tuple[str, ...]:
    """The cells of all prompts together."""
    plain, model, auto = ([answer[arm][1] for answer in found] for arm in range(len(ARMS)))
    seconds, num_rounds = sum(stats.decode_s for stats in plain), sum(stats.num_rounds for stats in model)
    draft_s = sum(stats.draft_s for stats in model)
    host_s = sum(stats.decode_s - stats.target_s - stats.draft_s for stats in model)
    return (
        name,
        f"{sum(stats.num_accepted for stats in model) / sum(stats.num_drafted for stats in model):.0%}",
        f"{sum(stats.num_tokens for stats in model) / num_rounds:.2f}",
        f"{draft_s / num_rounds * 1e3:.0f}",
        f"{host_s / num_rounds * 1e3:.1f}",
        f"{seconds / sum(stats.decode_s for stats in model):.2f}",
        f"{seconds / sum(stats.decode_s for stats in auto):.2f}",
        f"{sum(answer[0][0] == answer[1][0] == answer[2][0] for answer in found)} of {len(found)}",
    )


def main() -> None:
    """Answers the prompts, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("-k", "--num-draft-tokens", type=int, default=4)
    parser.add_argument("--prompts-of-a-kind", type=int, default=2)
    parser.add_argument("--as-text", action="store_true")
    arguments = parser.parse_args()
    texts, found = defaultdict[str, list[str]](list), {}
    for prompt in common.prompts():
        texts[prompt.kind].append(prompt.text)
    bundle = load_bundle(arguments.bundle)
    if arguments.as_text:
        own = replace(bundle.manifest.tokenizer, chat_template=None)
        bundle = replace(bundle, manifest=replace(bundle.manifest, masked_draft_ids=(), draft_tokenizer=own))
    with Engine(bundle) as engine:
        for kind, prompts in texts.items():
            found[kind] = [answers(engine, text, arguments) for text in prompts[: arguments.prompts_of_a_kind]]
    rows = [row(kind, answered) for kind, answered in found.items()]
    rows.append(row("all", [answer for answered in found.values() for answer in answered]))
    print("\n" + text_table(HEADINGS, rows))


if __name__ == "__main__":
    main()
