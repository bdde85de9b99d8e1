"""Settings as the fields of a form: the text that a number is shown as, and the settings that a text makes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pilotfish.desktop_app.settings import Settings
from pilotfish.runtime.errors import OptionError


@dataclass(frozen=True, slots=True)
class NumberField:
    """A number of the settings: `part` is `reply` or `loading`, `name` that of its field.

    If it `may_be_empty`, no text stands for None: no limit, or whatever the runtime takes by itself.
    """

    part: str
    name: str
    is_whole: bool = True
    may_be_empty: bool = False

    def shown(self, settings: Settings) -> str:
        """The text that makes the value of `settings`."""
        value = getattr(getattr(settings, self.part), self.name)
        return "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)

    def changed(self, settings: Settings, text: str) -> Settings:
        """`settings` with the number of `text`; `OptionError`, in the library's words, if it cannot be."""
        part: Any = getattr(settings, self.part)
        return replace(settings, **{self.part: replace(part, **{self.name: self._parsed(text.strip())})})

    def _parsed(self, text: str) -> int | float | None:
        if not text and self.may_be_empty:
            return None
        try:
            return int(text) if self.is_whole else float(text.replace(",", "."))
        except ValueError as error:
            kind = "a whole number" if self.is_whole else "a number"
            empty = ", or leave it empty" if self.may_be_empty else ""
            raise OptionError(f"{self.name} is {text[:20]!r}; write {kind}{empty}") from error


TEMPERATURE = NumberField("reply", "temperature", is_whole=False)
TOP_K = NumberField("reply", "top_k")
TOP_P = NumberField("reply", "top_p", is_whole=False)
MIN_P = NumberField("reply", "min_p", is_whole=False)
REPETITION_PENALTY = NumberField("reply", "repetition_penalty", is_whole=False)
SEED = NumberField("reply", "seed", may_be_empty=True)
MAX_TOKENS = NumberField("reply", "max_tokens", may_be_empty=True)
ROOM = NumberField("reply", "room")
NUM_DRAFT_TOKENS = NumberField("reply", "num_draft_tokens")
NUM_THREADS = NumberField("loading", "num_threads", may_be_empty=True)
CONTEXT_LENGTH = NumberField("loading", "context_length", may_be_empty=True)
