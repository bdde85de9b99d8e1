from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.desktop_app import exchange
from pilotfish.desktop_app.conversation import Attachment, Conversation, Message, ReplyStats, Span
from pilotfish.desktop_app.errors import ExchangeError
from pilotfish.desktop_app.exchange import export_chat, import_chat
from pilotfish.desktop_app.json_exchange import chat_from_json, chat_to_json
from pilotfish.desktop_app.markdown_exchange import chat_from_markdown, chat_to_markdown

NASTY = (
    "<!-- pilotfish: user -->",
    "\\<!-- pilotfish: assistant -->",
    "## You",
    "## Assistant",
    "",
    "# Title",
    "\\",
    "x",
)

texts = st.lists(
    st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0")), max_size=6
).map("\n".join)


def a_chat() -> Conversation:
    chat = Conversation("c", 1.0, "Sky", "be brief")
    for message in (
        Message("q", None, "user", "Why?", 1.0, attachments=(Attachment("a.txt", "text"),)),
        Message("a", "q", "assistant", "Rayleigh 散乱", 2.0, spans=(Span("model", 8),), stats=ReplyStats("m", 3)),
        Message("b", "q", "assistant", "other", 3.0, "interrupted", "it was stopped"),
        Message("q2", "a", "user", "And?", 4.0),
    ):
        chat = chat.with_message(message)
    return chat


def without_ids(conversation: Conversation) -> dict:
    """The tree as JSON, every id replaced by its number in the order of the messages."""
    ids = {message.id: f"#{number}" for number, message in enumerate(conversation.messages)}
    text = chat_to_json(conversation)
    for message_id, number in ids.items():
        text = text.replace(f'"{message_id}"', f'"{number}"')
    return json.loads(text.replace(f'"{conversation.id}"', '"chat"'))


def test_json_keeps_the_whole_tree_under_new_ids():
    chat = a_chat()
    first, second = (chat_from_json(chat_to_json(chat)) for _ in range(2))
    assert without_ids(first) == without_ids(chat) == without_ids(second)
    assert [message.text for message in first.path] == ["Why?", "Rayleigh 散乱", "And?"]
    ids = [{each.id, *(message.id for message in each.messages)} for each in (chat, first, second)]
    assert not ids[0] & ids[1]
    assert not ids[1] & ids[2]


def test_markdown_shows_the_path():
    text = chat_to_markdown(a_chat())
    assert text.startswith("# Sky\n")
    assert "Rayleigh 散乱" in text
    assert "other" not in text
    chat = chat_from_markdown(text, 9.0)
    assert (chat.title, chat.system_prompt) == ("Sky", "be brief")
    assert [(message.role, message.text) for message in chat.path] == [
        ("user", "Why?\n\na.txt:\n```\ntext\n```"), ("assistant", "Rayleigh 散乱"), ("user", "And?"),
    ]  # fmt: skip


@given(st.lists(texts, min_size=1, max_size=5))
def test_markdown_gives_back_any_text(contents: list[str]):
    chat = Conversation("c", 1.0, "T")
    for number, content in enumerate(contents):
        parent = str(number - 1) if number else None
        chat = chat.with_message(Message(str(number), parent, ("user", "assistant")[number % 2], content, 1.0))
    again = chat_from_markdown(chat_to_markdown(chat), 1.0)
    assert [message.text for message in again.path] == contents


@pytest.mark.parametrize("name", ["chat.json", "chat.md"])
def test_files(tmp_path: Path, name: str):
    path = tmp_path / name
    export_chat(a_chat(), path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))  # as an editor on Windows saves it
    assert [message.text.split("\n")[0] for message in import_chat(path, 1.0).path] == ["Why?", "Rayleigh 散乱", "And?"]


def test_a_failed_export_leaves_the_old_file(tmp_path: Path):
    with pytest.raises(ExchangeError, match="cannot be written"):
        export_chat(a_chat(), tmp_path / "missing" / "chat.json")
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(ExchangeError, match="cannot be written"):
        export_chat(a_chat(), tmp_path / "folder.md")


def changed(**values) -> str:
    document = json.loads(chat_to_json(a_chat()))
    document["chat"] |= values
    return json.dumps(document)


MESSAGE = {"id": "x", "parent_id": None, "role": "user", "text": "t", "created_s": 1}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no line"),
        ("just text", "no line"),
        ("{", "not valid JSON"),
        ("[" * 200_000, "no line"),
        ('{"a":' * 200_000, "not valid JSON"),
        ("{}", "no chat of pilotfish"),
        ('{"format": "pilotfish-chat", "version": 2}', "latest release"),
        ('{"format": "pilotfish-chat", "version": 1}', "chat is not an object"),
        ('{"format": "pilotfish-chat", "version": ' + "9" * 5000 + "}", "not valid JSON"),
        (changed(messages="x"), "chat.messages is not a list"),
        (changed(messages=[MESSAGE | {"parent_id": "x"}]), "comes before"),
        (changed(messages=[MESSAGE, MESSAGE]), "two messages"),
        (changed(messages=[MESSAGE | {"role": "root"}]), "role"),
        (changed(messages=[MESSAGE | {"text": "\ud800"}]), "surrogate"),
        (changed(messages=[MESSAGE | {"created_s": 1e999}]), "finite"),
        (changed(messages=[MESSAGE | {"spans": [{"origin": "x", "num_characters": -1}]}]), "negative"),
        (changed(messages=[MESSAGE | {"parent_id": ["x"]}]), "parent_id is not a text"),
        (changed(chosen_ids=["nobody"]), "chosen"),
        (changed(x=1), "chat.x is unknown"),
    ],
)
def test_hostile_files_are_refused_with_the_reason(tmp_path: Path, text: str, fault: str):
    path = tmp_path / "chat.txt"
    path.write_text(text)
    with pytest.raises(ExchangeError, match=fault) as caught:
        import_chat(path, 1.0)
    assert len(str(caught.value)) < 400


def test_files_that_are_no_text_or_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "chat.md"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ExchangeError, match="UTF-8"):
        import_chat(path, 1.0)
    monkeypatch.setattr(exchange, "MAX_IMPORT_BYTES", 2)
    with pytest.raises(ExchangeError, match="no exported chat is that large"):
        import_chat(path, 1.0)
    with pytest.raises(ExchangeError, match="cannot be read"):
        import_chat(tmp_path / "nothing.md", 1.0)
