"""A reply while it is written: text and origins grow piece by piece, and a checkpoint is due about once a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pilotfish.desktop_app.conversation import Message, ReplyStats, Span, merged_spans
from pilotfish.desktop_app.protocol import Piece

CHECKPOINT_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """When a growing reply was written to disk last; times by any clock of the caller's that does not go back."""

    last_s: float
    interval_s: float = CHECKPOINT_INTERVAL_S

    def is_due(self, now_s: float) -> bool:
        """Whether it is time for the next one."""
        return now_s - self.last_s >= self.interval_s


class StreamingReply:
    """Collects the pieces of one reply; `message` is the reply as far as it has come."""

    def __init__(self, begun: Message) -> None:
        """`begun` is the message with what is there of the text already."""
        self._begun = begun
        self._texts: list[str] = [begun.text] if begun.text else []
        unknown = len(begun.text) - sum(span.num_characters for span in begun.spans)
        self._spans = list(merged_spans([*begun.spans, Span("target", max(unknown, 0))]))

    @property
    def id(self) -> str:
        """The id of the message."""
        return self._begun.id

    def append(self, piece: Piece) -> None:
        """Takes what has come."""
        spans = [Span(part.origin, len(part.text)) for part in piece.parts]
        self._texts.extend(part.text for part in piece.parts)
        self._spans = [*self._spans[:-1], *merged_spans([*self._spans[-1:], *spans])]

    @property
    def message(self) -> Message:
        """The reply so far, still streaming."""
        self._texts = ["".join(self._texts)]
        return replace(self._begun, text=self._texts[0], spans=tuple(self._spans), state="streaming", error="")

    def ended(self, finish_reason: str, stats: ReplyStats) -> Message:
        """The reply when the engine is done; cut short by the user it is `interrupted`, which is no error."""
        state = "interrupted" if finish_reason == "cancelled" else "complete"
        before = self._begun.stats.num_tokens if self._begun.stats else 0
        return replace(self.message, state=state, stats=replace(stats, num_tokens=before + stats.num_tokens))

    def failed(self, state: str, error: str = "") -> Message:
        """The reply when nothing more comes: `interrupted` or `error`."""
        return replace(self.message, state=state, error=error)


def reply_stats(model: str, finish_reason: str, stats: Mapping[str, Any], num_dropped: int) -> ReplyStats:
    """The footer of a reply from what `Stats.to_dict` says."""
    return ReplyStats(
        model=model,
        num_tokens=stats.get("num_tokens", 0),
        tokens_per_s=stats.get("tokens_per_s", 0.0),
        time_to_first_token_s=stats.get("time_to_first_token_s", 0.0),
        acceptance_rate=stats["acceptance_rate"] if stats.get("num_drafted") else None,
        speed_up=stats.get("speed_up"),
        speculation=stats.get("speculation", ""),
        finish_reason=finish_reason,
        num_dropped=num_dropped,
    )
