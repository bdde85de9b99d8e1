"""What the terminal commands share: streamed text with its drafted parts marked, and the line of figures after it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from pilotfish.runtime.generation import Chunk
from pilotfish.runtime.metrics import Stats

DRAFTED_STYLE = "underline green"  # underlined too, since colour alone does not reach everybody


def print_stream(console: Console, chunks: Iterable[Chunk]) -> tuple[str, tuple[int, ...], str]:
    """Prints chunks as they come, drafted text marked; returns the text, the token ids and the finish reason."""
    texts: list[str] = []
    token_ids: list[int] = []
    finish_reason = ""
    for chunk in chunks:
        style = "" if chunk.origin == "target" else DRAFTED_STYLE
        console.print(Text(chunk.text, style=style), end="", soft_wrap=True)
        texts.append(chunk.text)
        token_ids.extend(chunk.token_ids)
        finish_reason = chunk.finish_reason or finish_reason
    console.print()
    return "".join(texts), tuple(token_ids), finish_reason


def summary(stats: Stats) -> str:
    """One line: tokens per second, and how speculation went."""
    line = f"{stats.tokens_per_s:.1f} tokens/s"
    if stats.num_drafted:
        line += f" · {stats.acceptance_rate:.0%} of drafted tokens accepted"
    return f"{line} · {stats.tokens_per_round:.2f} tokens per round · speculation {stats.speculation}"
