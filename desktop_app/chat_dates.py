"""When a chat was last changed, as the headings of the list say it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime

Translate = Callable[[str], str]

WEEK, MONTH = 7, 30


def heading(changed_s: float, now_s: float, tr: Translate = str) -> str:
    """Today, yesterday, the last days, or year and month; both times in seconds since the epoch, in local time."""
    day, today = (datetime.fromtimestamp(seconds).date() for seconds in (changed_s, now_s))
    num_days = (today - day).days
    if num_days <= 0:
        return tr("Today")
    if num_days == 1:
        return tr("Yesterday")
    if num_days < WEEK:
        return tr("Last 7 days")
    return tr("Last 30 days") if num_days < MONTH else _month(day)


def _month(day: date) -> str:
    return f"{day:%Y-%m}"
