"""Runs what was planned and sees what comes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pilotfish.runtime.bench.answers import Answer, rounds_of
from pilotfish.runtime.bench.meters import Meters
from pilotfish.runtime.bench.plan import Run
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.generation import GenerationOptions

Clock = Callable[[], float]


def measured(
    engine: Engine, runs: Sequence[Run], options: GenerationOptions, meters: Meters, num_warm_up: int = 1,
    clock: Clock = time.perf_counter,
) -> Iterator[Answer]:  # fmt: skip
    """The answers of `runs`, in order. Before, each arm answers the first prompt `num_warm_up` times unseen.

    `options` says all but who drafts.
    """
    first = runs[0].prompt
    for run in [run for run in runs if run.prompt == first and run.repeat == 0] * num_warm_up:
        answer(engine, run, options, meters, clock)
    for run in runs:
        yield answer(engine, run, options, meters, clock)


def answer(
    engine: Engine, run: Run, options: GenerationOptions, meters: Meters, clock: Clock = time.perf_counter
) -> Answer:
    """One answer from cold caches."""
    engine.reset()
    options = replace(options, draft=run.arm.draft, num_draft_tokens=run.arm.num_draft_tokens)
    arrivals: list[tuple[float, int, int]] = []
    token_ids: list[int] = []
    finish_reason = ""
    meters.start()
    started = clock()
    for chunk in engine.generate([{"role": "user", "content": run.prompt.text}], options):
        arrivals.append((clock(), engine.stats.num_rounds, len(chunk.token_ids)))
        token_ids.extend(chunk.token_ids)
        finish_reason = chunk.finish_reason or finish_reason
    request_s = clock() - started
    usage, stats = meters.stop(), engine.stats
    round_s, round_tokens = rounds_of(started, arrivals)
    return Answer(
        prompt=run.prompt.key,
        kind=run.prompt.kind,
        length=run.prompt.length,
        arm=run.arm.name,
        repeat=run.repeat,
        num_prompt_tokens=stats.num_prompt_tokens,
        num_tokens=stats.num_tokens,
        time_to_first_token_s=round_s[0],
        request_s=request_s,
        round_s=tuple(round_s[1:]),
        round_tokens=tuple(round_tokens[1:]),
        num_drafted=stats.num_drafted,
        num_accepted=stats.num_accepted,
        target_s=stats.target_s,
        draft_s=stats.draft_s,
        digest=hashlib.sha256(" ".join(map(str, token_ids)).encode()).hexdigest()[:16],
        finish_reason=finish_reason,
        energy_j=usage.energy_j,
        gpu_utilisation=usage.gpu_utilisation,
    )
