"""What a run has found so far: JSON objects, one a line, appended as they come, so that a run that was cut off goes on.

A line has one key: `settings` (the first line), `begun` (each time a run began or went on), `versions`, `fidelity` and
`profile` (of a peer), `answer` (of a setup, as `Answer` has it, with its token ids), or `failure`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pilotfish.runtime.bench.answers import Answer
from pilotfish.runtime.bench.prompts import Prompt
from pilotfish.runtime.errors import OptionError


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How far a peer's target is from the float32 logits of the source: KL divergence in nats, equal top tokens."""

    mean_kl: float
    median_kl: float
    top1_agreement: float


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that a file says.

    `profiles` has, by peer and width of a pass, the seconds of each operator. `token_ids` is of the first answer to
    each prompt, by setup and prompt's key.
    """

    settings: Mapping[str, Any]
    begun: tuple[Mapping[str, Any], ...]
    versions: Mapping[str, Mapping[str, str]]
    fidelity: Mapping[str, Fidelity]
    answers: tuple[Answer, ...]
    failures: Mapping[str, str]
    profiles: Mapping[str, Mapping[str, Mapping[str, float]]]
    token_ids: Mapping[tuple[str, str], Sequence[int]]

    @property
    def done(self) -> set[tuple[str, str, int]]:
        """Setup, prompt and repeat of the answers that are there."""
        return {(answer.arm, answer.prompt, answer.repeat) for answer in self.answers}


class ResultsFile:
    """The file, to be appended to. `OptionError` if it was begun with other settings."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._path = path
        if path.exists() and path.stat().st_size:
            _drop_torn_line(path)
            former = read_results(path).settings
            if former != settings:
                changed = sorted(key for key in former.keys() | settings if former.get(key) != settings.get(key))
                raise OptionError(f"{path} was begun with other {', '.join(changed)}; give those, or another --results")
        else:
            self.append("settings", settings)

    def append(self, kind: str, values: Mapping[str, Any]) -> None:
        """Writes one line at once."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({kind: values}) + "\n")

    def read(self) -> Results:
        """All there is."""
        return read_results(self._path)


def read_results(path: Path) -> Results:
    """What a file says. Of a setup that failed and then answered, the failure is forgotten."""
    settings: dict[str, Any] = {}
    begun: list[dict[str, Any]] = []
    profiles: dict[str, dict[str, dict[str, float]]] = {}
    versions: dict[str, dict[str, str]] = {}
    fidelity: dict[str, Fidelity] = {}
    answers: list[Answer] = []
    failures: dict[str, str] = {}
    token_ids: dict[tuple[str, str], list[int]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        ((kind, values),) = json.loads(line).items()
        if kind == "settings":
            settings = values
        elif kind == "begun":
            begun.append(values)
        elif kind == "versions":
            versions |= values
        elif kind == "profile":
            profiles |= values
        elif kind == "fidelity":
            fidelity |= {peer: Fidelity(**found) for peer, found in values.items()}
        elif kind == "failure":
            failures |= values
        else:
            ids = values.pop("token_ids")
            pairs = {name: tuple(values[name]) for name in ("round_s", "round_tokens")}
            found = Answer(**{**values, **pairs})
            answers.append(found)
            failures.pop(found.arm, None)
            token_ids.setdefault((found.arm, found.prompt), ids)
    return Results(settings, tuple(begun), versions, fidelity, tuple(answers), failures, profiles, token_ids)


def answer_of(
    setup: str, prompt: Prompt, repeat: int, num_prompt_tokens: int, reply: Mapping[str, Any], ends: Collection[int]
) -> tuple[Answer, list[int]]:
    """A worker's reply as an `Answer`, and its token ids, both without the end of text, which not every peer gives.

    Tokens that came together count as one round. What a peer does not tell is 0.
    """
    token_ids = [token_id for token_id in reply["token_ids"] if token_id not in ends]
    arrivals = [(seconds, min(number, len(token_ids))) for seconds, number in reply["arrivals"]]
    numbers = [0, *(number for _, number in arrivals)]
    rounds = [
        (seconds, number - before)
        for (seconds, number), before in zip(arrivals, numbers, strict=False)
        if number > before
    ]
    if not rounds:
        raise ValueError(f"{setup} answered {prompt.key} with nothing")
    times = [seconds for seconds, _ in rounds]
    answer = Answer(
        prompt=prompt.key, kind=prompt.kind, length=prompt.length, arm=setup, repeat=repeat,
        num_prompt_tokens=num_prompt_tokens, num_tokens=len(token_ids), time_to_first_token_s=times[0],
        request_s=times[-1],
        round_s=tuple(now - before for before, now in pairwise(times)),
        round_tokens=tuple(number for _, number in rounds[1:]),
        num_drafted=reply["num_drafted"] or 0, num_accepted=reply["num_accepted"] or 0,
        target_s=0.0, draft_s=0.0,
        digest=hashlib.sha256(" ".join(map(str, token_ids)).encode()).hexdigest()[:16],
        finish_reason="end" if len(token_ids) < len(reply["token_ids"]) else "",
    )  # fmt: skip
    return answer, token_ids


def line_of(answer: Answer, token_ids: Sequence[int]) -> dict[str, Any]:
    """An answer as its line has it."""
    return {**asdict(answer), "token_ids": list(token_ids)}


def _drop_torn_line(path: Path) -> None:
    """Removes what follows the last end of a line, left by a run that was cut off while it wrote."""
    text = path.read_bytes()
    if not text.endswith(b"\n"):
        path.write_bytes(text[: text.rfind(b"\n") + 1])
