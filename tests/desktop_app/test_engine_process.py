"""The engine in a real process: with a real tiny bundle, and with a fake that dies on demand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish import runtime as pilotfish
from pilotfish.desktop_app.engine_process import EngineProcess
from pilotfish.desktop_app.errors import EngineGoneError
from pilotfish.desktop_app.load_record import LoadRecord
from pilotfish.desktop_app.programs import engine_command
from pilotfish.desktop_app.protocol import (
    Counted,
    Done,
    Failed,
    Load,
    Loaded,
    Loading,
    Piece,
    Ready,
    Stopped,
    Unloaded,
    event_from,
    to_line,
)
from pilotfish.desktop_app.remedies import Died
from pilotfish.desktop_app.reply_options import ReplyOptions
from support.engine_events import EngineEvents, started
from support.fake_engine import fake_command
from support.tiny_models import CONFIG, tiny_bundle

CONTEXT = 12_000
GREEDY = ReplyOptions(max_tokens=40, temperature=0)
ENDLESS = ReplyOptions(max_tokens=None, temperature=0, room=0)
WORDS = " ".join(f"word{number}" for number in range(5000))

pytestmark = pytest.mark.filterwarnings("error")
needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.fixture(scope="module")
def long_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny bundle with a context that takes a while to fill."""
    return tiny_bundle(tmp_path_factory.mktemp("long"), config=replace(CONFIG, max_positions=CONTEXT))


@pytest.fixture(scope="module")
def shared(long_bundle: Path) -> Iterator[tuple[EngineProcess, EngineEvents]]:
    events = EngineEvents()
    engine = started(events)
    engine.load(long_bundle, context_length=CONTEXT)
    events.wait_for(Loaded)
    yield engine, events
    engine.close()


def test_the_facts_of_a_load_and_two_replies_in_a_row(shared, long_bundle: Path):
    _, events = shared
    ready, loading, loaded = events.seen[:3]
    assert (type(ready), loading) == (Ready, Loading(1, str(long_bundle)))
    assert (loaded.facts.context_length, loaded.facts.max_context_length) == (CONTEXT, CONTEXT)
    assert loaded.facts.draft is not None
    assert loaded.facts.num_bytes > 100_000


def test_two_replies_in_a_row_are_what_the_engine_writes(shared, long_bundle: Path):
    engine, events = shared
    ids = [engine.generate(chat(text), "", GREEDY) for text in ("the shark", "the pilot fish")]
    ends = [events.wait_for(Done, request_id) for request_id in ids]
    with pilotfish.load(long_bundle, context_length=CONTEXT) as direct:
        for request_id, end, text in zip(ids, ends, ("the shark", "the pilot fish"), strict=True):
            chunks = list(direct.generate(chat(text), GREEDY.generation_options()))
            assert events.text(request_id) == "".join(chunk.text for chunk in chunks)
            assert end.finish_reason == chunks[-1].finish_reason
            num_tokens = sum(part.num_tokens for piece in events.pieces(request_id) for part in piece.parts)
            assert num_tokens == end.stats["num_tokens"] == direct.stats.num_tokens
            assert events.pieces(request_id)[-1].progress.num_tokens == num_tokens
    origins = {part.origin for request_id in ids for piece in events.pieces(request_id) for part in piece.parts}
    assert "target" in origins


def test_stop_while_decoding(shared):
    engine, events = shared
    request_id = engine.generate(chat("the shark"), "", ENDLESS)
    events.wait_for(Piece, request_id)
    engine.stop(request_id)
    end = events.wait_for(Done, request_id)
    assert end.finish_reason == "cancelled"
    assert 0 < end.stats["num_tokens"] < CONTEXT - 100
    again = engine.generate(chat("the shark"), "", GREEDY)
    assert events.wait_for(Done, again).finish_reason == "length"


def test_stop_in_prefill(shared):
    engine, events = shared
    long = chat("the pilot fish swims ahead of the shark " * 600)
    counted = engine.count(long, ENDLESS)
    num_tokens = events.wait_for(Counted, counted).num_tokens
    assert CONTEXT // 3 < num_tokens < CONTEXT
    request_id = engine.generate(long, "", ENDLESS)
    engine.stop(request_id)
    end = events.wait_for((Done, Stopped), request_id)
    if isinstance(end, Done):  # else it had not even begun
        assert (end.finish_reason, end.stats["num_tokens"]) == ("cancelled", 0)
    assert not events.pieces(request_id) or not events.text(request_id)


