"""The arithmetic: medians, percentiles and spreads of answers, and how much faster one arm is than another.

Nothing here looks at a model or a clock.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pilotfish.runtime.bench.answers import Answer

Groups = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of all repeats, and the least and the most that it was in one of them."""

    value: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast, with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    @property
    def is_measurable(self) -> bool:
        """Whether the interval, as it is printed, leaves out 1."""
        return round(self.low, 2) > 1 or round(self.high, 2) < 1

    @property
    def interval(self) -> str:
        """The interval as it is printed."""
        return f"{self.low:.2f}–{self.high:.2f}" if self.high < 100 else "too few repeats"

    def __str__(self) -> str:
        """Never a speed-up that may be none."""
        return (
            f"{self.value:.2f} ({self.interval})"
            if self.is_measurable
            else f"no measurable difference ({self.interval})"
        )


def percentile(values: Iterable[float], part: float) -> float:
    """The value below which `part` (0 to 1) of the values lie, interpolated between neighbours."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = ordered[math.floor(place)]
    return low + (place - math.floor(place)) * (ordered[math.ceil(place)] - low)


def over_repeats(answers: Sequence[Answer], figure: Callable[[Sequence[Answer]], float | None]) -> Spread | None:
    """`figure` of all answers, with its least and its most among the repeats; None where there is none."""
    value = figure(answers)
    by_repeat = [figure([a for a in answers if a.repeat == repeat]) for repeat in sorted({a.repeat for a in answers})]
    found = [each for each in by_repeat if each is not None]
    return Spread(value, min(found), max(found)) if value is not None and found else None


def time_to_first_token_s(answers: Sequence[Answer]) -> float | None:
    """Median seconds."""
    return statistics.median(a.time_to_first_token_s for a in answers) if answers else None


def inter_token_s(answers: Sequence[Answer], part: float = 0.5) -> float | None:
    """A percentile of the seconds of a token after the first, each its share of its round; default the median."""
    found = [seconds for answer in answers for seconds in answer.inter_token_s]
    return percentile(found, part) if found else None


def pause_s(answers: Sequence[Answer], part: float = 0.5) -> float | None:
    """A percentile of the seconds between two rounds, in which a reader sees nothing new; default the median."""
    found = [seconds for answer in answers for seconds in answer.round_s]
    return percentile(found, part) if found else None


def tokens_per_s(answers: Sequence[Answer]) -> float | None:
    """Tokens after each answer's first ÷ the time they took."""
    seconds = sum(a.decode_s for a in answers)
    return sum(sum(a.round_tokens) for a in answers) / seconds if seconds else None


def request_s(answers: Sequence[Answer]) -> float | None:
    """Median seconds of a whole answer."""
    return statistics.median(a.request_s for a in answers) if answers else None


def acceptance_rate(answers: Sequence[Answer]) -> float | None:
    """Accepted ÷ verified draft tokens; None if nothing was drafted."""
    num_drafted = sum(a.num_drafted for a in answers)
    return sum(a.num_accepted for a in answers) / num_drafted if num_drafted else None


def tokens_per_round(answers: Sequence[Answer]) -> float | None:
    """Tokens after the first ÷ rounds after the first, which never drafts."""
    num_rounds = sum(len(a.round_s) for a in answers)
    return sum(sum(a.round_tokens) for a in answers) / num_rounds if num_rounds else None


def gpu_utilisation(answers: Sequence[Answer]) -> float | None:
    """Mean over the answers' time; None unless all were measured."""
    return _mean([a.gpu_utilisation for a in answers])


def energy_j(answers: Sequence[Answer]) -> float | None:
    """Joules of an answer, on average; None unless all were measured."""
    return _mean([a.energy_j for a in answers])


def cost(answers: Sequence[Answer], per_hour: float, per_kwh: float) -> float | None:
    """Of an answer, on average, in the currency of the prices: for the machine's time and for its energy."""
    joules = energy_j(answers) if per_kwh else 0.0
    if not answers or joules is None:
        return None
    return per_hour / 3600 * statistics.fmean(a.request_s for a in answers) + per_kwh / 3.6e6 * joules


