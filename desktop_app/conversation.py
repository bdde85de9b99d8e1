"""A conversation: messages as a tree, of which one path is shown. Values only, and nothing is ever taken out.

Editing or regenerating adds a sibling and shows that one; the arrows of the window choose another sibling.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pilotfish.desktop_app.errors import ConversationError

ROLES = ("user", "assistant")
STATES = ("complete", "streaming", "interrupted", "error", "unreadable")
TITLE_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Span:
    """So many characters in a row that `origin` wrote: a drafter, such as `model` or `suffix`, or `target`."""

    origin: str
    num_characters: int

    def __post_init__(self) -> None:
        if self.num_characters < 0:
            raise ConversationError(f"a span has {self.num_characters} characters; it must not be negative")


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file that was sent along."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ReplyStats:
    """What a reply cost, as its footer shows it. `num_dropped` old messages did not fit the context and were left out.

    `acceptance_rate` is None if nothing was drafted, `speed_up` if the target's own speed is not known.
    """

    model: str
    num_tokens: int = 0
    tokens_per_s: float = 0.0
    time_to_first_token_s: float = 0.0
    acceptance_rate: float | None = None
    speed_up: float | None = None
    speculation: str = ""
    finish_reason: str | None = None
    num_dropped: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `created_s` is in seconds since the epoch; `error` says what is wrong in words for the user.

    The states: `complete`; `streaming`, while it is written; `interrupted`, stopped or cut off before its end; `error`;
    `unreadable`, a record that is damaged on disk. `spans` cover the text from its beginning, as far as is known.
    """

    id: str
    parent_id: str | None
    role: str
    text: str
    created_s: float
    state: str = "complete"
    error: str = ""
    spans: tuple[Span, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    stats: ReplyStats | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ConversationError(f"the role of message {self.id} is {self.role!r}; it is one of {', '.join(ROLES)}")
        if self.state not in STATES:
            raise ConversationError(
                f"the state of message {self.id} is {self.state!r}; it is one of {', '.join(STATES)}"
            )

    @property
    def prompt_text(self) -> str:
        """What the model reads: the text, and each attachment in a fence that its own text cannot close."""
        return "\n\n".join([self.text, *(_fenced(attachment) for attachment in self.attachments)])


@dataclass(frozen=True, slots=True)
class Conversation:
    """`messages` in the order in which they were made, so a parent always comes before its children.

    Of siblings the last is shown, unless another one is in `chosen_ids`.
    """

    id: str
    created_s: float
    title: str = ""
    system_prompt: str = ""
    messages: tuple[Message, ...] = ()
    chosen_ids: tuple[str, ...] = ()
    _by_id: Mapping[str, Message] = field(init=False, repr=False, compare=False)
    _children: Mapping[str | None, tuple[Message, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """`ConversationError` for an id that is there twice, or a parent that does not come before its child."""
        by_id: dict[str, Message] = {}
        children: dict[str | None, list[Message]] = {}
        for message in self.messages:
            if message.id in by_id:
                raise ConversationError(f"two messages have the id {message.id!r}")
            if message.parent_id is not None and message.parent_id not in by_id:
                raise ConversationError(f"no message {message.parent_id!r} comes before its child {message.id!r}")
            by_id[message.id] = message
            children.setdefault(message.parent_id, []).append(message)
        for message_id in self.chosen_ids:
            if message_id not in by_id:
                raise ConversationError(f"the chosen message {message_id!r} is not in the conversation")
        object.__setattr__(self, "_by_id", by_id)
        object.__setattr__(self, "_children", {parent: tuple(each) for parent, each in children.items()})

    @property
    def path(self) -> tuple[Message, ...]:
        """The messages that are shown, from the first."""
        chosen, path, parent_id = set(self.chosen_ids), [], None
        while siblings := self._children.get(parent_id):
            shown = next((message for message in siblings if message.id in chosen), siblings[-1])
            path.append(shown)
            parent_id = shown.id
        return tuple(path)

    def message(self, message_id: str) -> Message:
        """The message of that id; `ConversationError` if there is none."""
        if message_id not in self._by_id:
            raise ConversationError(f"message {message_id!r} is not in this conversation")
        return self._by_id[message_id]

    def siblings(self, message_id: str) -> tuple[Message, ...]:
        """The message and all others with the same parent, in the order in which they were made."""
        return self._children[self.message(message_id).parent_id]

    def path_to(self, message_id: str | None) -> tuple[Message, ...]:
        """The messages from the first down to this one, shown or not; none for None."""
        path = []
        while message_id is not None:
            message = self.message(message_id)
            path.append(message)
            message_id = message.parent_id
        return tuple(reversed(path))

    def with_message(self, message: Message) -> Conversation:
        """With one message more, which is shown, and so are those above it."""
        added = replace(self, messages=(*self.messages, message))
        return added.choosing(message.id)

    def with_replaced(self, message: Message) -> Conversation:
        """With `message` in place of the one with its id and parent, such as a reply that has grown."""
        if self.message(message.id).parent_id != message.parent_id:
            raise ConversationError(f"message {message.id!r} cannot move to another parent")
        return replace(self, messages=tuple(message if each.id == message.id else each for each in self.messages))

    def choosing(self, message_id: str) -> Conversation:
        """With this message shown, and so those above it; below it what was shown there before."""
        chosen = list(self.chosen_ids)
        for message in self.path_to(message_id):
            siblings = self.siblings(message.id)
            others = {sibling.id for sibling in siblings}
            chosen = [each for each in chosen if each not in others]
            if message is not siblings[-1]:
                chosen.append(message.id)
        return replace(self, chosen_ids=tuple(chosen))


def new_id() -> str:
    """An id that no other message or conversation has."""
    return uuid.uuid4().hex


def with_new_ids(conversation: Conversation) -> Conversation:
    """The same tree under ids of its own, so that a chat can be imported twice."""
    ids = {message.id: new_id() for message in conversation.messages}
    messages = tuple(
        replace(message, id=ids[message.id], parent_id=ids[message.parent_id] if message.parent_id else None)
        for message in conversation.messages
    )
    chosen = tuple(ids[message_id] for message_id in conversation.chosen_ids)
    return replace(conversation, id=new_id(), messages=messages, chosen_ids=chosen)


def prompt_of(path: Iterable[Message], system_prompt: str = "") -> tuple[dict[str, str], ...]:
    """What the engine is given: the system prompt if there is one, then the messages of `path` that can be read."""
    system = ({"role": "system", "content": system_prompt},) if system_prompt.strip() else ()
    readable = (message for message in path if message.state != "unreadable")
    return (*system, *({"role": message.role, "content": message.prompt_text} for message in readable))


def merged_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same spans without empty ones, neighbours of one origin as one."""
    merged: list[Span] = []
    for span in spans:
        if merged and merged[-1].origin == span.origin:
            merged[-1] = Span(span.origin, merged[-1].num_characters + span.num_characters)
        elif span.num_characters:
            merged.append(span)
    return tuple(merged)


def title_from(text: str) -> str:
    """A title made of the first words of a message: those before its code, if any, without Markdown's marks."""
    beginning = text[: 4 * TITLE_CHARACTERS]
    prose, _, code = beginning.partition("```")
    words = " ".join((prose if prose.strip() else code).replace("`", "").replace("**", "").split()).strip("#> :")
    if len(words) <= TITLE_CHARACTERS:
        return words
    return words[:TITLE_CHARACTERS].rsplit(" ", 1)[0] + "…"


def as_unicode(text: str) -> str:
    """`text` with U+FFFD for half surrogate pairs, which a paste may hold and no file can."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _fenced(attachment: Attachment) -> str:
    fence = "```"
    while fence in attachment.text:
        fence += "`"
    return f"{attachment.name}:\n{fence}\n{attachment.text}\n{fence}"
