"""What goes into a generation and what comes out of it: options in, chunks out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.grammar import Grammar
from pilotfish.runtime.logprobs import TokenLogprob
from pilotfish.runtime.sampling import SamplingParams

DRAFT_CHOICES = ("auto", "model", "suffix", "lookup", "cascade", "off")
LOGPROB_SOURCES = ("model", "sampler")
MAX_DRAFT_TOKENS = 16  # with one more row, no wider than the widest forward that exact mode compares


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How to generate. `max_tokens` None means up to the end of the context, `max_time_s` None without a time limit.

    `draft` is `auto`: before each round what promises most by measured costs and by what was accepted so far, which may
    be nothing; or one way with `num_draft_tokens` in every round: `model` (the draft model), `suffix` (copies what
    followed the longest earlier match), `lookup` (the same for n-grams), `cascade` (`suffix`, then `model` where that
    has nothing), or `off`. Text ends before the first of the `stop` strings, which is not shown. `grammar` is what the
    output must match. `logprobs` asks for the log-probability of each token and of that many most likely ones at its
    position; `logprobs_from` says whether they are the model's own or what the sampling parameters made of them.
    """

    max_tokens: int | None = 512
    sampling: SamplingParams = field(default_factory=SamplingParams)
    draft: str = "auto"
    num_draft_tokens: int = 4
    stop: Sequence[str] = ()
    max_time_s: float | None = None
    grammar: Grammar | None = None
    logprobs: int | None = None
    logprobs_from: str = "model"

    def __post_init__(self) -> None:
        if isinstance(self.stop, str) or not all(self.stop):
            raise OptionError(f"stop is {self.stop!r}; it must be a sequence of strings that are not empty")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise OptionError(f"max_tokens is {self.max_tokens}; it must be at least 1")
        if self.max_time_s is not None and not self.max_time_s > 0:
            raise OptionError(f"max_time_s is {self.max_time_s}; it must be above 0")
        if self.draft not in DRAFT_CHOICES:
            raise OptionError(f"draft is {self.draft!r}; choose one of {', '.join(DRAFT_CHOICES)}")
        if not 1 <= self.num_draft_tokens <= MAX_DRAFT_TOKENS:
            raise OptionError(
                f"num_draft_tokens is {self.num_draft_tokens}; it must lie between 1 and {MAX_DRAFT_TOKENS}"
            )
        if self.logprobs is not None and self.logprobs < 0:
            raise OptionError(f"logprobs is {self.logprobs}; it must not be negative")
        if self.logprobs_from not in LOGPROB_SOURCES:
            raise OptionError(f"logprobs_from is {self.logprobs_from!r}; choose one of {', '.join(LOGPROB_SOURCES)}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the output. `origin` says who wrote its tokens: the drafter, such as `model` or `suffix`, or `target`.

    The last chunk has a `finish_reason`: `end` (an end-of-text token), `stop` (a stop string), `length` (`max_tokens`),
    `context` (the context is full), `time` (`max_time_s`), or `cancelled`. Text may lag behind the tokens while a
    character is incomplete, or while it may turn out to be a stop string. `logprobs` has an entry for each
    token, if asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    origin: str
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
