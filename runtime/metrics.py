"""What a generation cost and what speculation brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pilotfish.runtime.rounds import Round


@dataclass(frozen=True, slots=True)
class DrafterStats:
    """What came of one drafter's tokens: `accepted_by_position[i]` of its i-th drafted tokens were emitted."""

    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    accepted_by_position: tuple[int, ...] = ()

    def with_round(self, round_: Round) -> DrafterStats:
        """These figures and one more round."""
        by_position = [*self.accepted_by_position, *[0] * (round_.num_drafted - len(self.accepted_by_position))]
        for position in range(round_.num_accepted):
            by_position[position] += 1
        return DrafterStats(
            self.num_rounds + 1,
            self.num_drafted + round_.num_drafted,
            self.num_accepted + round_.num_accepted,
            tuple(by_position),
        )


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and seconds of one generation.

    `time_to_first_token_s` covers reading the prompt and the first round, which drafts nothing; `decode_s` all later
    rounds, of which `target_s` and `draft_s` were spent inside ONNX Runtime and `host_s` outside. Time in which the
    consumer of the stream held a chunk counts nowhere. `num_accepted` counts drafted tokens that were
    emitted; `num_drafted` those that the target verified. `num_near_ties` counts tokens picked by so small a lead that
    rounding may have decided, so that other widths may give another text; in exact mode there are none. `drafters` has
    the figures of each. `target_only_s` is what a token of the target alone takes: a forward of one row, from the
    calibration on this device and followed while running, and the host; None if the caller fixed the drafter.
    """

    speculation: str = ""
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_tokens: int = 0
    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    num_near_ties: int = 0
    drafters: Mapping[str, DrafterStats] = field(default_factory=dict)
    time_to_first_token_s: float = 0.0
    decode_s: float = 0.0
    target_s: float = 0.0
    draft_s: float = 0.0
    target_only_s: float | None = None

    def with_round(self, round_: Round, num_near_ties: int, decode_s: float, target_s: float, draft_s: float) -> Stats:
        """These figures and one more round, which took so many seconds."""
        drafters = dict(self.drafters)
        if round_.drafted_by:
            drafters[round_.drafted_by] = drafters.get(round_.drafted_by, DrafterStats()).with_round(round_)
        return replace(
            self,
            num_tokens=self.num_tokens + len(round_.token_ids),
            num_rounds=self.num_rounds + 1,
            num_drafted=self.num_drafted + round_.num_drafted,
            num_accepted=self.num_accepted + round_.num_accepted,
            num_near_ties=self.num_near_ties + num_near_ties,
            drafters=drafters,
            decode_s=self.decode_s + decode_s,
            target_s=self.target_s + target_s,
            draft_s=self.draft_s + draft_s,
        )

    @property
    def speed_up(self) -> float | None:
        """Tokens per second ÷ what the target alone reaches (`target_only_s`); None where that is not known."""
        return self.tokens_per_s * self.target_only_s if self.target_only_s and self.decode_s else None

    @property
    def host_s(self) -> float:
        """Decoding time outside the forwards of target and draft."""
        return self.decode_s - self.target_s - self.draft_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens after the first ÷ the time they took; 0 before the second."""
        return (self.num_tokens - 1) / self.decode_s if self.decode_s else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted ÷ verified draft tokens; 0 if nothing was drafted."""
        return self.num_accepted / self.num_drafted if self.num_drafted else 0.0

    @property
    def tokens_per_round(self) -> float:
        """Emitted tokens ÷ rounds; 1 is what a plain loop reaches."""
        return self.num_tokens / self.num_rounds if self.num_rounds else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All fields and derived figures, ready for JSON."""
        derived = ("host_s", "tokens_per_s", "acceptance_rate", "tokens_per_round", "speed_up")
        return asdict(self) | {name: getattr(self, name) for name in derived}