def test_stop_of_what_waits(shared):
    engine, events = shared
    first = engine.generate(chat("the shark"), "", ENDLESS)
    second = engine.generate(chat("the fish"), "", ENDLESS)
    third = engine.generate(chat("the sea"), "", GREEDY)
    engine.stop(second)
    assert getattr(events.wait_for((Done, Stopped), first), "finish_reason", "cancelled") == "cancelled"
    assert events.wait_for(Stopped, second) == Stopped(second)
    assert events.wait_for(Done, third).finish_reason == "length"
    engine.stop(third)  # has ended; harmless
    fourth = engine.generate(chat("the sea"), "", GREEDY)
    assert events.wait_for(Done, fourth).finish_reason == "length"


def test_a_reply_is_continued(shared):
    engine, events = shared
    request_id = engine.generate(chat("the shark"), "swims ahead", GREEDY)
    events.wait_for(Done, request_id)
    whole = engine.generate(chat("the shark"), "", GREEDY)
    events.wait_for(Done, whole)
    assert events.text(request_id)
    assert events.text(request_id) != events.text(whole)


def test_counting_and_the_overflow_policies(shared):
    engine, events = shared
    turn = [*chat("the shark follows " * 500), {"role": "assistant", "content": "it does"}]
    messages = [*turn * 6, *chat("and now?")]
    stop, drop = (replace(GREEDY, overflow=policy) for policy in ("stop", "drop"))
    refused = events.wait_for(Counted, engine.count(messages, stop))
    assert refused.num_tokens > refused.limit == CONTEXT - 512
    assert "begin a new chat" in refused.fault
    fitting = events.wait_for(Counted, engine.count(messages, drop))
    assert (fitting.fault, fitting.context_length) == ("", CONTEXT)
    assert 0 < fitting.num_dropped < len(messages) - 1
    assert fitting.num_tokens <= fitting.limit
    request_id = engine.generate(messages, "", stop)
    failed = next(event for event in iter(events.next, None) if isinstance(event, Failed))
    assert (failed.request_id, failed.fault) == (request_id, "context")
    assert failed.remedy.startswith("begin a new chat")
    done = events.wait_for(Done, engine.generate(messages, "", drop))
    assert done.num_dropped == fitting.num_dropped
    assert done.stats["num_prompt_tokens"] == fitting.num_tokens


def test_stop_while_loading(long_bundle: Path, tmp_path: Path):
    events, record = EngineEvents(), LoadRecord(tmp_path / "loads.json")
    engine = started(events, record=record)
    request_id = engine.load(long_bundle)
    engine.stop(request_id)
    assert events.wait_for(Stopped) == Stopped(request_id)
    assert (record.crashed, record.bundle_for_launch) == ((), None)
    again = engine.load(long_bundle)
    events.wait_for(Loaded, again)
    assert record.bundle_for_launch == str(long_bundle)
    engine.unload()
    events.wait_for(Unloaded)
    engine.generate(chat("x"), "", GREEDY)
    assert (events.next().message, events.seen[-1].remedy) == ("no model is loaded", "choose one")
    engine.close()
    assert not engine.is_running


@needs_signals
def test_a_killed_child_is_reported_and_started_again_on_request(long_bundle: Path):
    events = EngineEvents()
    engine = started(events)
    engine.load(long_bundle, context_length=CONTEXT)
    events.wait_for(Loaded)
    request_id = engine.generate(chat("the shark"), "", ENDLESS)
    events.wait_for(Piece, request_id)
    os.kill(engine.pid, signal.SIGKILL)
    died = events.wait_for(Died)
    assert "memory had run out (SIGKILL) while writing a reply" in died.cause
    assert died.remedy.startswith("Close other programs")
    assert not engine.is_running
    for ask in (lambda: engine.generate(chat("x"), "", GREEDY), engine.unload):
        with pytest.raises(EngineGoneError, match="start the engine again"):
            ask()
    engine.stop(request_id)  # harmless
    assert events.is_silent(0.2)
    engine.start()
    engine.load(long_bundle)
    events.wait_for(Loaded)
    assert events.wait_for(Done, engine.generate(chat("the shark"), "", GREEDY)).finish_reason == "length"
    engine.close()


