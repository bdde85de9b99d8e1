"""A benchmark as it is kept: every answer, and all that must be known to judge or to repeat it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pilotfish.runtime.bench.answers import Answer
from pilotfish.runtime.errors import OptionError, StorageError

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Record:
    """One run. `settings` is what was asked for, `machine` where it ran and with which versions.

    `notes` are what a reader must know to judge the figures. The memory is the most that was seen, of the process that
    loaded the bundle and answered by all arms, and of the whole GPU; None where it cannot be told.
    """

    made_at: str
    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    peak_memory_bytes: int | None
    peak_gpu_bytes: int | None
    notes: tuple[str, ...]
    answers: tuple[Answer, ...]

    @property
    def arms(self) -> list[str]:
        """Names, the target alone first."""
        return list(dict.fromkeys(answer.arm for answer in self.answers))

    def of(self, arm: str) -> list[Answer]:
        """An arm's answers."""
        return [answer for answer in self.answers if answer.arm == arm]


def write_record(path: Path, record: Record, summary: Mapping[str, Any]) -> None:
    """Writes JSON, with the figures of `summary` before the answers for those who want no more; `StorageError`."""
    values = asdict(record)
    answers = values.pop("answers")
    text = json.dumps({"format": FORMAT_VERSION, **values, "summary": summary, "answers": answers}, indent=1)
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def read_record(path: Path) -> Record:
    """The record of a file that `write_record` wrote; `OptionError` if it is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"the record {path} cannot be read: {error}") from error
    version = values.get("format") if isinstance(values, dict) else None
    if version != FORMAT_VERSION:
        raise OptionError(f"{path} has record format {version!r}; this release reads {FORMAT_VERSION}; run bench again")
    try:
        answers = tuple(
            Answer(**{**a, "round_s": tuple(a["round_s"]), "round_tokens": tuple(a["round_tokens"])})
            for a in values["answers"]
        )
        return Record(
            values["made_at"], values["settings"], values["machine"], values["peak_memory_bytes"],
            values["peak_gpu_bytes"], tuple(values["notes"]), answers,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise OptionError(f"{path} is damaged ({error!r}); run bench again with --json") from error
