"""What a generation takes on the host: the rounds without the forwards of the models, and the text of the tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotfish.runtime import Engine, GenerationOptions, load, load_bundle
from pilotfish.runtime.tokenizer import StreamDecoder, Tokenizer

TEXT = "the pilot fish swims ahead of the shark 🦈 and the shark follows the pilot fish 鮫の前を泳ぐ魚 " * 8
OPTIONS = {
    "target alone": GenerationOptions(64, draft="off"),
    "model": GenerationOptions(64, draft="model"),
    "suffix": GenerationOptions(64, draft="suffix"),
    "auto": GenerationOptions(64),
}


class HostClock:
    """Tells the time without the forwards of `decoders`."""

    def __init__(self) -> None:
        self.decoders: list = []

    def __call__(self) -> float:
        """Seconds; only differences mean something."""
        return time.perf_counter() - sum(decoder.run_s for decoder in self.decoders)


CLOCK = HostClock()


@pytest.fixture(scope="module")
def engine(tiny_bundle_path: Path) -> Iterator[Engine]:
    with load(tiny_bundle_path, num_threads=1) as loaded:
        CLOCK.decoders = list(loaded._context.decoders.values())
        yield loaded
        CLOCK.decoders = []


@pytest.mark.benchmark(timer=CLOCK)
@pytest.mark.parametrize("name", OPTIONS)
def test_host_time_of_64_tokens(benchmark, engine: Engine, name: str):
    """From cold caches; divide by `rounds` of the extra information for the time of a round."""
    token_ids: list[int] = []

    def generate() -> None:
        engine.reset()
        token_ids[:] = [i for chunk in engine.generate(TEXT[:40], OPTIONS[name]) for i in chunk.token_ids]

    benchmark(generate)
    benchmark.extra_info["rounds"] = engine.stats.num_rounds
    assert len(token_ids) == 64


def test_detokenizer(benchmark, tiny_bundle_path: Path):
    tokenizer = Tokenizer(load_bundle(tiny_bundle_path))
    token_ids = tokenizer.encode(TEXT)

    def decoded() -> str:
        stream = StreamDecoder(tokenizer)
        return "".join([*(stream.push(token_id) for token_id in token_ids), stream.flush()])

    assert benchmark(decoded) == TEXT


def test_chat_template(benchmark, tiny_bundle_path: Path):
    tokenizer = Tokenizer(load_bundle(tiny_bundle_path))
    messages = [{"role": role, "content": TEXT} for role in ("user", "assistant") * 4]
    assert len(benchmark(tokenizer.encode_chat, messages)) > 8 * len(tokenizer.encode(TEXT))
