"""One measured answer: when its tokens came, who drafted them, and what it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What was seen of one answer from cold caches.

    `prompt` is the prompt's key. `round_s[i]` is the time between the arrival of the i-th round's last text and the
    next one's, which brought `round_tokens[i]` tokens; the first round, which ends the wait for the first token, is in
    `time_to_first_token_s` and not here. `digest` is one of the token ids, so equal digests mean equal outputs.
    `energy_j` and `gpu_utilisation` (0 to 1) are None where nothing measures them.
    """

    prompt: str
    kind: str
    length: str
    arm: str
    repeat: int
    num_prompt_tokens: int
    num_tokens: int
    time_to_first_token_s: float
    request_s: float
    round_s: tuple[float, ...]
    round_tokens: tuple[int, ...]
    num_drafted: int
    num_accepted: int
    target_s: float
    draft_s: float
    digest: str
    finish_reason: str
    energy_j: float | None = None
    gpu_utilisation: float | None = None

    def __post_init__(self) -> None:
        if len(self.round_s) != len(self.round_tokens) or not all(number > 0 for number in self.round_tokens):
            raise ValueError(f"{len(self.round_s)} durations do not fit rounds of {self.round_tokens} tokens")

    @property
    def decode_s(self) -> float:
        """The time of all tokens after the first."""
        return sum(self.round_s)

    @property
    def seconds_a_token(self) -> float | None:
        """The time of a token after the first, on average; None if there was none."""
        return self.decode_s / sum(self.round_tokens) if self.round_tokens and self.decode_s > 0 else None

    @property
    def inter_token_s(self) -> list[float]:
        """For each token after the first its share of its round: a round of three in 60 ms is three times 20 ms."""
        return [
            seconds / number
            for seconds, number in zip(self.round_s, self.round_tokens, strict=True)
            for _ in range(number)
        ]


def rounds_of(started: float, arrivals: Sequence[tuple[float, int, int]]) -> tuple[list[float], list[int]]:
    """(seconds, tokens) of each round, from (time, number of the round, tokens) of each piece of text.

    A round's pieces belong together, and it ends with its last one; the first begins at `started`.
    """
    ends: dict[int, float] = {}
    tokens: dict[int, int] = {}
    for time, number, num_tokens in arrivals:
        ends[number] = time
        tokens[number] = tokens.get(number, 0) + num_tokens
    starts = [started, *ends.values()]
    return [end - start for start, end in zip(starts, ends.values(), strict=False)], list(tokens.values())
