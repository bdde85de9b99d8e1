"""The results of `run.py` as Markdown: speed and fidelity of each setup, who is ahead, and by kind of prompt."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pass_profile import profile_table
from results import Results
from setups import AUTO, OFF, OURS, Peer, Setup

from pilotfish.runtime.bench import figures
from pilotfish.runtime.bench.answers import Answer
from pilotfish.runtime.bench.figures import Ratio
from pilotfish.runtime.text_table import markdown_table

NOTHING = "—"
AHEAD, BEHIND, LEVEL, UNKNOWN = "ahead", "behind", "level", "unknown"


def answers_of(results: Results, setup: Setup) -> list[Answer]:
    """Those of a setup."""
    return [answer for answer in results.answers if answer.arm == setup.name]


def tokens_per_s(answers: Sequence[Answer]) -> float | None:
    """Tokens a second after the first: the geometric mean over the prompts, each with that of its repeats."""
    logs: dict[str, list[float]] = {}
    for answer in answers:
        if answer.seconds_a_token:
            logs.setdefault(answer.prompt, []).append(-math.log(answer.seconds_a_token))
    return math.exp(statistics.fmean(map(statistics.fmean, logs.values()))) if logs else None


def best_of(results: Results, setups: Sequence[Setup]) -> Setup | None:
    """The fastest that answered; None if none did."""
    speeds = [(speed, setup) for setup in setups if (speed := tokens_per_s(answers_of(results, setup)))]
    return max(speeds, key=lambda pair: pair[0])[1] if speeds else None


def verdict(ratio: Ratio) -> str:
    """Whether ours is ahead of the other, behind, or level: the interval holds 1. One repeat does not tell."""
    if math.isinf(ratio.high):
        return UNKNOWN
    if not ratio.is_measurable:
        return LEVEL
    return AHEAD if ratio.value > 1 else BEHIND


def parted_at(results: Results, setup: Setup) -> list[int]:
    """How many tokens are equal before an answer parts from the target's alone, for each prompt where it does."""
    found = []
    for (name, prompt), token_ids in results.token_ids.items():
        alone = results.token_ids.get((f"{setup.peer.name} {OFF}", prompt))
        if name == setup.name and alone is not None and alone != token_ids:
            pairs = zip(alone, token_ids, strict=False)
            shorter = min(len(alone), len(token_ids))
            found.append(next((place for place, (one, two) in enumerate(pairs) if one != two), shorter))
    return found


def summary(results: Results, setups: Sequence[Setup]) -> dict[str, Any]:
    """The figures of each setup, ready for JSON."""
    found: dict[str, Any] = {}
    for setup in setups:
        answers, alone = answers_of(results, setup), f"{setup.peer.name} {OFF}"
        equal, compared = figures.equal_outputs(results.answers, setup.name, alone)
        speed_up = figures.speed_up(results.answers, setup.name, base=alone) if setup.draft != OFF else None
        fidelity = results.fidelity.get(setup.peer.name)
        found[setup.name] = {
            "weights": setup.peer.weights,
            "num_answers": len(answers),
            "tokens_per_s": tokens_per_s(answers),
            "time_to_first_token_s": figures.time_to_first_token_s(answers),
            "request_s": figures.request_s(answers),
            "speed_up": asdict(speed_up) if speed_up else None,
            "acceptance_rate": figures.acceptance_rate(answers),
            "outputs_equal_to_off": equal,
            "outputs_compared": compared,
            "parted_at": parted_at(results, setup),
            "fidelity": asdict(fidelity) if fidelity else None,
            "failure": results.failures.get(setup.name),
        }
    return {"settings": dict(results.settings), "versions": dict(results.versions), "setups": found}


def report(results: Results, setups: Sequence[Setup], command: str, stem: str) -> str:
    """The whole report; `stem` is the name of its files without their endings."""
    return "\n\n".join(_blocks(results, setups, command, stem)) + "\n"


def _blocks(results: Results, setups: Sequence[Setup], command: str, stem: str) -> Iterator[str]:
    settings = results.settings
    yield f"# Peers on {settings['target']}, with {settings['draft']} as draft"
    yield f"```sh\n{command}\n```"
    begun = ", and again ".join(f"{each['at']} at a load average of {each['load_average']}" for each in results.begun)
    yield f"{settings['machine']}, {settings['threads']} threads. Begun {begun}."
    repeats = len({answer.repeat for answer in results.answers})
    yield (
        f"{len(settings['prompts'])} prompts × {repeats} repeats, at most {settings['max_tokens']} tokens an answer, "
        f"greedy, by turns. ![tokens per second]({stem}.svg)"
    )
    yield _main_table(results, setups)
    yield _notes()
    ours = {draft: _ours(results, setups, draft) for draft in (OFF, AUTO)}
    if ours[AUTO]:
        yield "## The controller against each peer's best, with each of its weights"
        yield _duels(results, ours[AUTO], [best_of(results, group) for group in _by_weights(setups)])
    if ours[OFF]:
        yield "## Target alone"
        yield _duels(results, ours[OFF], [s for s in setups if s.draft == OFF and not _is_ours(s)])
    yield "## By kind of prompt"
    yield _kinds_table(results, setups)
    if repeats > 1:
        yield "## Each repeat by itself"
        yield _repeats_table(results, setups)
    for name, by_width in results.profiles.items():
        yield f"## Where the time of a pass of {name} goes"
        yield profile_table(by_width)
    yield "## How each was set up"
    yield "\n".join(_set_up(peer, results.versions.get(peer.name, {})) for peer in _peers(setups))
    failures = {name: why for name, why in results.failures.items() if name in {setup.name for setup in setups}}
    if failures:
        yield "## What did not run"
        yield "\n".join(f"- {name}: {why}" for name, why in failures.items())


