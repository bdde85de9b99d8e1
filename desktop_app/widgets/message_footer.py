"""What stands below a message, in words: what a reply cost, and what went wrong."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from pilotfish.desktop_app.conversation import Message, ReplyStats


def footer_text(stats: ReplyStats) -> str:
    """Model, tokens, speed, acceptance and why the reply ended, as far as is known."""
    parts = [stats.model] if stats.model else []
    parts.append(_tr("1 token") if stats.num_tokens == 1 else _tr("{} tokens").format(f"{stats.num_tokens:,}"))
    if stats.tokens_per_s > 0:
        parts.append(_tr("{} tok/s").format(f"{stats.tokens_per_s:.1f}"))
    if stats.time_to_first_token_s > 0:
        parts.append(_tr("first token after {} s").format(f"{stats.time_to_first_token_s:.2f}"))
    if stats.acceptance_rate is not None:
        parts.append(_tr("{} % accepted").format(round(100 * stats.acceptance_rate)))
    parts.extend(_speculation(stats))
    if stats.finish_reason:
        parts.append(_finish(stats.finish_reason))
    if stats.num_dropped == 1:
        parts.append(_tr("1 old message was left out"))
    elif stats.num_dropped:
        parts.append(_tr("{} old messages were left out").format(stats.num_dropped))
    return " · ".join(parts)


def notice_text(message: Message) -> str:
    """What is wrong with a message, cause and remedy; empty if nothing is."""
    if message.state == "unreadable":
        return message.error or _tr("This message is damaged on disk and cannot be read. The others are not affected.")
    if message.state == "error":
        return message.error or _tr("The reply failed. Regenerate it to try again.")
    if message.state == "interrupted":
        return message.error or _tr("Interrupted. Continue it, or regenerate it.")
    return ""


def _speculation(stats: ReplyStats) -> list[str]:
    how, _, reason = stats.speculation.partition(": ")
    if how == "off":
        return [_tr("speculation off because {}").format(reason) if reason else _tr("speculation off")]
    if stats.speed_up is not None:
        return [_tr("{}× as fast as without speculation").format(f"{stats.speed_up:.1f}")]
    return []


def _finish(reason: str) -> str:
    words = {
        "end": _tr("complete"),
        "stop": _tr("ended at a stop string"),
        "length": _tr("ended at the most tokens"),
        "context": _tr("ended as the context is full"),
        "time": _tr("ended as time was up"),
        "cancelled": _tr("stopped by you"),
    }
    return words.get(reason, reason)


def _tr(text: str) -> str:
    return QCoreApplication.translate("MessageFooter", text)
