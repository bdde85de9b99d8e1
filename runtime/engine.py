"""Loads a bundle and generates text from it: the one place where all parts of the runtime meet."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from pilotfish.runtime.bundle import Bundle, ModelEntry, load_bundle
from pilotfish.runtime.cache_file import restore_caches, save_caches
from pilotfish.runtime.calibration import SAMPLE, Calibration, calibrate, keep_calibration, kept_calibration
from pilotfish.runtime.context import Context
from pilotfish.runtime.controller import Controller, Fixed, Policy
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.cascade import CascadeDrafter
from pilotfish.runtime.drafters.levels import Drafts
from pilotfish.runtime.drafters.lookup import LookupDrafter
from pilotfish.runtime.drafters.proposal import Drafter, ReadingDrafter
from pilotfish.runtime.drafters.suffix import SuffixDrafter
from pilotfish.runtime.errors import Cancelled, ContextOverflowError, OptionError
from pilotfish.runtime.fit import ModelMemory, memory_of, require_memory
from pilotfish.runtime.generation import Chunk, GenerationOptions
from pilotfish.runtime.grammar import GrammarCompiler
from pilotfish.runtime.metrics import Stats
from pilotfish.runtime.plan import plan_for, require_cuda
from pilotfish.runtime.sampling import Sampler
from pilotfish.runtime.session import watching
from pilotfish.runtime.setup import Setup
from pilotfish.runtime.stream import Stream
from pilotfish.runtime.tokenizer import Message, Tokenizer
from pilotfish.runtime.warm_up import warm_up

DEFAULT_CONTEXT_LENGTH = 4096


class Engine:
    """A loaded bundle with its caches, which stay filled between calls so that a conversation is not read twice.

    One generation runs at a time: a new one ends the one before. Only `cancel` may be called from another thread.
    """

    def __init__(
        self, bundle: Bundle, *, device: str = "cpu", draft_device: str | None = None,
        context_length: int | None = None, num_threads: int | None = None, num_draft_threads: int | None = None,
        exact: bool = True, remembers: bool = False, cancelled: threading.Event | None = None,
        cuda_graphs: bool = False,
    ) -> None:  # fmt: skip
        """See `load`."""
        manifest = bundle.manifest
        self.bundle = bundle
        self.tokenizer = Tokenizer(bundle)
        self.context_length = _context_length(manifest.target, context_length)
        draft_device, num_draft_threads = draft_device or device, num_draft_threads or num_threads
        self._setup = Setup(
            manifest, device, draft_device, num_threads, num_draft_threads, exact, self.context_length, cuda_graphs
        )  # fmt: skip
        self._vocab_size = manifest.vocab_size
        self._suffix = SuffixDrafter(self._vocab_size, remembers=remembers)
        self._grammars = GrammarCompiler(self.tokenizer, self._vocab_size)
        self._stream: Stream | None = None
        self._running: Generator[Chunk, None, None] | None = None
        self._closed = False

        def decoder(model: ModelEntry, where: str, context_length: int, threads: int | None) -> Decoder:
            return Decoder(
                model, bundle.path / model.graph, device=where, context_length=context_length,
                num_threads=threads, cancelled=cancelled, plan=plan_for(where, cuda_graphs=cuda_graphs),
            )  # fmt: skip

        devices = {role: device if role == "target" else draft_device for role in manifest.models}
        if cuda_graphs:
            require_cuda(devices.values())
        require_memory(manifest, devices, self.context_length)
        self._context = Context(decoder(manifest.target, device, self.context_length, num_threads))
        try:
            for draft in manifest.drafts:
                context = manifest.context_of(draft, self.context_length)
                self._context.drafts.append(decoder(draft, draft_device, context, num_draft_threads))
            self._drafts = Drafts(bundle, self.tokenizer, self._context.drafts)
            cancelled = cancelled or threading.Event()
            with watching(cancelled, self._context.cancel):
                for each in self._context.decoders.values():
                    warm_up(each)
                self._calibrate(kept_calibration(self._setup.of_costs))
            if cancelled.is_set():
                raise Cancelled(f"loading {bundle.path} was cancelled")
        except BaseException:
            self.close()
            raise

    @property
    def memory(self) -> Mapping[str, ModelMemory]:
        """What each model takes, by role; what ONNX Runtime works with comes on top."""
        devices = {role: decoder.device for role, decoder in self._context.decoders.items()}
        return memory_of(self.bundle.manifest, devices, self.context_length)

    def calibrate(self) -> Calibration:
        """Measures again what passes cost on this device, keeps it for later loads, and returns it.

        For when the first load fell into a busy moment. Ends a running generation and empties the caches.
        """
        self.reset()
        self._calibrate(None)
        return self.calibration

    def _calibrate(self, kept: Calibration | None) -> None:
        """Takes what was measured here before, or measures it now; drafters and the controller begin anew."""
        context = self._context
        if kept is None:
            kept = calibrate(context.target, self._drafts.levels(context.target), SAMPLE, exact=self._setup.exact)
            keep_calibration(self._setup.of_costs, kept)
        context.target.exact_widths = kept.exact_widths if self._setup.exact else ()
        context.near_tie_margin = kept.near_tie_margin
        context.max_width = kept.max_width
        self.calibration = kept
        model = self._drafts.nested(kept.drafts)
        self._controller = Controller(
            kept.target_costs, kept.drafts[0].costs if kept.drafts else None, self._suffix, model,
            kept.drafts[0].agreement if kept.drafts else None,
        )  # fmt: skip
        self._add_drafters(model)

    def _add_drafters(self, model: ReadingDrafter | None) -> None:
        drafters: dict[str, Drafter] = {"lookup": LookupDrafter(self._vocab_size), "suffix": self._suffix}
        order: list[Drafter] = [self._suffix]
        if model is not None:
            drafters["model"] = model
            order.append(model)
        self._context.drafters = drafters | {"cascade": CascadeDrafter(order, self._vocab_size)}

    @property
    def stats(self) -> Stats:
        """Figures of the latest generation, as far as it has come."""
        return self._stream.stats if self._stream else Stats()

    def generate(
        self, prompt: str | Sequence[Message], options: GenerationOptions | None = None, *, reply: str = ""
    ) -> Iterator[Chunk]:
        """Streams the continuation of a text, or the reply to a conversation, as it is found.

        A text is continued as it stands; messages, each with `role` and `content`, go through the chat template. What
        is there of the `reply` already is continued. Wrong input raises here, before the first chunk:
        `ContextOverflowError`, `TemplateError`, `OptionError`, `GrammarError`. Leaving the loop early is fine.
        """
        if self._closed:
            raise OptionError("this engine is closed; load the bundle again")
        options = options or GenerationOptions()
        if isinstance(prompt, str):
            token_ids = self.tokenizer.encode(prompt + reply)
        else:
            token_ids = self.tokenizer.encode_chat(prompt, reply)
        if not token_ids:
            raise OptionError("the prompt is empty; give at least one token")
        if len(token_ids) >= self.context_length:
            raise ContextOverflowError(
                f"the prompt is {len(token_ids)} tokens long and the context holds {self.context_length}; shorten the "
                f"prompt, or load with a longer context (the model allows {self.bundle.manifest.target.max_positions})"
            )
        policy = self._policy(options)
        sampler = self._sampler(options, len(token_ids))
        self._end_running()
        self._context.resume()
        self._stream = Stream(self._context, self.tokenizer, token_ids, options, sampler, policy)
        self._running = self._stream.chunks()
        return self._running

    def cancel(self) -> None:
        """Ends the running generation within one forward, from any thread. Its last chunk says `cancelled`."""
        self._context.cancel()

    def reset(self) -> None:
        """Forgets everything that the caches hold, so that the next generation starts cold."""
        self._end_running()
        self._context.begin([])

    def save_cache(self, path: str | Path) -> None:
        """Writes what the caches hold to a file, so that a long prompt need not be read again by a later process.

        Prompts of later generations that begin with the same tokens are then read from there. `StorageError` if the
        file cannot be written.
        """
        self._end_running()
        save_caches(Path(path), self._setup.of_caches, self._context.committed, self._saved_decoders())

    def restore_cache(self, path: str | Path) -> None:
        """Fills the caches from a file of `save_cache`; `CacheFileError` if it is damaged or made by another setup."""
        self._end_running()
        decoders = self._saved_decoders()
        self._context.committed = restore_caches(Path(path), self._setup.of_caches, decoders)
        self._suffix.rollback(0)  # what it has read is another text
        if self.bundle.manifest.draft_tokenizer is not None:
            self._context.drafters["model"].rollback(0)

    def close(self) -> None:
        """Frees the models; idempotent. A closed engine generates nothing any more."""
        self._end_running()
        self._closed = True
        self._context.close()

    def _saved_decoders(self) -> dict[str, Decoder]:
        """Those whose caches hold committed tokens; drafts with ids of their own read the text again."""
        decoders = self._context.decoders
        return decoders if self.bundle.manifest.draft_tokenizer is None else {"target": decoders["target"]}

    def _sampler(self, options: GenerationOptions, num_prompt_tokens: int) -> Sampler:
        params, noise_seed = options.sampling, None
        if params.acceptance_rule == "seed":
            noise_seed = params.seed if params.seed is not None else int(np.random.default_rng().integers(1 << 62))
        constraint = self._grammars.constraint(options.grammar) if options.grammar else None
        return Sampler(
            params, num_prompt_tokens, self.tokenizer.end_token_ids, noise_seed, constraint,
            needs_whole_rows=options.logprobs is not None,
        )  # fmt: skip

    def _policy(self, options: GenerationOptions) -> Policy:
        most = self._context.max_width - 1
        if options.num_draft_tokens > most:
            raise OptionError(f"num_draft_tokens is {options.num_draft_tokens}; here it must lie between 1 and {most}")
        if options.draft == "auto":
            return self._controller
        if options.draft == "off":
            return Fixed(None, 0, "off: it is switched off")
        if options.draft == "model" and "model" not in self._context.drafters:
            raise OptionError("this bundle has no draft model; use draft lookup, or export it again with --draft")
        drafter, number = self._context.drafters[options.draft], options.num_draft_tokens
        return Fixed(drafter, number, f"on: {options.draft}, {number} tokens a round, as the caller asked")

    def _end_running(self) -> None:
        if self._running is not None:
            self._running.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(
    path: str | Path, *, device: str = "cpu", draft_device: str | None = None,
    context_length: int | None = None, num_threads: int | None = None, num_draft_threads: int | None = None,
    exact: bool = True, remembers: bool = False, cancelled: threading.Event | None = None, cuda_graphs: bool = False,
) -> Engine:  # fmt: skip
    """Loads a bundle folder.

    `device` is `cpu`, `cuda` or `tensorrt`, for the draft too unless `draft_device` differs; one that is not there is a
    `DeviceError`, never another device. `context_length` is in tokens (default: the model's, at most 4096) and sets the
    memory of the caches. `num_threads` None means all physical cores, `num_draft_threads` None as many for the draft.
    With `exact` greedy output is the same with and without speculation, token for token; without it a near-tie may fall
    the other way, and `stats` counts those. With `remembers` the drafter that copies also copies from conversations
    that were left. Costs and exact widths are measured at the first load on a device, and kept in the user's cache
    folder.
    With `cuda_graphs` passes of models on `cuda` are recorded once for each shape and played again; `DeviceError` if
    a model's cannot be. Setting `cancelled` from another thread ends the loading with the error `Cancelled`.
    """
    return Engine(
        load_bundle(Path(path)), device=device, draft_device=draft_device, context_length=context_length,
        num_threads=num_threads, num_draft_threads=num_draft_threads, exact=exact, remembers=remembers,
        cancelled=cancelled, cuda_graphs=cuda_graphs,
    )  # fmt: skip


def _context_length(target: ModelEntry, wanted: int | None) -> int:
    if wanted is None:
        return min(target.max_positions, DEFAULT_CONTEXT_LENGTH)
    if not 2 <= wanted <= target.max_positions:
        raise OptionError(f"context length {wanted} is not between 2 and the model's {target.max_positions}")
    return wanted
