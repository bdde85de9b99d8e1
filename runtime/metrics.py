"""What a generation cost and what speculation brought."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and seconds of one generation.

    `time_to_first_token_s` covers reading the prompt and the first round, which drafts nothing; `decode_s` all later
    rounds, of which `target_s` and `draft_s` were spent inside ONNX Runtime and `host_s` outside. Time in which the
    consumer of the stream held a chunk counts nowhere. `num_accepted` counts drafted tokens that were
    emitted; `num_drafted` those that the target verified. `num_near_ties` counts tokens picked by so small a lead that
    rounding may have decided, so that other widths may give another text; in exact mode there are none.
    """

    speculation: str = ""
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_tokens: int = 0
    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    num_near_ties: int = 0
    time_to_first_token_s: float = 0.0
    decode_s: float = 0.0
    target_s: float = 0.0
    draft_s: float = 0.0

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
        derived = ("host_s", "tokens_per_s", "acceptance_rate", "tokens_per_round")
        return asdict(self) | {name: getattr(self, name) for name in derived}
