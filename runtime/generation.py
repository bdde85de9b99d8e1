"""What goes into a generation and what comes out of it: options in, chunks out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.sampling import SamplingParams

DRAFT_CHOICES = ("auto", "model", "lookup", "off")
MAX_DRAFT_TOKENS = 8  # exact mode compares all widths up to one more than this when a bundle is loaded


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How to generate. `max_tokens` None means up to the end of the context.

    `draft` is `model`, `lookup`, `off`, or `auto`: the draft model if the bundle has one, else lookup. Text ends before
    the first of the `stop` strings, which is not shown.
    """

    max_tokens: int | None = 512
    sampling: SamplingParams = field(default_factory=SamplingParams)
    draft: str = "auto"
    num_draft_tokens: int = 4
    stop: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.stop, str) or not all(self.stop):
            raise OptionError(f"stop is {self.stop!r}; it must be a sequence of strings that are not empty")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise OptionError(f"max_tokens is {self.max_tokens}; it must be at least 1")
        if self.draft not in DRAFT_CHOICES:
            raise OptionError(f"draft is {self.draft!r}; choose one of {', '.join(DRAFT_CHOICES)}")
        if not 1 <= self.num_draft_tokens <= MAX_DRAFT_TOKENS:
            raise OptionError(
                f"num_draft_tokens is {self.num_draft_tokens}; it must lie between 1 and {MAX_DRAFT_TOKENS}"
            )


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the output. `origin` says who wrote its tokens: `model` or `lookup` if drafted, else `target`.

    The last chunk has a `finish_reason`: `end` (an end-of-text token), `stop` (a stop string), `length` (`max_tokens`),
    `context` (the context is full), or `cancelled`. Text may lag behind the tokens while a character is incomplete, or
    while it may turn out to be a stop string.
    """

    text: str
    token_ids: tuple[int, ...]
    origin: str
    finish_reason: str | None = None
