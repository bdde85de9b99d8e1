"""How soon a generation stops when it is told to, and how soon the second turn of a conversation begins.

Usage: python benchmarks/responsiveness.py BUNDLE [--repeats 11] [--prompt-tokens 2000] [--turn-tokens 1000]

Stop: `cancel` is called from another thread at a random moment while a prompt of `--prompt-tokens` is read, and while
tokens are decoded; the time until the stream has ended is printed (median and most). After each the next answer is
compared with a fresh one. Second turn: after a conversation of `--turn-tokens`, the time to first token of the next
turn is divided by the time of one target pass over its new tokens alone, measured right beside it.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from pathlib import Path

import numpy as np

from pilotfish import runtime as pilotfish
from pilotfish.runtime import Engine, GenerationOptions

SENTENCE = "The pilot fish swims ahead of the shark, and the shark follows it through the warm water. "


def text_of(engine: Engine, num_tokens: int) -> str:
    """A text of about so many tokens."""
    return SENTENCE * (num_tokens // len(engine.tokenizer.encode(SENTENCE)))


def answer(engine: Engine, messages: list[dict[str, str]], max_tokens: int) -> list[int]:
    """The token ids of a reply."""
    chunks = engine.generate(messages, GenerationOptions(max_tokens))
    return [token_id for chunk in chunks for token_id in chunk.token_ids]


def stopping(engine: Engine, text: str, num_before: int, wait_s: float) -> float:
    """Seconds from `cancel` to the end of the stream; it is called `wait_s` after `num_before` chunks have come."""
    called = 0.0

    def cancel() -> None:
        nonlocal called
        time.sleep(wait_s)
        called = time.perf_counter()
        engine.cancel()

    engine.reset()
    stream = engine.generate([{"role": "user", "content": text}], GenerationOptions(max_tokens=None))
    for _ in range(num_before):
        next(stream)
    thread = threading.Thread(target=cancel)
    thread.start()
    chunks = list(stream)
    ended = time.perf_counter()
    thread.join()
    if chunks[-1].finish_reason != "cancelled":
        raise SystemExit(f"the reply ended by itself ({chunks[-1].finish_reason}) before it was stopped")
    return ended - called


def second_turn(engine: Engine, messages: list[dict[str, str]]) -> float:
    """Time to first token of the second turn ÷ one pass over its new tokens."""
    engine.reset()
    reply = "".join(chunk.text for chunk in engine.generate(messages, GenerationOptions(24)))
    question = "How long is it, and what does it eat? " * 5
    turn = [*messages, {"role": "assistant", "content": reply}, {"role": "user", "content": question}]
    next(engine.generate(turn, GenerationOptions(8)))
    stats = engine.stats
    target, token_ids = engine._context.target, engine.tokenizer.encode_chat(turn)
    target.rollback(stats.num_cached_tokens)
    started = time.perf_counter()
    target.forward(token_ids[stats.num_cached_tokens :], 1)
    return stats.time_to_first_token_s / (time.perf_counter() - started)


def main() -> None:
    """Runs the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--prompt-tokens", type=int, default=2000)
    parser.add_argument("--turn-tokens", type=int, default=1000)
    arguments = parser.parse_args()
    moments = random.Random(0)
    with pilotfish.load(arguments.bundle, context_length=arguments.prompt_tokens + 1024) as engine:
        other = [{"role": "user", "content": "Name three fish."}]
        expected = answer(engine, other, 24)
        for place, num_tokens, num_before, longest_wait_s in (
            ("prefill", arguments.prompt_tokens, 0, 1.0),
            ("decoding", 100, 2, 0.5),
        ):
            text, seconds, num_equal = text_of(engine, num_tokens) + "Tell a long story about them.", [], 0
            for _ in range(arguments.repeats):
                seconds.append(stopping(engine, text, num_before, moments.uniform(0.05, longest_wait_s)))
                num_equal += answer(engine, other, 24) == expected
            print(
                f"stop in {place}: {np.median(seconds) * 1000:.0f} ms median, {max(seconds) * 1000:.0f} ms at most; "
                f"next answer equal to a fresh one in {num_equal} of {len(seconds)}"
            )
        messages = [{"role": "user", "content": text_of(engine, arguments.turn_tokens)}]
        ratios = [second_turn(engine, messages) for _ in range(arguments.repeats)]
        print(f"second turn: time to first token ÷ pass over the new tokens {np.median(ratios):.2f} (median)")


if __name__ == "__main__":
    main()
