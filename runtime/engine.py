"""Loads a bundle and generates text from it: the one place where all parts of the runtime meet."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pilotfish.runtime.bundle import Bundle, ModelEntry, load_bundle
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.lookup import LookupDrafter
from pilotfish.runtime.drafters.model import ModelDrafter
from pilotfish.runtime.drafters.proposal import Drafter
from pilotfish.runtime.errors import ContextOverflowError, GenerationCancelled, OptionError
from pilotfish.runtime.exactness import exact_width
from pilotfish.runtime.generation import MAX_DRAFT_TOKENS, Chunk, GenerationOptions
from pilotfish.runtime.metrics import Stats
from pilotfish.runtime.output import Output
from pilotfish.runtime.rounds import Limits, Round, play_round
from pilotfish.runtime.sampling import Sampler
from pilotfish.runtime.tokenizer import Message, Tokenizer

DEFAULT_CONTEXT_LENGTH = 4096


class Engine:
    """A loaded bundle with its caches, which stay filled between calls so that a conversation is not read twice.

    One generation runs at a time: a new one ends the one before. Only `cancel` may be called from another thread.
    """

    def __init__(
        self, bundle: Bundle, *, device: str = "cpu", draft_device: str | None = None,
        context_length: int | None = None, num_threads: int | None = None, exact: bool = True,
    ) -> None:  # fmt: skip
        """See `load`."""
        manifest = bundle.manifest
        self.bundle = bundle
        self.stats = Stats()
        self.tokenizer = Tokenizer(bundle)
        self.context_length = _context_length(manifest.target, context_length)
        self._vocab_size = min(manifest.tokenizer.num_tokens, manifest.target.vocab_size)
        self._committed: list[int] = []
        self._cancelled = False
        self._closed = False
        self._running: Generator[Chunk, None, None] | None = None

        def decoder(model: ModelEntry, where: str, context_length: int, spin: bool) -> Decoder:
            return Decoder(
                model, bundle.path / model.graph, device=where, context_length=context_length,
                num_threads=num_threads, spin=spin,
            )  # fmt: skip

        # Two sessions whose idle threads both wait busily slow each other where cores are few.
        self._target = decoder(manifest.target, device, self.context_length, spin=manifest.draft is None)
        self._draft: Decoder | None = None
        self._drafters: dict[str, Drafter] = {"lookup": LookupDrafter(self._vocab_size)}
        if manifest.draft is not None:
            context = min(self.context_length, manifest.draft.max_positions)
            self._draft = decoder(manifest.draft, draft_device or device, context, spin=True)
            self._drafters["model"] = ModelDrafter(self._draft, self._vocab_size, manifest.masked_draft_ids)
        if exact:
            self._target.min_width = exact_width(self._target, MAX_DRAFT_TOKENS + 1)

    def generate(self, prompt: str | Sequence[Message], options: GenerationOptions | None = None) -> Iterator[Chunk]:
        """Streams the continuation of a text, or the reply to a conversation, as it is found.

        A text is continued as it stands; messages, each with `role` and `content`, go through the chat template. Wrong
        input raises here, before the first chunk: `ContextOverflowError`, `TemplateError`, `OptionError`. When the
        stream ends, `stats` describes it. Leaving the loop early is fine.
        """
        if self._closed:
            raise OptionError("this engine is closed; load the bundle again")
        options = options or GenerationOptions()
        token_ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else self.tokenizer.encode_chat(prompt)
        if not token_ids:
            raise OptionError("the prompt is empty; give at least one token")
        if len(token_ids) >= self.context_length:
            raise ContextOverflowError(
                f"the prompt is {len(token_ids)} tokens long and the context holds {self.context_length}; shorten the "
                f"prompt, or load with a longer context (the model allows {self.bundle.manifest.target.max_positions})"
            )
        drafter, reason = self._choose_drafter(options)
        self._end_running()
        self._resume()
        self._running = self._stream(token_ids, options, drafter, reason)
        return self._running

    def cancel(self) -> None:
        """Ends the running generation within one forward, from any thread. Its last chunk says `cancelled`."""
        self._cancelled = True
        for decoder in self._decoders():
            decoder.cancel()

    def reset(self) -> None:
        """Forgets everything that the caches hold, so that the next generation starts cold."""
        self._end_running()
        self._start([])

    def close(self) -> None:
        """Frees the models; idempotent. A closed engine generates nothing any more."""
        self._end_running()
        self._closed = True
        for decoder in self._decoders():
            decoder.close()

    def _stream(
        self, token_ids: list[int], options: GenerationOptions, drafter: Drafter | None, reason: str
    ) -> Generator[Chunk, None, None]:
        clock = time.perf_counter
        started = clock()
        self._start(token_ids)
        stats = Stats(reason, len(token_ids), self._target.length)
        output = Output(self.tokenizer, options.stop)
        rng = np.random.default_rng()
        wanted = len(token_ids) + (options.max_tokens or self.context_length)
        limits = Limits(min(wanted, self.context_length), output.commit)
        sampler = Sampler(options.sampling, len(token_ids), self.tokenizer.end_token_ids)
        finish_reason = None
        try:
            self._target.forward(token_ids[self._target.length : -1], 0)
            stats = replace(stats, prefill_s=clock() - started)
            while finish_reason is None:
                # The first token is what the user waits for, so the draft reads the prompt after it.
                num_draft_tokens = options.num_draft_tokens if stats.num_rounds else 0
                run_s, round_started = self._run_s(), clock()
                round_ = play_round(
                    self._committed, self._target, drafter, num_draft_tokens, self._vocab_size, limits,
                    sampler, rng,
                )  # fmt: skip
                finish_reason = output.finish_reason or self._finish_reason(limits, wanted)
                chunks = list(_chunks(round_, output, drafter, finish_reason))
                stats = _with_round(stats, round_, clock() - round_started, run_s, self._run_s())
                if stats.num_rounds == 1:
                    stats = replace(stats, time_to_first_token_s=clock() - started)
                self.stats = stats
                yield from chunks
        except GenerationCancelled:
            self.stats = stats
            yield Chunk(output.flush(), (), "target", "cancelled")

    def _finish_reason(self, limits: Limits, wanted: int) -> str | None:
        if len(self._committed) >= limits.max_length:
            return "length" if wanted <= self.context_length else "context"
        return "cancelled" if self._cancelled else None

    def _end_running(self) -> None:
        if self._running is not None:
            self._running.close()

    def _start(self, token_ids: list[int]) -> None:
        """Makes `token_ids` the committed ones and keeps what the caches share with them."""
        shared = 0
        for old, new in zip(self._committed, token_ids[:-1], strict=False):
            if old != new:
                break
            shared += 1
        for decoder in self._decoders():
            decoder.rollback(min(decoder.length, shared))
        self._committed = list(token_ids)

    def _choose_drafter(self, options: GenerationOptions) -> tuple[Drafter | None, str]:
        if options.draft == "off":
            return None, "off: switched off by the caller"
        if options.draft == "model" and "model" not in self._drafters:
            raise OptionError("this bundle has no draft model; use draft lookup, or export it again with --draft")
        name = options.draft if options.draft != "auto" else "model" if self._draft else "lookup"
        return self._drafters[name], f"on: {name}, up to {options.num_draft_tokens} tokens a round"

    def _decoders(self) -> list[Decoder]:
        return [self._target, self._draft] if self._draft else [self._target]

    def _run_s(self) -> tuple[float, float]:
        return self._target.run_s, self._draft.run_s if self._draft else 0.0

    def _resume(self) -> None:
        self._cancelled = False
        for decoder in self._decoders():
            decoder.resume()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(
    path: str | Path, *, device: str = "cpu", draft_device: str | None = None,
    context_length: int | None = None, num_threads: int | None = None, exact: bool = True,
) -> Engine:  # fmt: skip
    """Loads a bundle folder.

    `device` is `cpu`, `cuda` or `tensorrt`, for the draft too unless `draft_device` differs; one that is not there is a
    `DeviceError`, never another device. `context_length` is in tokens (default: the model's, at most 4096) and sets the
    memory of the caches. `num_threads` None means all physical cores. With `exact` greedy output is the same with and
    without speculation, token for token; without it a near-tie may fall the other way.
    """
    return Engine(
        load_bundle(Path(path)), device=device, draft_device=draft_device, context_length=context_length,
        num_threads=num_threads, exact=exact,
    )  # fmt: skip


def _context_length(target: ModelEntry, wanted: int | None) -> int:
    if wanted is None:
        return min(target.max_positions, DEFAULT_CONTEXT_LENGTH)
    if not 2 <= wanted <= target.max_positions:
        raise OptionError(f"context length {wanted} is not between 2 and the model's {target.max_positions}")
    return wanted


def _with_round(
    stats: Stats, round_: Round, decode_s: float, run_s: tuple[float, float], later_run_s: tuple[float, float]
) -> Stats:
    return replace(
        stats,
        num_tokens=stats.num_tokens + len(round_.token_ids),
        num_rounds=stats.num_rounds + 1,
        num_drafted=stats.num_drafted + round_.num_drafted,
        num_accepted=stats.num_accepted + round_.num_accepted,
        decode_s=stats.decode_s + decode_s,
        target_s=stats.target_s + later_run_s[0] - run_s[0],
        draft_s=stats.draft_s + later_run_s[1] - run_s[1],
    )


def _chunks(round_: Round, output: Output, drafter: Drafter | None, finish_reason: str | None) -> Iterator[Chunk]:
    texts, split = output.take(), round_.num_accepted
    parts = [(0, split, drafter.origin if drafter else ""), (split, len(round_.token_ids), "target")]
    parts = [(start, stop, origin) for start, stop, origin in parts if start < stop]
    for start, stop, origin in parts:
        text, token_ids = "".join(texts[start:stop]), round_.token_ids[start:stop]
        if stop < len(round_.token_ids) or finish_reason is None:
            yield Chunk(text, token_ids, origin)
        else:
            text += output.flush()  # which can still complete a stop string
            yield Chunk(text, token_ids, origin, output.finish_reason or finish_reason)
