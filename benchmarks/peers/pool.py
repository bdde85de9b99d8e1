"""The peers' processes. Only the one that is asked may run; the others are stopped, and take no processor time."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from protocol import end_with_parent
from setups import Setup

from pilotfish.runtime.memory import free_memory

HERE = Path(__file__).parent
TIMEOUT_S = 900.0
SPARE_BYTES = 2 << 30  # left free beside what a worker's files take
GROWTH = 1.5  # memory of a loaded model as a part of its files: weights are repacked, and caches come on top


class WorkerError(Exception):
    """A worker could not do what it was asked."""


class Worker:
    """A process that answers requests, in a session of its own. What it prints goes to `log`."""

    def __init__(self, command: list[str], num_threads: int, log: TextIO) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": str(num_threads), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, text=True,
            start_new_session=True, preexec_fn=end_with_parent,
        )  # fmt: skip
        self.warm: set[str] = set()  # names of the setups that it has answered for

    def ask(self, request: Mapping[str, Any], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        """The reply; `WorkerError` if there is none. The process runs only meanwhile."""
        self._signal(signal.SIGCONT)
        try:
            reply = self._exchange(json.dumps(request), timeout_s)
        finally:
            self._signal(signal.SIGSTOP)
        if "error" in reply:
            raise WorkerError(reply["error"])
        return reply

    def close(self) -> None:
        """Ends the process, with what it started; idempotent."""
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _exchange(self, line: str, timeout_s: float) -> dict[str, Any]:
        replies, requests = self._process.stdout, self._process.stdin
        assert replies is not None  # both are pipes
        assert requests is not None
        try:
            requests.write(line + "\n")
            requests.flush()
        except BrokenPipeError as error:
            raise WorkerError("it has ended; its log says more") from error
        if not select.select([replies], [], [], timeout_s)[0]:
            raise WorkerError(f"no reply within {timeout_s:.0f} s")
        reply = replies.readline()
        if not reply:
            raise WorkerError(f"it ended with status {self._process.wait()}; its log says more")
        found: dict[str, Any] = json.loads(reply)
        return found

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


class Pool:
    """Starts workers when they are needed, and ends the least recently asked when memory is short. Close it."""

    def __init__(
        self, environments: Path, context_length: int, num_threads: int, log: TextIO,
        free_bytes: Callable[[], int | None] = free_memory,
    ) -> None:  # fmt: skip
        self._environments, self._log = environments, log
        self._context_length, self._threads = context_length, num_threads
        self._free_bytes = free_bytes
        self._workers: dict[tuple[str, str], Worker] = {}  # the most recently asked last
        self.versions: dict[str, dict[str, str]] = {}

    def answer(self, setup: Setup, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of a setup; before its first in this process, it answers a few tokens unseen."""
        worker = self._worker(setup)
        request = {**request, "do": "generate", "draft": setup.draft}
        if setup.name not in worker.warm:
            worker.ask(request | {"max_tokens": min(request["max_tokens"], 16)})
            worker.warm.add(setup.name)
        return worker.ask(request)

    def logits(self, setup: Setup, token_ids: list[int], path: Path) -> None:
        """Writes the logits of a setup's target to a file."""
        self._worker(setup).ask({"do": "logits", "token_ids": token_ids, "path": str(path)})

    def close(self) -> None:
        """Ends all workers."""
        while self._workers:
            self._end_oldest()

    def drop(self, setup: Setup) -> None:
        """Ends the worker of a setup that failed."""
        worker = self._workers.pop(setup.load, None)
        if worker is not None:
            worker.close()

    def _worker(self, setup: Setup) -> Worker:
        worker = self._workers.pop(setup.load, None) or self._started(setup)
        self._workers[setup.load] = worker
        return worker

    def _started(self, setup: Setup) -> Worker:
        needed = int(GROWTH * sum(map(size_of, map(Path, setup.peer.paths.values())))) + SPARE_BYTES
        while self._workers and (self._free_bytes() or needed) < needed:
            self._end_oldest()
        peer = setup.peer
        python = self._environments / peer.environment / "bin" / "python" if peer.environment else Path(sys.executable)
        worker = Worker([str(python), str(HERE / f"worker_{peer.worker}.py")], self._threads, self._log)
        load = {"do": "load", "paths": dict(peer.paths), "draft": setup.load[1], "threads": self._threads}
        try:
            reply = worker.ask(load | {"context_length": self._context_length})
        except BaseException:
            worker.close()
            raise
        self.versions[peer.name] = reply["versions"]
        return worker

    def _end_oldest(self) -> None:
        self._workers.pop(next(iter(self._workers))).close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
