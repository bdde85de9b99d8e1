"""What happens when a conversation no longer fits the context.

`stop`: nothing is sent, and the user is told. `drop`: the oldest turns, each as a whole, are left out of what the model
reads; the system prompt and the last message stay. In the window and on disk nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pilotfish.runtime import ContextOverflowError

POLICIES = ("stop", "drop")

ChatMessage = Mapping[str, str]
"""`role` and `content`."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The messages that the model reads, how many tokens they are, and how many messages were left out."""

    messages: tuple[ChatMessage, ...]
    num_tokens: int
    num_dropped: int = 0


def prompt_limit(context_length: int, room: int) -> int:
    """Most tokens of a prompt, when `room` tokens are kept free for the reply, but at most a quarter of the context."""
    return context_length - max(1, min(room, context_length // 4))


def fit(
    messages: Sequence[ChatMessage], limit: int, policy: str, count: Callable[[Sequence[ChatMessage]], int]
) -> Fitted:
    """As many of the newest turns as fit `limit` tokens, by `count`; `ContextOverflowError` if the policy forbids it.

    `count` must not grow when old messages are left out.
    """
    num_tokens = count(messages)
    if num_tokens <= limit:
        return Fitted(tuple(messages), num_tokens)
    if policy == "stop":
        raise ContextOverflowError(
            f"the conversation is {num_tokens} tokens long and {limit} fit; begin a new chat, choose a longer context, "
            "or let the oldest turns be dropped"
        )
    num_system = int(bool(messages) and messages[0]["role"] == "system")
    # A turn begins with a user's message; many templates refuse a conversation that begins otherwise.
    starts = [i for i in range(num_system + 1, len(messages)) if messages[i]["role"] == "user"]

    def kept(start: int) -> list[ChatMessage]:
        return [*messages[:num_system], *messages[start:]]

    least = count(kept(starts[-1])) if starts else num_tokens
    if least > limit:
        raise ContextOverflowError(
            f"the last message is {least} tokens long by itself and {limit} fit; shorten it, or choose a longer context"
        )
    low, high = 0, len(starts) - 1  # the turns from starts[high] on fit
    while low < high:
        middle = (low + high) // 2
        if count(kept(starts[middle])) <= limit:
            high = middle
        else:
            low = middle + 1
    start = starts[high]
    return Fitted(tuple(kept(start)), count(kept(start)), start - num_system)
