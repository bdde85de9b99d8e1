"""A record as tables: the arms beside each other, speed-ups by kind of prompt, and what changed since another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

from pilotfish.runtime.bench import figures
from pilotfish.runtime.bench.answers import Answer
from pilotfish.runtime.bench.figures import Ratio, Spread, over_repeats
from pilotfish.runtime.bench.record import Record
from pilotfish.runtime.machine import RUNTIMES
from pilotfish.runtime.text_table import text_table

NOTHING = "—"
SHOWN = ("pilotfish", "numpy", *RUNTIMES)  # of the versions that the record has


@dataclass(frozen=True, slots=True)
class Prices:
    """What an hour of the machine costs, and a kilowatt-hour, in any one currency; 0 if that is not paid for."""

    per_hour: float = 0.0
    per_kwh: float = 0.0

    @property
    def are_given(self) -> bool:
        """Whether a cost can be told."""
        return self.per_hour > 0 or self.per_kwh > 0


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of an arm: its name in JSON, what the table calls it, how it is found and printed."""

    name: str
    label: str
    figure: Callable[[Sequence[Answer]], float | None]
    text: Callable[[float], str]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}" if seconds < 1 else f"{1e3 * seconds:.0f}"


def rows_of(prices: Prices) -> list[Row]:
    """All figures, in the order of the table."""
    rows = [
        Row("time_to_first_token_s", "time to first token, ms", figures.time_to_first_token_s, _ms),
        Row("inter_token_s", "inter-token latency, median, ms", figures.inter_token_s, _ms),
        Row("inter_token_p95_s", "inter-token latency, p95, ms", lambda a: figures.inter_token_s(a, 0.95), _ms),
        Row("pause_s", "pause between texts, median, ms", figures.pause_s, _ms),
        Row("pause_p95_s", "pause between texts, p95, ms", lambda a: figures.pause_s(a, 0.95), _ms),
        Row("tokens_per_s", "tokens/s", figures.tokens_per_s, "{:.1f}".format),
        Row("request_s", "whole answer, s", figures.request_s, "{:.2f}".format),
        Row("acceptance_rate", "acceptance rate", figures.acceptance_rate, "{:.2f}".format),
        Row("tokens_per_round", "tokens per round", figures.tokens_per_round, "{:.2f}".format),
        Row("gpu_utilisation", "GPU utilisation", figures.gpu_utilisation, "{:.0%}".format),
        Row("energy_j", "energy an answer, J", figures.energy_j, "{:.1f}".format),
    ]
    if prices.are_given:
        cost = Row("cost_of_1000", "cost of 1,000 answers", lambda a: _cost_of_1000(a, prices), "{:.3g}".format)
        rows.append(cost)
    return rows


def _cost_of_1000(answers: Sequence[Answer], prices: Prices) -> float | None:
    cost = figures.cost(answers, prices.per_hour, prices.per_kwh)
    return None if cost is None else 1000 * cost


def summary(record: Record, prices: Prices) -> dict[str, Any]:
    """All figures by arm, ready for JSON."""
    found: dict[str, Any] = {}
    for arm in record.arms:
        answers = record.of(arm)
        spreads = {row.name: over_repeats(answers, row.figure) for row in rows_of(prices)}
        equal, compared = figures.equal_outputs(record.answers, arm)
        ratio = figures.speed_up(record.answers, arm)
        found[arm] = {name: asdict(spread) if spread else None for name, spread in spreads.items()}
        found[arm] |= {"outputs_equal_to_off": equal, "outputs_compared": compared}
        found[arm] |= {"speed_up": asdict(ratio) | {"is_measurable": ratio.is_measurable} if ratio else None}
    return found


def report(record: Record, prices: Prices) -> Iterator[str]:
    """The blocks of text that are printed."""
    yield "\n".join(heading(record))
    yield arms_table(record, prices)
    yield kinds_table(record)
    yield "\n".join(_footnotes(record))


def heading(record: Record) -> Iterator[str]:
    """What ran, where, and what may have disturbed it."""
    settings, machine = record.settings, record.machine
    draft = f"draft {settings['draft_recipe']}" if settings["draft_recipe"] else "no draft model"
    drawn = f"temperature {settings['temperature']}, seed {settings['seed']}" if settings["temperature"] else "greedy"
    yield f"{settings['bundle']}: target {settings['target_recipe']}, {draft}; {settings['device']}, {settings['mode']}"
    amount = f"{settings['num_prompts']} prompts × {settings['num_repeats']} repeats"
    yield f"{amount}, at most {settings['max_tokens']} tokens an answer, {drawn}"
    cores = f"{machine['num_usable_cores']} of {machine['num_cores']} cores, {settings['threads'] or 'default'} threads"
    yield f"{machine['processor']}, {cores}" + (f"; {machine['gpu']}" if machine.get("gpu") else "")
    versions = ", ".join(f"{name} {machine['versions'][name]}" for name in SHOWN if name in machine["versions"])
    yield f"{machine['system']}, Python {machine['python']}, {versions}"
    yield from (f"note: {note}" for note in record.notes)


