"""The text of one generation, token by token, and where it ends: at an end-of-text token or a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.runtime.tokenizer import StreamDecoder, Tokenizer


class Output:
    """Turns committed tokens into text that can be shown.

    Text that may be the beginning of a stop string is held back until it is known not to be one, so no part of a stop
    string is ever shown, however it falls on tokens, rounds and chunks. `finish_reason` is `end` or `stop` once that
    has happened.
    """

    def __init__(self, tokenizer: Tokenizer, stop_strings: Sequence[str] = ()) -> None:
        """Starts empty; an empty stop string is not allowed."""
        self.finish_reason: str | None = None
        self._stream = StreamDecoder(tokenizer)
        self._end_token_ids = tokenizer.end_token_ids
        self._stop_strings = tuple(stop_strings)
        self._held = ""
        self._texts: list[str] = []

    def commit(self, token_id: int) -> bool:
        """Takes the next token, in order; true if the generation ends with it."""
        self._texts.append(self._showable(self._stream.push(token_id)))
        if token_id in self._end_token_ids and self.finish_reason is None:
            self.finish_reason = "end"
        return self.finish_reason is not None

    def take(self) -> list[str]:
        """The text that each token since the last call has brought."""
        texts, self._texts = self._texts, []
        return texts

    def flush(self) -> str:
        """What is still held back, when no more tokens come; nothing after a stop string."""
        if self.finish_reason == "stop":
            return ""
        text = self._showable(self._stream.flush())
        held, self._held = self._held, ""
        return text if self.finish_reason == "stop" else text + held

    def _showable(self, text: str) -> str:
        self._held += text
        found = [position for stop in self._stop_strings if (position := self._held.find(stop)) >= 0]
        if found:
            self.finish_reason = "stop"
            shown, self._held = self._held[: min(found)], ""
            return shown
        length = max((_overlap(self._held, stop) for stop in self._stop_strings), default=0)
        split = len(self._held) - length
        shown, self._held = self._held[:split], self._held[split:]
        return shown


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` with which `stop` begins."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-n:])), 0)
