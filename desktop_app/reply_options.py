"""How replies are generated: what the settings show, and the protocol carries."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.desktop_app.overflow import POLICIES
from pilotfish.runtime import GenerationOptions, SamplingParams
from pilotfish.runtime.errors import OptionError


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """The options of `GenerationOptions` and `SamplingParams` that people change, and what to do on overflow.

    `overflow` is one of `POLICIES`; `room` tokens of the context, at most a quarter, are kept free for the reply.
    """

    max_tokens: int | None = 2048
    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    draft: str = "auto"
    num_draft_tokens: int = 4
    stop: tuple[str, ...] = ()
    overflow: str = "drop"
    room: int = 512

    def __post_init__(self) -> None:
        """`OptionError` names the option that is out of range."""
        self.generation_options()
        if self.overflow not in POLICIES:
            raise OptionError(f"overflow is {self.overflow!r}; choose one of {', '.join(POLICIES)}")
        if self.room < 0:
            raise OptionError(f"room is {self.room}; it must not be negative")

    def generation_options(self) -> GenerationOptions:
        """The same as the runtime takes it."""
        sampling = SamplingParams(
            temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p,
            repetition_penalty=self.repetition_penalty, seed=self.seed,
        )  # fmt: skip
        return GenerationOptions(self.max_tokens, sampling, self.draft, self.num_draft_tokens, self.stop)
