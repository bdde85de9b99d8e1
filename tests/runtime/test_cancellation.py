"""Stop from another thread: while loading, while the prompt is read, between tokens. What follows is as if fresh."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pilotfish import runtime as pilotfish
from pilotfish.runtime import Chunk, GenerationOptions
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.engine import Engine
from support.tiny_models import CONFIG, tiny_bundle

LONG = "the pilot fish swims ahead of the shark " * 30
OTHER = "the shark follows"


def reply(engine: Engine, prompt: str, **options) -> list[int]:
    chunks = engine.generate(prompt, GenerationOptions(**{"max_tokens": 24, **options}))
    return [token_id for chunk in chunks for token_id in chunk.token_ids]


def fresh_reply(path: Path, prompt: str) -> list[int]:
    with pilotfish.load(path) as engine:
        return reply(engine, prompt)


def stopped(engine: Engine, monkeypatch: pytest.MonkeyPatch, after_forwards: int, **options) -> list[Chunk]:
    """A generation that is cancelled from another thread inside the forward of that number, draft's or target's."""
    left, run = after_forwards, Decoder._run

    def counted(decoder: Decoder, *arguments):
        nonlocal left
        left -= 1
        if left == 0:
            thread = threading.Thread(target=engine.cancel)
            thread.start()
            thread.join()
        return run(decoder, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "_run", counted)
        return list(engine.generate(LONG, GenerationOptions(max_tokens=None, **options)))


@pytest.mark.parametrize("draft", ["off", "model", "lookup"])
@pytest.mark.parametrize("after_forwards", [1, 2, 3, 4, 5, 7, 11])
def test_a_stop_in_any_forward_leaves_a_valid_engine(
    engine: Engine, bundle_path: Path, monkeypatch: pytest.MonkeyPatch, draft: str, after_forwards: int
):
    chunks = stopped(engine, monkeypatch, after_forwards, draft=draft)
    assert chunks[-1].finish_reason == "cancelled"
    context = engine._context
    assert all(decoder.length <= len(context.committed) - 1 for decoder in context.decoders.values())
    token_ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
    assert context.committed == [*engine.tokenizer.encode(LONG), *token_ids]
    assert reply(engine, OTHER) == fresh_reply(bundle_path, OTHER)
    assert reply(engine, LONG) == fresh_reply(bundle_path, LONG)


def test_a_stop_before_the_first_chunk_reads_nothing(engine: Engine):
    stream = engine.generate(LONG)
    engine.cancel()
    assert [(c.text, c.token_ids, c.finish_reason) for c in stream] == [("", (), "cancelled")]
    assert engine._context.target.length == 0


def test_a_stop_while_nothing_runs_does_not_end_the_next_generation(engine: Engine):
    engine.cancel()
    assert len(reply(engine, OTHER)) == 24


def test_loading_can_be_cancelled_before_it_begins(bundle_path: Path):
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(pilotfish.Cancelled, match=r"loading .* was cancelled"):
        pilotfish.load(bundle_path, cancelled=cancelled)
    cancelled.clear()
    with pilotfish.load(bundle_path, cancelled=cancelled) as engine:
        assert reply(engine, OTHER) == fresh_reply(bundle_path, OTHER)


def test_loading_is_cancelled_inside_onnx_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Packing the weights is what takes time; the flag must reach the session that is being made, not the next one."""
    path = tiny_bundle(tmp_path, "w8a8", draft_noise=None, config=CONFIG)
    cancelled, seen = threading.Event(), []
    ort = pytest.importorskip("onnxruntime")

    class SlowOptions(ort.SessionOptions):
        def set_load_cancellation_flag(self, value: bool) -> None:
            seen.append(value)
            super().set_load_cancellation_flag(value)

    session = ort.InferenceSession

    def slow_session(*arguments, **options):
        cancelled.set()
        while not seen:  # until the watching thread has passed it on
            threading.Event().wait(0.01)
        return session(*arguments, **options)

    monkeypatch.setattr(ort, "SessionOptions", SlowOptions)
    monkeypatch.setattr(ort, "InferenceSession", slow_session)
    with pytest.raises(pilotfish.Cancelled, match=r"model\.onnx was cancelled"):
        pilotfish.load(path, cancelled=cancelled)
    assert seen == [True]


def test_loading_is_cancelled_while_it_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tiny_bundle(tmp_path, draft_noise=None)
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))  # where no calibration is kept
    cancelled, num_forwards, run = threading.Event(), 0, Decoder._run

    def slow(decoder: Decoder, *arguments):
        nonlocal num_forwards
        num_forwards += 1
        cancelled.set()
        while not decoder._bindings.is_cancelled:  # until the watching thread has passed it on
            threading.Event().wait(0.01)
        return run(decoder, *arguments)

    monkeypatch.setattr(Decoder, "_run", slow)
    with pytest.raises(pilotfish.Cancelled):
        pilotfish.load(path, cancelled=cancelled)
    assert num_forwards == 1
