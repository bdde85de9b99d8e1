"""What the speculation panel says, from the figures of a reply: whether it drafts, who drafts, and what that brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from pilotfish.desktop_app.protocol import BundleFacts, Progress
from pilotfish.desktop_app.speculation_history import Point

Translate = Callable[[str], str]

DRAFTERS: Mapping[str, str] = MappingProxyType(
    {
        "model": "the draft model",
        "suffix": "repetitions in the text",
        "lookup": "repetitions in the text",
        "cascade": "repetitions in the text, then the draft model",
    }
)


def line(progress: Progress | None, facts: BundleFacts | None, is_wanted: bool, tr: Translate = str) -> str:
    """The one line, such as "on · 1.8× · 71 % accepted". `is_wanted` is where the user put the switch."""
    if not is_wanted:
        return tr("off because you switched it off")
    if progress is None or not progress.speculation:
        return _before_a_reply(facts, tr)
    state, _, reason = progress.speculation.partition(": ")
    if state == "off":
        return tr("off because {reason}").format(reason=reason)
    parts = [tr("on")]
    if progress.speed_up is not None:
        parts.append(f"{progress.speed_up:.1f}×")
    if progress.num_drafted:
        share = round(100 * progress.num_accepted / progress.num_drafted)
        parts.append(tr("{share} % accepted").format(share=share))
    return " · ".join(parts)


def details(
    progress: Progress | None, facts: BundleFacts | None, point: Point | None, tr: Translate = str
) -> tuple[tuple[str, str], ...]:
    """(name, value) of each figure; `point` is the latest of the history."""
    rows = (
        [(tr("Target"), _model(facts.target, facts.target_recipe)), (tr("Draft"), _draft(facts, tr))] if facts else []
    )
    if point is not None:
        rows.append((tr("Drafting now"), drafting(point, tr)))
    if progress is not None:
        rows.append((tr("Speed"), _rate(progress.tokens_per_s, tr)))
        rows.append((tr("Target alone"), baseline(progress, tr)))
        if progress.num_rounds:
            per_round = progress.num_tokens / progress.num_rounds
            rows.append((tr("Tokens per round"), tr("{number:.1f} (1.0 without speculation)").format(number=per_round)))
    return tuple(rows)


def drafting(point: Point, tr: Translate = str) -> str:
    """Who drafts and how many tokens, such as "the draft model, 3.5 tokens a round"."""
    if not point.drafted_per_round:
        return tr("nobody")
    who = tr(DRAFTERS.get(point.drafter, point.drafter or "tried, none accepted"))
    return tr("{who}, {number:.1f} tokens a round").format(who=who, number=point.drafted_per_round)


def reason(progress: Progress | None) -> str:
    """Who drafted in how many rounds, in the words of the runtime; empty while it is off, of which the line tells."""
    state, _, words = progress.speculation.partition(": ") if progress is not None else ("", "", "")
    return words if state == "on" else ""


def baseline_tokens_per_s(progress: Progress) -> float | None:
    """What the target alone reaches here, as measured; None if that is not known."""
    if progress.speculation.startswith("off") and not progress.num_drafted:
        return progress.tokens_per_s  # it was alone
    return progress.tokens_per_s / progress.speed_up if progress.speed_up else None


def baseline(progress: Progress, tr: Translate = str) -> str:
    """The same in words."""
    rate = baseline_tokens_per_s(progress)
    return tr("not measured") if rate is None else tr("{rate}, measured here").format(rate=_rate(rate, tr))


def _before_a_reply(facts: BundleFacts | None, tr: Translate) -> str:
    if facts is None:
        return tr("no model is loaded")
    if facts.draft is None:
        return tr("ready: repetitions in the text will be drafted")
    return tr("ready: {draft} drafts").format(draft=facts.draft)


def _model(name: str, recipe: str | None) -> str:
    return f"{name} · {recipe}" if recipe else name


def _draft(facts: BundleFacts, tr: Translate) -> str:
    return tr("none; repetitions are copied") if facts.draft is None else _model(facts.draft, facts.draft_recipe)


def _rate(tokens_per_s: float, tr: Translate) -> str:
    return tr("{rate:.1f} tokens/s").format(rate=tokens_per_s)