def test_garbage_and_errors_are_answered_and_the_child_lives_on(long_bundle: Path, tmp_path: Path):
    child = subprocess.Popen(engine_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    lines = [b"garbage\n", b'{"v": 1, "kind": "format_disk"}\n', to_line(Load(7, str(tmp_path / "nowhere"))), b"\n"]
    out, _ = child.communicate(b"".join(lines) + to_line(Load(8, str(long_bundle), device="abacus")), timeout=120)
    assert child.returncode == 0  # standard input has ended, as it does when the window is killed
    events = [event_from(line) for line in out.splitlines()]
    failed = [event for event in events if isinstance(event, Failed)]
    assert isinstance(events[0], Ready)
    assert [event.fault for event in failed if event.request_id == -1] == ["protocol"] * 3


def test_a_bundle_that_is_not_there(tmp_path: Path):
    events = EngineEvents()
    engine = started(events)
    engine.load(tmp_path / "nowhere")
    while not isinstance(failed := events.next(), Failed):
        pass
    assert failed.fault == "bundle"
    assert "is not a bundle" in failed.message
    assert "pilotfish export" in failed.remedy
    engine.close()


def test_cuda_graphs_without_cuda_are_refused_with_the_remedy(long_bundle: Path):
    events = EngineEvents()
    engine = started(events)
    engine.load(long_bundle, cuda_graphs=True)
    while not isinstance(failed := events.next(), Failed):
        pass
    assert failed.fault == "option"
    assert "CUDA graphs are recorded by device 'cuda' only" in failed.message
    engine.close()


@needs_signals
@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGKILL, "memory had run out"), (signal.SIGSEGV, "crashed (SIGSEGV)"), (signal.SIGTERM, "from outside")],
)
def test_a_bundle_that_takes_the_child_down_is_not_loaded_at_the_next_launch(tmp_path: Path, number: int, words: str):
    events, record = EngineEvents(), LoadRecord(tmp_path / "loads.json")
    good, bad = fake_command("hello", tmp_path), fake_command("hello", tmp_path, die_in_load=int(number))
    engine = started(events, good, record)
    engine.load(tmp_path / "bundle")
    events.wait_for(Loaded)
    engine.close()
    assert LoadRecord(tmp_path / "loads.json").bundle_for_launch == str(tmp_path / "bundle")
    engine = started(events, bad, record)
    engine.load(tmp_path / "bundle")
    died = events.wait_for(Died)
    assert words in died.cause
    assert "while loading bundle" in died.cause
    later = LoadRecord(tmp_path / "loads.json")
    assert (later.bundle_for_launch, later.crashed) == (None, (str(tmp_path / "bundle"),))
    engine = started(events, good, later)
    engine.load(tmp_path / "bundle")
    events.wait_for(Loaded)
    engine.close()
    assert (later.bundle_for_launch, later.crashed) == (str(tmp_path / "bundle"), ())


def test_a_child_that_speaks_garbage_is_ended(tmp_path: Path):
    events = EngineEvents()
    started(events, fake_command("hello", tmp_path, garbage="")[:-1])
    died = events.wait_for(Died)
    assert "no event" in died.details
    assert events.is_silent(0.1)


def test_a_program_that_is_not_there_or_fails_at_once(tmp_path: Path):
    events = EngineEvents()
    with pytest.raises(EngineGoneError, match="cannot be started"):
        started(events, [str(tmp_path / "nothing")])
    started(events, [sys.executable, "-c", "import pilotfish.nothing_such"])
    died = events.wait_for(Died)
    assert "ended with exit code 1: ModuleNotFoundError" in died.cause


def test_stop_in_a_load_and_a_prefill_that_would_take_minutes(tmp_path: Path):
    events = EngineEvents()
    engine = started(events, fake_command("hello", tmp_path, load_s=600))
    request_id = engine.load(tmp_path)
    events.wait_for(Loading, request_id)
    engine.stop(request_id)
    events.wait_for(Stopped, request_id)
    engine.close()
    engine = started(events, fake_command("hello", tmp_path, prefill_s=600))
    engine.load(tmp_path)
    events.wait_for(Loaded)
    request_id = engine.generate(chat("x"), "", GREEDY)
    events.wait_for(Counted, engine.count(chat("x"), GREEDY))  # beside the generation
    engine.stop(request_id)
    end = events.wait_for((Done, Stopped), request_id)  # `Stopped` if it had not even begun
    assert getattr(end, "finish_reason", "cancelled") == "cancelled"
    engine.close()


def test_closing_does_not_wait_for_a_load(tmp_path: Path):
    events, record = EngineEvents(), LoadRecord(tmp_path / "loads.json")
    engine = started(events, fake_command("hello", tmp_path, load_s=600), record)
    events.wait_for(Loading, engine.load(tmp_path / "bundle"))
    engine.close()
    engine.close()
    assert not engine.is_running
    assert events.is_silent(0.1)
    assert LoadRecord(tmp_path / "loads.json").crashed == ()


def test_the_fake_streams_its_text_at_its_rate(tmp_path: Path):
    events = EngineEvents()
    engine = started(events, fake_command(WORDS, tmp_path, tokens_per_s=2000))
    engine.load(tmp_path)
    events.wait_for(Loaded)
    request_id = engine.generate(chat("x"), "", ReplyOptions(max_tokens=2000))
    done = events.wait_for(Done, request_id)
    assert (done.finish_reason, done.stats["num_tokens"]) == ("length", 2000)
    assert events.text(request_id) == " ".join(WORDS.split()[:2000])
    assert len(events.pieces(request_id)) <= 1.5 * done.stats["decode_s"] / 0.015 + 2
    engine.close()