def _main_table(results: Results, setups: Sequence[Setup]) -> str:
    headings = ["setup", "mean KL", "top-1", "to first token, s", "whole answer, s", "tokens/s", "speed-up", "accepted",
                "equal to its target alone"]  # fmt: skip
    rows = []
    for name, found in summary(results, setups)["setups"].items():
        fidelity = found["fidelity"]
        ratio = Ratio(**found["speed_up"]) if found["speed_up"] else None
        rows.append(
            [
                name,
                f"{fidelity['mean_kl']:.4f}" if fidelity else NOTHING,
                f"{fidelity['top1_agreement']:.1%}" if fidelity else NOTHING,
                _number(found["time_to_first_token_s"], 2),
                _number(found["request_s"], 2),
                _number(found["tokens_per_s"], 1),
                str(ratio) if ratio else NOTHING,
                _number(found["acceptance_rate"], 2),
                _equality(found),
            ]
        )
    return markdown_table(headings, rows)


def _notes() -> str:
    return """\
- mean KL (nats) and top-1: the target against the float32 logits of the GGUF file's own weights, on the shipped sample.
- to first token, whole answer: medians, in seconds. tokens/s: after the first arrival, the geometric mean over prompts.
- speed-up: against the same peer's target alone, beside which it ran, with the 95 % confidence interval of the repeats'
  scatter. accepted ÷ verified draft tokens; — where the peer does not tell.
- equal: answers that are the target's alone, token for token; in brackets after how many tokens the others part."""


def _duels(results: Results, ours: Setup, others: Sequence[Setup | None]) -> str:
    rows = []
    for other in others:
        ratio = other and figures.speed_up(results.answers, ours.name, base=other.name)
        if other is None or ratio is None:
            continue
        near = [results.fidelity.get(peer) for peer in (ours.peer.name, other.peer.name)]
        distances = " / ".join(f"{each.mean_kl:.4f}" if each else NOTHING for each in near)
        rows.append([other.name, f"{ratio.value:.2f} ({ratio.interval})", verdict(ratio), distances])
    return markdown_table([f"{ours.name} ÷", "tokens/s, ratio", "pilotfish is", "mean KL, ours / theirs"], rows)


def _kinds_table(results: Results, setups: Sequence[Setup]) -> str:
    groups = list(dict.fromkeys((answer.kind, answer.length) for answer in results.answers))
    rows = []
    for setup in setups:
        answers = answers_of(results, setup)
        speeds = [tokens_per_s([a for a in answers if (a.kind, a.length) == group]) for group in groups]
        rows.append([setup.name, *(_number(speed, 1) for speed in speeds)])
    return markdown_table(["tokens/s", *(f"{kind}, {length}" for kind, length in groups)], rows)


def _repeats_table(results: Results, setups: Sequence[Setup]) -> str:
    """Tokens a second of all prompts in each repeat, and by how much the most exceeds the least."""
    repeats = sorted({answer.repeat for answer in results.answers})
    rows = []
    for setup in setups:
        answers = answers_of(results, setup)
        speeds = [tokens_per_s([answer for answer in answers if answer.repeat == repeat]) for repeat in repeats]
        known = [speed for speed in speeds if speed is not None]
        spread = f"{max(known) / min(known) - 1:.1%}" if len(known) > 1 else NOTHING
        rows.append([setup.name, *(_number(speed, 1) for speed in speeds), spread])
    return markdown_table(["tokens/s", *(f"repeat {repeat + 1}" for repeat in repeats), "apart"], rows)


def _equality(found: Mapping[str, Any]) -> str:
    if not found["num_answers"] or found["speed_up"] is None:
        return NOTHING
    places = ", ".join(map(str, found["parted_at"]))
    return f"{found['outputs_equal_to_off']} of {found['outputs_compared']}" + (f" ({places})" if places else "")


def _ours(results: Results, setups: Sequence[Setup], draft: str) -> Setup | None:
    return best_of(results, [setup for setup in setups if _is_ours(setup) and setup.draft == draft])


def _is_ours(setup: Setup) -> bool:
    return setup.peer.worker == OURS


def _by_weights(setups: Sequence[Setup]) -> list[list[Setup]]:
    """The setups of each peer but ours, those with other weights apart: they differ in fidelity."""
    names = dict.fromkeys(setup.peer.name for setup in setups if not _is_ours(setup))
    return [[setup for setup in setups if setup.peer.name == name] for name in names]


def _set_up(peer: Peer, versions: Mapping[str, str]) -> str:
    numbers = ", ".join(f"{name} {number}" for name, number in versions.items())
    return f"- **{peer.name}** ({numbers or 'did not run'}): {peer.weights}. {peer.how}."


def _peers(setups: Sequence[Setup]) -> list[Peer]:
    return list({setup.peer.name: setup.peer for setup in setups}.values())


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"