def equal_outputs(answers: Sequence[Answer], arm: str, base: str = "off") -> tuple[int, int]:
    """(outputs of `arm` that are those of `base`, token for token; outputs compared)."""
    expected = {(a.prompt, a.repeat): a.digest for a in answers if a.arm == base}
    found = [
        a.digest == expected[a.prompt, a.repeat] for a in answers if a.arm == arm and (a.prompt, a.repeat) in expected
    ]
    return sum(found), len(found)


def speed_up(
    answers: Sequence[Answer], arm: str, group: tuple[str, str] | None = None, base: str = "off"
) -> Ratio | None:
    """How many times as fast `arm` writes tokens after the first as `base` does; None if they have nothing in common.

    The geometric mean over the prompts, all or those of a `group` (kind, length). Each answer is compared with that of
    `base` to the same prompt in the same repeat, which ran beside it, so that the spread is only what chance does to
    such a pair; a group's own few pairs would tell little of that, so it comes from the pairs of all prompts.
    """
    expected = {(a.prompt, a.repeat): a.seconds_a_token for a in answers if a.arm == base}
    logs: dict[str, list[float]] = {}
    for a in answers:
        before, now = expected.get((a.prompt, a.repeat)), a.seconds_a_token
        if a.arm == arm and before and now:
            logs.setdefault(a.prompt, []).append(math.log(before / now))
    wanted = {a.prompt for a in answers if group is None or (a.kind, a.length) == group}
    return ratio_of([found for prompt, found in logs.items() if prompt in wanted], scattered=list(logs.values()))


def change(before: Sequence[Answer], now: Sequence[Answer], arm: str) -> Ratio | None:
    """How many times as fast `arm` is as it was in another run, over the prompts of both; None if there are none."""
    old, new = _logs(before, arm), _logs(now, arm)
    both = sorted(old.keys() & new.keys())
    return ratio_of([old[prompt] for prompt in both], [new[prompt] for prompt in both])


def ratio_of(logs: Groups, divided_by: Groups = (), scattered: Groups = ()) -> Ratio | None:
    """exp of the mean of the groups' means, less that of the groups `divided_by`; None without any group.

    Each group has the repeats of one prompt. They scatter alike in all groups, around a mean of each group's own; so
    that scatter alone, and not how the prompts differ, says how sure the mean is (Student's t, 95 %). It is found from
    the groups `scattered`, if they are given, or from the others.
    """
    if not logs:
        return None
    mean = statistics.fmean(map(statistics.fmean, logs))
    variance = sum(1 / len(group) for group in logs) / len(logs) ** 2
    if divided_by:
        mean -= statistics.fmean(map(statistics.fmean, divided_by))
        variance += sum(1 / len(group) for group in divided_by) / len(divided_by) ** 2
    groups = scattered or [*logs, *divided_by]
    freedom = sum(len(group) - 1 for group in groups)
    if not freedom:
        return Ratio(math.exp(mean), 0.0, math.inf)
    squares = sum((value - statistics.fmean(group)) ** 2 for group in groups for value in group)
    half = t_quantile(freedom) * math.sqrt(variance * squares / freedom)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def t_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t distribution with so many degrees of freedom, to 0.2 %.

    Abramowitz & Stegun, 26.7.5, which diverges for one and two degrees; these have closed forms.
    """
    part = 0.975
    if freedom == 1:
        return math.tan(math.pi * (part - 0.5))
    if freedom == 2:
        return (2 * part - 1) * math.sqrt(2 / (4 * part * (1 - part)))
    z = statistics.NormalDist().inv_cdf(part)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum((term / freedom**power for power, term in enumerate(terms)), 0.0)


def _logs(answers: Sequence[Answer], arm: str) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for a in answers:
        if a.arm == arm and a.seconds_a_token:
            groups.setdefault(a.prompt, []).append(math.log(a.seconds_a_token))
    return groups


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if values and len(known) == len(values) else None
