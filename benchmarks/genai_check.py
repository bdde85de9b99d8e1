"""Counts how often onnxruntime-genai and pilotfish write the same greedy output with the target of a bundle.

Usage: pip install onnxruntime-genai; python benchmarks/genai_check.py BUNDLE [--max-tokens 64] [--prompts 10]

BUNDLE was written by `pilotfish export --genai`. Both compute one row a token, so pilotfish runs without a draft and
without exact mode. Prints for each prompt at which token the two part, if they do.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path

import common
import numpy as np
import onnxruntime_genai

from pilotfish import runtime as pilotfish
from pilotfish.runtime import GenerationOptions


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=10, help="how many of the file, from its beginning")
    arguments = parser.parse_args()
    options = GenerationOptions(arguments.max_tokens, draft="off")
    model = onnxruntime_genai.Model(str(arguments.bundle))
    num_equal = 0
    with pilotfish.load(arguments.bundle, exact=False) as engine:
        ends = engine.tokenizer.end_token_ids
        for prompt in common.prompts()[: arguments.prompts]:
            expected, _ = common.run(engine, prompt["text"], options)
            prompt_ids = engine.tokenizer.encode_chat([{"role": "user", "content": prompt["text"]}])
            one, two = (without(ends, ids) for ids in (expected, answered(model, prompt_ids, arguments.max_tokens)))
            common_length = next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(one))
            num_equal += one == two
            print(f"{prompt['kind']:10} {len(one):4} tokens, {'equal' if one == two else f'part at {common_length}'}")
    print(f"{num_equal} of {arguments.prompts} equal")


def without(end_token_ids: Collection[int], token_ids: list[int]) -> list[int]:
    """The ids without the end of text, which not every program gives."""
    return [token_id for token_id in token_ids if token_id not in end_token_ids]


def answered(model: onnxruntime_genai.Model, prompt_ids: Sequence[int], max_tokens: int) -> list[int]:
    """The token ids that onnxruntime-genai appends greedily."""
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(max_length=len(prompt_ids) + max_tokens, do_sample=False)
    generator = onnxruntime_genai.Generator(model, params)
    generator.append_tokens(np.array(prompt_ids, np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [int(token_id) for token_id in generator.get_sequence(0)[len(prompt_ids) :]]


if __name__ == "__main__":
    main()
