"""The arithmetic of a benchmark, on answers whose figures are known beforehand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pilotfish.runtime.bench import figures
from pilotfish.runtime.bench.answers import Answer, rounds_of
from pilotfish.runtime.bench.figures import Ratio, percentile, ratio_of, t_quantile

ANSWER = Answer(
    prompt="code/short/1", kind="code", length="short", arm="off", repeat=0, num_prompt_tokens=9, num_tokens=5,
    time_to_first_token_s=0.5, request_s=1.1, round_s=(0.1, 0.1, 0.2, 0.2), round_tokens=(1, 1, 1, 1), num_drafted=0,
    num_accepted=0, target_s=0.55, draft_s=0.0, digest="a", finish_reason="length",
)  # fmt: skip


def answers(arm: str, seconds: list[list[float]], **change: object) -> list[Answer]:
    """Answers with `seconds[prompt][repeat]` for each of two tokens after the first."""
    return [
        replace(
            ANSWER, arm=arm, prompt=f"p{prompt}", repeat=repeat, round_s=(each, each), round_tokens=(1, 1), **change
        )
        for prompt, repeats in enumerate(seconds)
        for repeat, each in enumerate(repeats)
    ]


def test_rounds_end_with_their_last_text():
    seconds, tokens = rounds_of(10.0, [(10.5, 1, 1), (10.625, 2, 2), (10.75, 2, 1), (11.0, 3, 1)])
    assert (seconds, tokens) == ([0.5, 0.25, 0.25], [1, 3, 1])
    assert rounds_of(1.0, []) == ([], [])


def test_a_round_is_shared_among_its_tokens_but_a_pause_is_whole():
    answer = replace(ANSWER, round_s=(0.06, 0.02), round_tokens=(3, 1))
    assert answer.inter_token_s == pytest.approx([0.02] * 4)
    assert answer.seconds_a_token == pytest.approx(0.02)
    assert figures.inter_token_s([answer]) == pytest.approx(0.02)
    assert figures.pause_s([answer], 1.0) == pytest.approx(0.06)
    assert figures.tokens_per_s([answer]) == pytest.approx(50)
    assert figures.tokens_per_round([answer]) == 2


def test_an_answer_of_one_token_has_no_speed():
    short = replace(ANSWER, round_s=(), round_tokens=())
    assert short.seconds_a_token is None
    assert figures.inter_token_s([short]) is None
    assert figures.tokens_per_s([short]) is None
    assert figures.speed_up([short, replace(short, arm="auto")], "auto") is None
    with pytest.raises(ValueError, match="do not fit"):
        replace(ANSWER, round_tokens=(1,))


@pytest.mark.parametrize("part", [0, 0.05, 0.5, 0.77, 0.95, 1])
def test_percentiles_are_those_of_numpy(part: float):
    values = np.random.default_rng(0).normal(size=37).tolist()
    assert percentile(values, part) == pytest.approx(np.percentile(values, 100 * part))
    assert percentile([3.0], part) == 3


def test_the_spread_is_over_the_repeats():
    found = figures.over_repeats(answers("off", [[0.1, 0.3, 0.2], [0.1, 0.3, 0.2]]), figures.inter_token_s)
    assert found == figures.Spread(0.2, 0.1, 0.3)
    assert figures.over_repeats([], figures.inter_token_s) is None


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (10, 2.2281), (24, 2.0639), (1000, 1.9623)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float):
    assert t_quantile(freedom) == pytest.approx(quantile, rel=2e-3)


def test_one_group_has_the_textbook_interval():
    logs = np.array([0.1, 0.2, 0.6])
    half = t_quantile(2) * logs.std(ddof=1) / math.sqrt(3)
    found = ratio_of([logs.tolist()])
    assert found.value == pytest.approx(math.exp(0.3))
    assert (found.low, found.high) == pytest.approx((math.exp(0.3 - half), math.exp(0.3 + half)))


@pytest.mark.parametrize("is_paired", [True, False])
def test_the_interval_holds_the_truth_as_often_as_it_says(is_paired: bool):
    """Prompts differ much more than repeats do, which must not widen the interval, nor make it miss."""
    rng, truth, num_runs, hits = np.random.default_rng(1), 0.2, 2000, 0
    for _ in range(num_runs):
        prompts = rng.normal(0, 1, 6)
        prompts -= prompts.mean()
        after = rng.normal(prompts[:, None] + truth, 0.1, (6, 3)).tolist()
        before = [] if is_paired else rng.normal(prompts[:, None], 0.1, (6, 3)).tolist()
        found = ratio_of(after, before)
        hits += found.low <= math.exp(truth) <= found.high
    assert hits / num_runs == pytest.approx(0.95, abs=0.02)  # four standard errors


def test_a_speed_up_is_of_pairs_that_ran_side_by_side():
    """The machine is half as fast in the second repeat, which both arms feel and the speed-up does not."""
    off = answers("off", [[0.2, 0.4, 0.2], [0.1, 0.2, 0.1]])
    auto = answers("auto", [[0.1, 0.2, 0.1], [0.1, 0.2, 0.1]])
    found = figures.speed_up(off + auto, "auto")
    assert found.value == pytest.approx(math.sqrt(2))
    assert found.high - found.low < 1e-6
    assert figures.speed_up(off, "auto") is None


def test_the_scatter_of_a_group_is_that_of_all_prompts():
    """Two pairs of one prompt happen to agree; the pairs of the others say how much that means."""
    off = answers("off", [[0.2, 0.2], [0.2, 0.2], [0.2, 0.2]])
    auto = answers("auto", [[0.1, 0.1], [0.1, 0.15], [0.15, 0.1]])
    of_first = [replace(a, kind="edit") if a.prompt == "p0" else a for a in off + auto]
    found = figures.speed_up(of_first, "auto", ("edit", "short"))
    assert found.value == pytest.approx(2)
    pooled = math.sqrt(2 * (math.log(1.5) / 2) ** 2 * 2 / 3)
    assert found.high == pytest.approx(2 * math.exp(t_quantile(3) * pooled / math.sqrt(2)))
    assert figures.speed_up(of_first, "auto", ("chat", "short")) is None


def test_another_run_is_compared_prompt_by_prompt():
    before = answers("off", [[0.2, 0.2], [0.4, 0.4], [9.0, 9.0]])
    now = answers("off", [[0.1, 0.1], [0.2, 0.2]])
    assert figures.change(before, now, "off").value == pytest.approx(2)
    assert figures.change(before, now, "auto") is None


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (Ratio(1.42, 1.38, 1.47), "1.42 (1.38–1.47)"),
        (Ratio(0.8, 0.7, 0.9), "0.80 (0.70–0.90)"),
        (Ratio(1.01, 0.96, 1.05), "no measurable difference (0.96–1.05)"),
        (Ratio(1.02, 1.004, 1.04), "no measurable difference (1.00–1.04)"),  # what is printed must not contradict
        (Ratio(1.5, 0.001, 2000.0), "no measurable difference (too few repeats)"),
        (Ratio(1.5, 0.0, math.inf), "no measurable difference (too few repeats)"),
    ],
)
def test_no_speed_up_is_printed_that_may_be_none(ratio: Ratio, text: str):
    assert str(ratio) == text
    assert ratio.is_measurable == ("no measurable" not in text)


def test_a_single_repeat_measures_no_difference():
    found = figures.speed_up(answers("off", [[0.2]]) + answers("auto", [[0.1]]), "auto")
    assert found.value == pytest.approx(2)
    assert not found.is_measurable


def test_equal_outputs_are_those_of_the_same_prompt_and_repeat():
    off, auto = answers("off", [[1, 1], [1, 1]]), answers("auto", [[1, 1], [1, 1]])
    assert figures.equal_outputs(off + auto, "auto") == (4, 4)
    assert figures.equal_outputs([*off, replace(auto[0], digest="b"), *auto[1:3]], "auto") == (2, 3)


def test_energy_and_cost_need_all_answers():
    measured = answers("off", [[1.0, 1.0]], energy_j=3600.0, gpu_utilisation=0.5)
    assert figures.energy_j(measured) == 3600
    assert figures.gpu_utilisation(measured) == 0.5
    assert figures.cost(measured, 3600.0, 0.0) == pytest.approx(1.1)
    assert figures.cost(measured, 3600.0, 1000.0) == pytest.approx(2.1)
    partly = [*measured, ANSWER]
    assert figures.energy_j(partly) is None
    assert figures.cost(partly, 0.0, 1000.0) is None
    assert figures.cost(partly, 3600.0, 0.0) == pytest.approx(1.1)


def test_acceptance_counts_tokens_and_not_answers():
    drafted = [replace(ANSWER, num_drafted=10, num_accepted=1), replace(ANSWER, num_drafted=30, num_accepted=29)]
    assert figures.acceptance_rate(drafted) == 0.75
    assert figures.acceptance_rate([ANSWER]) is None
