"""What the benchmarks share: the prompts, and one answer from cold caches."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pilotfish.runtime import Engine, GenerationOptions, Stats


def prompts() -> list[dict[str, str]]:
    """All prompts in the order of the file, each with `kind` and `text`."""
    found: list[dict[str, str]] = tomllib.loads((Path(__file__).parent / "prompts.toml").read_text())["prompt"]
    return found


def run(engine: Engine, text: str, options: GenerationOptions) -> tuple[list[int], Stats]:
    """Token ids and statistics of one answer from cold caches."""
    engine.reset()
    chunks = engine.generate([{"role": "user", "content": text}], options)
    return [token_id for chunk in chunks for token_id in chunk.token_ids], engine.stats
