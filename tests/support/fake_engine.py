"""An engine's process that streams a given text at a given rate; no model, no ONNX Runtime.

`python fake_engine.py --text-file F --tokens-per-s 2000` speaks the protocol of the real one. A token is a word with
the space around it. `fake_command` gives the command line.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from pilotfish.desktop_app import engine_child
from pilotfish.runtime import Cancelled, Chunk, ContextOverflowError, GenerationOptions, Stats

ROUND = ("model", "model", "suffix", "target")  # who wrote the tokens, again and again


def fake_command(text: str, folder: Path, **options: object) -> list[str]:
    """The command line of a fake that answers everything with `text`, which is put into `folder`."""
    path = folder / "fake-reply.txt"
    path.write_text(text, encoding="utf-8")
    flags = itertools.chain.from_iterable(
        (f"--{name.replace('_', '-')}", str(value)) for name, value in options.items()
    )
    return [sys.executable, __file__, "--text-file", str(path), *flags]


class FakeEngine:
    """What `engine_child` uses of `pilotfish.runtime.Engine`."""

    def __init__(self, options: argparse.Namespace, context_length: int | None) -> None:
        self._options = options
        self._words = re.findall(r"\s*\S+|\s+$", Path(options.text_file).read_text(encoding="utf-8"))
        self._cancelled = threading.Event()
        self.context_length = context_length or 4096
        self.stats = Stats()
        self.tokenizer = SimpleNamespace(encode_chat=_encode_chat)
        target = SimpleNamespace(source={"name": "fake-target"}, family="fake", recipe="int8", max_positions=1 << 20)
        draft = SimpleNamespace(source={"name": "fake-draft"}, family="fake", recipe="int4", max_positions=1 << 20)
        manifest = SimpleNamespace(target=target, draft=draft, models={"target": target, "draft": draft}, files={})
        self.bundle = SimpleNamespace(manifest=manifest)

    def generate(self, messages, options: GenerationOptions, *, reply: str = "") -> Iterator[Chunk]:
        num_tokens = len(_encode_chat(messages, reply))
        if num_tokens >= self.context_length:
            raise ContextOverflowError(f"{num_tokens} tokens do not fit {self.context_length}; shorten the prompt")
        self._cancelled.clear()
        self.stats = Stats("on: fake", num_tokens, target_only_s=2 / self._options.tokens_per_s)
        return self._chunks(reply, options)

    def _chunks(self, reply: str, options: GenerationOptions) -> Iterator[Chunk]:
        started = time.monotonic()
        if self._options.deaf:
            time.sleep(self._options.prefill_s)
        elif self._cancelled.wait(self._options.prefill_s):
            yield Chunk("", (), "target", "cancelled")
            return
        self.stats = replace(self.stats, time_to_first_token_s=time.monotonic() - started)
        words = self._words[len(re.findall(r"\s*\S+|\s+$", reply)) :][: options.max_tokens]
        decoding = time.monotonic()
        for number, word in enumerate(words):
            ahead_s = decoding + number / self._options.tokens_per_s - time.monotonic()
            if self._cancelled.wait(max(ahead_s, 0)) or self._cancelled.is_set():
                yield Chunk("", (), "target", "cancelled")
                return
            if number == self._options.die_after:
                _die(self._options.signal)
            origin = ROUND[number % len(ROUND)]
            self.stats = replace(
                self.stats, num_tokens=number + 1, num_rounds=1 + number // len(ROUND), num_drafted=number + 1,
                num_accepted=3 * number // 4, decode_s=time.monotonic() - decoding,
            )  # fmt: skip
            is_last = number == len(words) - 1
            finish = ("length" if len(words) == options.max_tokens else "end") if is_last else None
            yield Chunk(word, (number,), origin, finish)
        if not words:
            yield Chunk("", (), "target", "end")

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self.cancel()


def _die(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)  # another thread may get the signal, and take its time


def _encode_chat(messages, reply: str = "") -> list[str]:
    return " ".join([*(message["content"] for message in messages), reply]).split()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text-file", required=True)
    parser.add_argument("--tokens-per-s", type=float, default=200)
    parser.add_argument("--load-s", type=float, default=0)
    parser.add_argument("--prefill-s", type=float, default=0)
    parser.add_argument("--die-in-load", type=int, default=0, help="a signal")
    parser.add_argument("--die-after", type=int, default=-1, help="so many tokens")
    parser.add_argument("--signal", type=int, default=11)
    parser.add_argument("--deaf", type=int, default=0, help="1: loads and prefills do not hear of a stop")
    parser.add_argument("--garbage", action="store_true")
    options = parser.parse_args()

    def load(path: str, *, context_length: int | None, cancelled: threading.Event, **_: object) -> FakeEngine:
        if options.die_in_load:
            _die(options.die_in_load)
        if options.deaf:
            time.sleep(options.load_s)
        elif cancelled.wait(options.load_s):
            raise Cancelled(f"loading {path} was cancelled")
        return FakeEngine(options, context_length)

    if options.garbage:
        print("this is no event", flush=True)
    engine_child.main(load)


if __name__ == "__main__":
    main()
