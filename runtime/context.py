"""The committed tokens, and the models that each cache a prefix of them."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.runtime.bundle import by_role
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.proposal import Drafter


class Context:
    """What a conversation is to the engine: `committed`, the only source of truth, and caches that follow it.

    `drafters`, by name, follow `committed` too, and one of them runs the draft. `max_width` is the most rows of a
    verification. `near_tie_margin` is the lead in logits below which rounding may decide; 0 in exact mode, where it
    cannot.
    """

    def __init__(self, target: Decoder) -> None:
        """Starts with nothing committed, no drafts and no drafters."""
        self.target = target
        self.drafts: list[Decoder] = []  # the first drafts for the target, each other one for the one before it
        self.max_width = 1
        self.near_tie_margin = 0.0
        self.drafters: dict[str, Drafter] = {}
        self.committed: list[int] = []
        self.cancelled = False

    @property
    def decoders(self) -> dict[str, Decoder]:
        """The models by role, as in `Manifest.models`."""
        return by_role(self.target, self.drafts)

    def begin(self, token_ids: Sequence[int]) -> None:
        """Makes `token_ids` the committed ones. What the caches share with them stays, so it is not read again."""
        shared = 0
        for old, new in zip(self.committed, token_ids[:-1], strict=False):
            if old != new:
                break
            shared += 1
        self.target.rollback(min(self.target.length, shared))
        for drafter in self.drafters.values():
            drafter.rollback(shared)
        self.committed = list(token_ids)

    def cancel(self) -> None:
        """Ends the forward that is running, from any thread, and all later ones until `resume`."""
        self.cancelled = True
        for decoder in self.decoders.values():
            decoder.cancel()

    def resume(self) -> None:
        """Allows forwards again."""
        self.cancelled = False
        for decoder in self.decoders.values():
            decoder.resume()

    def close(self) -> None:
        """Frees the models; idempotent."""
        for decoder in self.decoders.values():
            decoder.close()
