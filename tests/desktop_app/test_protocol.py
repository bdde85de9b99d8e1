from __future__ import annotations

import json
import threading
import time

import pytest

from pilotfish.desktop_app.errors import FormatError
from pilotfish.desktop_app.outbox import Outbox
from pilotfish.desktop_app.protocol import (
    EVENTS,
    REQUESTS,
    BundleFacts,
    Count,
    Counted,
    Done,
    Failed,
    Generate,
    Load,
    Loaded,
    Loading,
    Part,
    Piece,
    Progress,
    Quit,
    Ready,
    Stop,
    Stopped,
    Unload,
    Unloaded,
    event_from,
    request_from,
    to_line,
)
from pilotfish.desktop_app.reply_options import ReplyOptions
from pilotfish.runtime import Stats
from pilotfish.runtime.errors import OptionError

MESSAGES = ({"role": "user", "content": "Why? 🦈\n\u2028鮫"},)
PROGRESS = Progress(3, 2, 4, 1, 20.5, None, "on")
SENT = (
    Load(1, "/b", "cuda", None, 100, 2, False, True),
    Generate(2, MESSAGES, "so far", ReplyOptions(None, 0.0, stop=("a", "b"), seed=3)),
    Count(3, MESSAGES), Stop(4), Unload(), Quit(),
)  # fmt: skip
ANSWERED = (
    Ready(), Loading(1, "/b"), Loaded(1, BundleFacts("/b", "b", "t", "int8", None, None, 10, 20, 3, 0.5)),
    Piece(2, (Part("model", "🦈\n", 2), Part("target", "", 1)), PROGRESS),
    Done(2, "end", Stats().to_dict(), 0), Stopped(3), Counted(4, 5, 6, 7, 0, ""), Failed(5, "memory", "a", "b"),
    Unloaded(),
)  # fmt: skip


def test_every_message_comes_back_as_it_was():
    assert {type(each) for each in SENT} == set(REQUESTS.values())
    assert {type(each) for each in ANSWERED} == set(EVENTS.values())
    for parse, messages in ((request_from, SENT), (event_from, ANSWERED)):
        for message in messages:
            line = to_line(message)
            assert line.isascii()
            assert line.count(b"\n") == 1
            assert parse(line) == message


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"\n", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[1]", "not an object"),
        (b'{"v": 1, "kind": "format_disk"}', "unknown kind 'format_disk'"),
        (b'{"v": 1, "kind": ["stop"]}', "unknown kind"),
        (b'{"v": 1, "kind": "ready"}', "unknown kind"),
        (b'{"v": 2, "kind": "stop", "request_id": 1}', "version 2"),
        (b'{"kind": "stop", "request_id": 1}', "version None"),
        (b'{"v": 1, "kind": "stop"}', "stop.request_id is missing"),
        (b'{"v": 1, "kind": "stop", "request_id": "1"}', "stop.request_id is not a whole number"),
        (b'{"v": 1, "kind": "stop", "request_id": 1, "now": 1}', "stop.now is unknown"),
        (b'{"v": 1, "kind": "generate", "request_id": 1, "messages": [{"role": 3}]}', r"messages\[0\].role is not"),
    ],
)
def test_garbage_is_refused_with_the_reason(line: bytes, fault: str):
    with pytest.raises(FormatError, match=fault):
        request_from(line)


def test_options_out_of_range_are_refused():
    line = to_line(Generate(1, MESSAGES)).replace(b'"top_p": 0.95', b'"top_p": 2')
    with pytest.raises(OptionError, match="top_p"):
        request_from(line)
    with pytest.raises(OptionError, match="overflow"):
        ReplyOptions(overflow="guess")


def piece(text: str, origin: str = "target", request_id: int = 1) -> Piece:
    return Piece(request_id, (Part(origin, text, 1),), PROGRESS)


class SlowPipe:
    """Holds the first line back until it is let go, so that what follows comes together."""

    def __init__(self) -> None:
        self.lines: list[dict] = []
        self.may_go = threading.Event()

    def write(self, line: bytes) -> None:
        self.may_go.wait(10)
        self.lines.append(json.loads(line))


def test_pieces_that_come_together_are_one_and_keep_their_order():
    pipe = SlowPipe()
    outbox = Outbox(pipe.write)
    outbox.put(Ready())
    while outbox._events:
        time.sleep(0.001)
    for text, origin in (("a", "model"), ("b", "model"), ("c", "target"), ("d", "model")):
        outbox.put(piece(text, origin))
    outbox.put(piece("e", "model", request_id=2))
    outbox.put(Done(2, "end", {}, 0))
    pipe.may_go.set()
    outbox.close(10)
    assert [line["kind"] for line in pipe.lines] == ["ready", "piece", "piece", "done"]
    parts = [(part["origin"], part["text"], part["num_tokens"]) for part in pipe.lines[1]["parts"]]
    assert parts == [("model", "ab", 2), ("target", "c", 1), ("model", "d", 1)]


def test_a_flood_of_pieces_becomes_few_lines_and_no_text_is_lost():
    lines: list[dict] = []
    outbox = Outbox(lambda line: lines.append(json.loads(line)), interval_s=0.02)
    started = time.monotonic()
    for number in range(2000):
        outbox.put(piece(f"{number} "))
        if number % 20 == 0:
            time.sleep(0.001)
    outbox.close(10)
    passed_s = time.monotonic() - started
    assert "".join(part["text"] for line in lines for part in line["parts"]) == "".join(f"{n} " for n in range(2000))
    assert len(lines) <= passed_s / 0.02 + 2


def test_a_lone_piece_is_not_held_back_for_ever():
    arrived = threading.Event()
    outbox = Outbox(lambda line: arrived.set() if b"second" in line else None)
    outbox.put(piece("first"))
    outbox.put(piece("second"))
    assert arrived.wait(10)
    outbox.close()


def test_nobody_listening_is_no_error():
    def fail(line: bytes) -> None:
        raise BrokenPipeError

    outbox = Outbox(fail)
    outbox.put(Ready())
    outbox.close(10)
    outbox.put(piece("x"))
    assert not outbox._thread.is_alive()
