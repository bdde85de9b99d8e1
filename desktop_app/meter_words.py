"""The context meter in words: how full the context would be, and what happens to what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pilotfish.desktop_app.protocol import Counted

NEARLY_FULL = 0.85

Translate = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class MeterWords:
    """`level` is `good`, `warning` or `error`; `share` is the part of the context that is taken, at most 1."""

    level: str
    share: float
    text: str
    details: str


def meter_words(counted: Counted, policy: str, tr: Translate = str) -> MeterWords:
    """What the meter shows; `policy` is one of `overflow.POLICIES`. `tr` translates the templates."""
    share = min(counted.num_tokens / max(counted.limit, 1), 1.0)
    text = tr("{tokens} of {limit} tokens").format(tokens=f"{counted.num_tokens:,}", limit=f"{counted.limit:,}")
    if counted.fault:
        short = tr("too long: {text}").format(text=text)
        return MeterWords("error", 1.0, short, f"{counted.fault[:1].upper()}{counted.fault[1:]}.")
    if counted.num_dropped:
        short = tr("{text}, {number} oldest messages left out").format(text=text, number=counted.num_dropped)
        details = tr("The model will not read the oldest messages; here and on disk they stay.")
        return MeterWords("warning", share, short, details)
    level = "warning" if share > NEARLY_FULL else "good"
    return MeterWords(level, share, text, _what_then(policy, tr))


def _what_then(policy: str, tr: Translate) -> str:
    if policy == "drop":
        return tr("When the context is full, the oldest messages are left out of what the model reads.")
    return tr("When the context is full, nothing is sent until the chat is shorter or the context longer.")
