"""What the panel says, and the points of its plot."""

from __future__ import annotations

import pytest

from pilotfish.desktop_app.protocol import BundleFacts, Part, Piece, Progress
from pilotfish.desktop_app.speculation_history import MAX_POINTS, SpeculationHistory
from pilotfish.desktop_app.speculation_words import baseline, baseline_tokens_per_s, details, drafting, line, reason

FACTS = BundleFacts("/b", "b", "Big", "int8", "Small", "int4", 4096, 8192, 1, 1.0)
ON = Progress(40, 10, 60, 30, 20.0, 1.84, "on: model in 9 rounds, off in 1: the draft costs 0.2 of a target pass")
OFF = Progress(40, 40, 0, 0, 10.0, 1.0, "off: nothing in the text repeats, and there is no draft model")


@pytest.mark.parametrize(
    ("progress", "is_wanted", "expected"),
    [
        (ON, True, "on · 1.8× · 50 % accepted"),
        (Progress(40, 10, 60, 30, 20.0, None, "on: model, 4 tokens a round, as the caller asked"), True,
         "on · 50 % accepted"),
        (Progress(1, 1, 0, 0, 0.0, None, "on: "), True, "on"),
        (OFF, True, "off because nothing in the text repeats, and there is no draft model"),
        (ON, False, "off because you switched it off"),
        (None, True, "ready: Small drafts"),
        (None, False, "off because you switched it off"),
    ],
)  # fmt: skip
def test_the_line(progress, is_wanted, expected):
    assert line(progress, FACTS, is_wanted) == expected


def test_the_line_without_a_draft_or_a_model():
    assert line(None, None, True) == "no model is loaded"
    lookup = BundleFacts("/b", "b", "Big", "int8", None, None, 4096, 8192, 1, 1.0)
    assert line(None, lookup, True) == "ready: repetitions in the text will be drafted"
    assert ("Draft", "none; repetitions are copied") in details(None, lookup, None)


def test_the_baseline_is_what_was_measured():
    assert baseline_tokens_per_s(ON) == pytest.approx(20.0 / 1.84)
    assert baseline(ON) == "10.9 tokens/s, measured here"
    assert baseline(Progress(4, 1, 0, 0, 20.0, None, "on: x")) == "not measured"
    assert baseline(Progress(4, 4, 0, 0, 9.0, None, "off: it is switched off")) == "9.0 tokens/s, measured here"


def test_the_details_name_the_pair_the_drafter_and_what_it_brings():
    history = SpeculationHistory()
    history.add(piece(0, 0, 0, 0), 1.0)
    assert history.add(piece(40, 10, 60, 30, [("model", 25), ("target", 10), ("suffix", 5)]), 2.0)
    rows = dict(details(ON, FACTS, history.points[-1]))
    assert rows == {
        "Target": "Big · int8", "Draft": "Small · int4", "Drafting now": "the draft model, 6.0 tokens a round",
        "Speed": "20.0 tokens/s", "Target alone": "10.9 tokens/s, measured here",
        "Tokens per round": "4.0 (1.0 without speculation)",
    }  # fmt: skip
    assert reason(ON) == "model in 9 rounds, off in 1: the draft costs 0.2 of a target pass"
    assert (details(None, None, None), reason(None), reason(OFF)) == ((), "", "")


def piece(num_tokens: int, num_rounds: int, num_drafted: int, num_accepted: int, origins=()) -> Piece:
    progress = Progress(num_tokens, num_rounds, num_drafted, num_accepted, 1.0, None, "on: x")
    return Piece(1, tuple(Part(origin, "", number) for origin, number in origins), progress)


def test_a_point_is_what_happened_since_the_one_before():
    history = SpeculationHistory()
    assert not history.add(piece(10, 5, 20, 5), 100.0)
    assert not history.add(piece(12, 6, 24, 6, [("target", 2)]), 100.1)
    assert history.add(piece(20, 9, 36, 12, [("suffix", 6), ("target", 2)]), 100.5)
    (point,) = history.points
    assert point.tokens_per_s == pytest.approx(20)
    assert (point.accepted_per_round, point.drafted_per_round) == (7 / 4, 16 / 4)
    assert drafting(point) == "repetitions in the text, 4.0 tokens a round"
    assert history.add(piece(24, 13, 36, 12, [("target", 4)]), 101.0)
    assert drafting(history.points[-1]) == "nobody"


def test_only_the_latest_points_are_kept():
    history = SpeculationHistory()
    for number in range(3 * MAX_POINTS):
        history.add(piece(number, number, 0, 0), float(number))
    assert len(history.points) == MAX_POINTS
    assert history.progress.num_tokens == 3 * MAX_POINTS - 1
