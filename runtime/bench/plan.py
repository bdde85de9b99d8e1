"""What is run, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.runtime.bench.prompts import Prompt
from pilotfish.runtime.errors import OptionError

FIXED = ("model", "suffix", "lookup", "cascade")  # who may draft the same number of tokens in every round


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to answer: by the target alone (`off`), as the controller thinks best (`auto`), or always one drafter."""

    draft: str
    num_draft_tokens: int = 4

    @property
    def name(self) -> str:
        """How the report names it."""
        return f"{self.draft} {self.num_draft_tokens}" if self.draft in FIXED else self.draft


OFF, AUTO = Arm("off"), Arm("auto")


@dataclass(frozen=True, slots=True)
class Run:
    """One answer to be measured; `repeat` counts from 0."""

    prompt: Prompt
    arm: Arm
    repeat: int


def arms_of(drafter: str, lengths: Sequence[int]) -> list[Arm]:
    """The target alone, the controller, and `drafter` with each fixed number of tokens."""
    if lengths and drafter not in FIXED:
        raise OptionError(f"{drafter!r} cannot draft a fixed number of tokens; choose one of {', '.join(FIXED)}")
    return [OFF, AUTO, *(Arm(drafter, number) for number in sorted(set(lengths)))]


def schedule(prompts: Sequence[Prompt], arms: Sequence[Arm], num_repeats: int) -> list[Run]:
    """All runs: each prompt goes to all arms one after the other, so that what slows the machine down slows all alike.

    Which arm begins turns with prompt and repeat, so that none always finds the machine as the same other arm left it.
    """
    return [
        Run(prompt, arms[(index + repeat + turn) % len(arms)], repeat)
        for repeat in range(num_repeats)
        for index, prompt in enumerate(prompts)
        for turn in range(len(arms))
    ]