def arms_table(record: Record, prices: Prices) -> str:
    """A column for each arm, with the least and the most of the repeats in brackets."""
    rows = []
    for row in rows_of(prices):
        spreads = [over_repeats(record.of(arm), row.figure) for arm in record.arms]
        if any(spreads):
            rows.append([row.label, *(_spread(spread, row.text) for spread in spreads)])
    equals = [figures.equal_outputs(record.answers, arm) for arm in record.arms]
    rows.append(["outputs equal to off's", *(f"{equal} of {compared}" for equal, compared in equals)])
    ratios = [figures.speed_up(record.answers, arm) for arm in record.arms[1:]]
    rows.append(["speed-up", "1", *(_ratio(ratio) for ratio in ratios)])
    return text_table(["", *record.arms], rows)


def kinds_table(record: Record) -> str:
    """Speed-ups by kind and length of prompt."""
    rows = []
    for group in groups_of(record):
        ratios = [figures.speed_up(record.answers, arm, group) for arm in record.arms[1:]]
        rows.append([*group, *(_short(ratio) for ratio in ratios)])
    return text_table(["speed-up of", "", *record.arms[1:]], rows)


def groups_of(record: Record) -> list[tuple[str, str]]:
    """Kinds and lengths of prompts, in the order in which they were first asked, each kind's lengths together."""
    found = list(dict.fromkeys((answer.kind, answer.length) for answer in record.answers))
    kinds = list(dict.fromkeys(kind for kind, _ in found))
    return sorted(found, key=lambda group: kinds.index(group[0]))


def comparison(before: Record, now: Record) -> Iterator[str]:
    """What changed since another record: the speed of each arm, its speed-up, its texts, and the machine.

    Only prompts of both are compared.
    """
    both = {a.prompt for a in before.answers} & {a.prompt for a in now.answers}
    before, now = _of_prompts(before, both), _of_prompts(now, both)
    yield f"compared with the record of {before.made_at}, over the {len(both)} prompts of both:"
    rows = []
    for arm in [arm for arm in now.arms if arm in before.arms]:
        ratio = figures.change(before.answers, now.answers, arm)
        if ratio is not None:
            speeds = [figures.tokens_per_s(record.of(arm)) or 0.0 for record in (before, now)]
            ups = [_ratio(figures.speed_up(r.answers, arm)) if arm != "off" else "1" for r in (before, now)]
            rows.append([arm, *(f"{speed:.1f}" for speed in speeds), str(ratio), *ups, _same_texts(before, now, arm)])
    if not rows:
        yield "no prompt was answered by the same arm in both, so there is nothing to compare"
        return
    headings = ["", ">tokens/s, then", ">now", "times as fast", "speed-up, then", "now", "same texts"]
    yield text_table(headings, rows)
    yield from differences(before, now)


def differences(before: Record, now: Record) -> Iterator[str]:
    """Settings and facts of the machine that differ, one a line, but for the load."""
    for what in ("settings", "machine"):
        old, new = (_flat(getattr(record, what)) for record in (before, now))
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name) and name != "load_average":
                yield f"note: {name} was {old.get(name)} then, and is {new.get(name)} now"


def _of_prompts(record: Record, prompts: Set[str]) -> Record:
    return replace(record, answers=tuple(answer for answer in record.answers if answer.prompt in prompts))


def _same_texts(before: Record, now: Record, arm: str) -> str:
    old = {a.prompt: a.digest for a in before.of(arm) if a.repeat == 0}
    same = [a.digest == old[a.prompt] for a in now.of(arm) if a.repeat == 0 and a.prompt in old]
    return f"{sum(same)} of {len(same)}"


def _footnotes(record: Record) -> Iterator[str]:
    yield "In brackets: least and most of the repeats; of speed-ups, the 95 % confidence interval over these prompts."
    yield "Speed-ups are of the tokens after the first; unclear: no measurable difference."
    yield "off is the target alone, auto what pilotfish does unless told otherwise."
    short = [a for a in record.answers if a.seconds_a_token is None]
    if short:
        yield f"{len(short)} answers ended with their first token and are in no speed."
    memory = [(record.peak_memory_bytes, "of the process, for all arms"), (record.peak_gpu_bytes, "of the whole GPU")]
    found = [f"{size / 1e9:.2f} GB {whose}" for size, whose in memory if size]
    yield f"Peak memory: {', '.join(found) or 'not told by this system'}."


def _spread(spread: Spread | None, text: Callable[[float], str]) -> str:
    return f"{text(spread.value)} ({text(spread.least)}–{text(spread.most)})" if spread else NOTHING


def _short(ratio: Ratio | None) -> str:
    return f"unclear ({ratio.interval})" if ratio and not ratio.is_measurable else _ratio(ratio)


def _ratio(ratio: Ratio | None) -> str:
    return str(ratio) if ratio else NOTHING


def _flat(values: Any, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{prefix}{name} ") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found
