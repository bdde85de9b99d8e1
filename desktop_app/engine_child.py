"""The engine's process: `python -m pilotfish.desktop_app.engine_child` takes requests on standard input.

Three threads share an engine. One reads the requests, so that a stop is heard at once; one loads and generates; one
counts. Lines go out on what was standard output; whatever libraries print goes to standard error, whose last lines the
window shows if the process dies.
"""

from __future__ import annotations

import faulthandler
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from pilotfish.desktop_app.errors import FormatError
from pilotfish.desktop_app.outbox import Outbox
from pilotfish.desktop_app.overflow import Fitted, fit, prompt_limit
from pilotfish.desktop_app.protocol import (
    BundleFacts,
    Count,
    Counted,
    Done,
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
    request_from,
)
from pilotfish.desktop_app.remedies import failure
from pilotfish.runtime import Cancelled, ContextOverflowError, Engine, OptionError, Stats, load

Loader = Callable[..., Engine]

NO_BUNDLE = "no model is loaded; choose one"


class EngineChild:
    """Does what requests ask and puts what comes of it into an outbox."""

    def __init__(self, outbox: Outbox, loader: Loader = load) -> None:
        """`loader` has the parameters of `pilotfish.runtime.load`."""
        self._outbox = outbox
        self._loader = loader
        self._engine: Engine | None = None
        self._jobs: queue.SimpleQueue[Load | Generate | Unload] = queue.SimpleQueue()
        self._counts: queue.SimpleQueue[Count] = queue.SimpleQueue()
        self._stopped_id = -1  # loads and generations up to this id are given up
        self._running_id: int | None = None
        self._cancelled = threading.Event()  # of the load that runs

    def serve(self, lines: Iterable[bytes]) -> None:
        """Takes requests until one of them is to quit, or the window is gone."""
        for name, work in (("jobs", self._do_jobs), ("counts", self._do_counts)):
            threading.Thread(target=work, name=name, daemon=True).start()
        self._outbox.put(Ready())
        for line in lines:
            try:
                request = request_from(line)
            except (FormatError, OptionError) as error:
                self._outbox.put(failure(-1, error))
                continue
            if isinstance(request, Quit):
                break
            if isinstance(request, Stop):
                self._stop(request.request_id)
            elif isinstance(request, Count):
                self._counts.put(request)
            else:
                self._jobs.put(request)

    def _stop(self, request_id: int) -> None:
        self._stopped_id = max(self._stopped_id, request_id)
        if self._running_id is not None and self._running_id <= self._stopped_id:
            self._cancelled.set()
            if self._engine is not None:
                self._engine.cancel()

    def _do_jobs(self) -> None:
        while True:
            job = self._jobs.get()
            if isinstance(job, Unload):
                self._unload()
                self._outbox.put(Unloaded())
                continue
            self._cancelled = threading.Event()
            self._running_id = job.request_id
            try:
                if job.request_id <= self._stopped_id:
                    raise Cancelled("it was given up before it began")
                self._load(job) if isinstance(job, Load) else self._generate(job)
            except Cancelled:
                self._outbox.put(Stopped(job.request_id))
            except Exception as error:  # whatever it is, the window must hear of it
                self._outbox.put(failure(job.request_id, error))
            finally:
                self._running_id = None

    def _load(self, request: Load) -> None:
        self._unload()  # two at once may not fit the memory
        self._outbox.put(Loading(request.request_id, request.bundle))
        started = time.perf_counter()
        self._engine = self._loader(
            request.bundle, device=request.device, draft_device=request.draft_device,
            context_length=request.context_length, num_threads=request.num_threads, exact=request.exact,
            cuda_graphs=request.cuda_graphs, cancelled=self._cancelled,
        )  # fmt: skip
        facts = facts_of(self._engine, request.bundle, time.perf_counter() - started)
        self._outbox.put(Loaded(request.request_id, facts))

    def _unload(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _generate(self, request: Generate) -> None:
        engine = self._loaded_engine()
        fitted = fitted_to(engine, request)
        stream = engine.generate(fitted.messages, request.options.generation_options(), reply=request.reply)
        if request.request_id <= self._stopped_id:  # a stop from before `generate` has gone by unheard
            engine.cancel()
        finish_reason = ""
        for chunk in stream:
            part = Part(chunk.origin, chunk.text, len(chunk.token_ids))
            self._outbox.put(Piece(request.request_id, (part,), progress_of(engine.stats)))
            finish_reason = chunk.finish_reason or finish_reason
        self._outbox.put(Done(request.request_id, finish_reason, engine.stats.to_dict(), fitted.num_dropped))

    def _do_counts(self) -> None:
        while True:
            request = self._counts.get()
            while not self._counts.empty():  # only the newest is of interest while somebody types
                request = self._counts.get()
            try:
                self._outbox.put(counted(self._loaded_engine(), request))
            except Exception as error:  # whatever it is, the window must hear of it
                self._outbox.put(failure(request.request_id, error))

    def _loaded_engine(self) -> Engine:
        if self._engine is None:
            raise OptionError(NO_BUNDLE)
        return self._engine


def fitted_to(engine: Engine, request: Generate | Count) -> Fitted:
    """The messages that the engine is given; `ContextOverflowError` if the request's policy forbids to shorten them."""
    reply = request.reply if isinstance(request, Generate) else ""
    limit = prompt_limit(engine.context_length, request.options.room)
    return fit(
        request.messages, limit, request.options.overflow,
        lambda messages: len(engine.tokenizer.encode_chat(messages, reply)),
    )  # fmt: skip


def counted(engine: Engine, request: Count) -> Counted:
    """How much of the context the messages of a request take."""
    limit = prompt_limit(engine.context_length, request.options.room)
    try:
        fitted = fitted_to(engine, request)
    except ContextOverflowError as error:
        num_tokens = len(engine.tokenizer.encode_chat(request.messages))
        return Counted(request.request_id, num_tokens, limit, engine.context_length, 0, str(error))
    return Counted(
        request.request_id, fitted.num_tokens, limit, engine.context_length, fitted.num_dropped, fault=""
    )  # fmt: skip


def facts_of(engine: Engine, bundle: str, load_s: float) -> BundleFacts:
    """What the window shows of a loaded bundle."""
    manifest = engine.bundle.manifest
    names = {role: model.source.get("name") or model.family for role, model in manifest.models.items()}
    return BundleFacts(
        path=bundle,
        name=Path(bundle).name,
        target=names["target"],
        target_recipe=manifest.target.recipe,
        draft=names.get("draft"),
        draft_recipe=manifest.draft.recipe if manifest.draft else None,
        context_length=engine.context_length,
        max_context_length=manifest.target.max_positions,
        num_bytes=sum(file.size for file in manifest.files.values()),
        load_s=load_s,
    )


def progress_of(stats: Stats) -> Progress:
    """The figures that change while a reply is written."""
    return Progress(
        stats.num_tokens, stats.num_rounds, stats.num_drafted, stats.num_accepted, stats.tokens_per_s, stats.speed_up,
        stats.speculation,
    )  # fmt: skip


def main(loader: Loader = load) -> None:
    """Serves the window on the other end of standard input and output; never returns."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the window to answer
    lines_out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def write(line: bytes) -> None:
        lines_out.write(line)
        lines_out.flush()

    outbox = Outbox(write)
    EngineChild(outbox, loader).serve(iter(sys.stdin.buffer.readline, b""))
    outbox.close()
    os._exit(0)  # a thread may be deep inside ONNX Runtime; nothing here needs an orderly end


if __name__ == "__main__":
    main()
