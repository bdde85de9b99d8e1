"""What the benchmarks share: the prompts, and one answer from cold caches."""

from __future__ import annotations

from pilotfish.runtime import Engine, GenerationOptions, Stats
from pilotfish.runtime.bench.prompts import Prompt, shipped_prompts


def prompts() -> list[Prompt]:
    """The short ones that ship with the project, in the order of the file."""
    return [prompt for prompt in shipped_prompts() if prompt.length == "short"]


def run(engine: Engine, text: str, options: GenerationOptions) -> tuple[list[int], Stats]:
    """Token ids and statistics of one answer from cold caches."""
    engine.reset()
    chunks = engine.generate([{"role": "user", "content": text}], options)
    return [token_id for chunk in chunks for token_id in chunk.token_ids], engine.stats
