"""The window's side of the engine: starts its process, sends requests, delivers events, and says why it died.

No method waits for the process. A process that has died is started again only by `start`.
"""

from __future__ import annotations

import itertools
import logging
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pilotfish.desktop_app.errors import EngineGoneError, FormatError
from pilotfish.desktop_app.load_record import LoadRecord
from pilotfish.desktop_app.programs import engine_command
from pilotfish.desktop_app.protocol import (
    Count,
    Done,
    Event,
    Failed,
    Generate,
    Load,
    Loaded,
    Quit,
    Request,
    Stop,
    Stopped,
    Unload,
    event_from,
    to_line,
)
from pilotfish.desktop_app.remedies import UNRESPONSIVE, Died, death
from pilotfish.desktop_app.reply_options import ReplyOptions

NUM_LAST_WORDS = 40  # lines of standard error that are kept
QUIT_TIMEOUT_S = 2.0
NO_WINDOW = getattr(subprocess, "CREATE_NO_WINDOW", 0)  # else Windows opens a terminal for each process
START_AGAIN = "start the engine again"

_logger = logging.getLogger(__name__)


class EngineProcess:
    """A child process with the engine in it. Call it from one thread, the window's.

    `deliver` is called from a thread of this class with each event, in order, and with a `Died` when the process ends
    unasked, after which nothing more comes until `start`. It must hand over and return: in Qt, emit a signal.
    """

    def __init__(
        self, deliver: Callable[[Event | Died], None], command: Sequence[str] | None = None,
        record: LoadRecord | None = None,
    ) -> None:  # fmt: skip
        """Starts nothing yet. `command` is another program that speaks the protocol; `record` notes the loads."""
        self._deliver = deliver
        self._command = list(command or engine_command())
        self._record = record
        self._ids = itertools.count(1)
        self._process: _Running | None = None

    @property
    def is_running(self) -> bool:
        """Whether requests are taken."""
        return self._process is not None and self._process.is_alive

    @property
    def pid(self) -> int | None:
        """The process id, if it runs."""
        return self._process.pid if self._process and self._process.is_alive else None

    def start(self) -> None:
        """Starts the process, if none runs; `EngineGoneError` if the system refuses."""
        if not self.is_running:
            self._process = _Running(self._command, self._deliver, self._record)

    def load(
        self, bundle: Path, *, device: str = "cpu", draft_device: str | None = None, context_length: int | None = None,
        num_threads: int | None = None, exact: bool = True, cuda_graphs: bool = False,
    ) -> int:  # fmt: skip
        """Asks for a bundle; see `pilotfish.runtime.load`. Returns the request's id, as the next two do.

        Each of these raises `EngineGoneError` if the process does not run.
        """
        options = (device, draft_device, context_length, num_threads, exact, cuda_graphs)
        return self._ask(Load(next(self._ids), str(bundle), *options))

    def generate(self, messages: Sequence[Mapping[str, str]], reply: str, options: ReplyOptions) -> int:
        """Asks for the reply to `messages`, or the rest of it."""
        return self._ask(Generate(next(self._ids), tuple(messages), reply, options))

    def count(self, messages: Sequence[Mapping[str, str]], options: ReplyOptions) -> int:
        """Asks how much of the context `messages` take. Of several that wait only the last is answered."""
        return self._ask(Count(next(self._ids), tuple(messages), options))

    def stop(self, request_id: int) -> None:
        """Gives up a load or a generation and those before it; harmless if it has ended."""
        if self.is_running:
            self._send(Stop(request_id))

    def unload(self) -> None:
        """Frees the memory of the bundle that is loaded."""
        self._send(Unload())

    def kill(self) -> None:
        """Ends a process that no longer answers, at once; `deliver` gets a `Died`."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Ends the process and waits for it, at most some seconds; nothing is delivered any more. Idempotent."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _ask(self, request: Load | Generate | Count) -> int:
        self._send(request)
        return request.request_id

    def _send(self, request: Request) -> None:
        if self._process is None or not self._process.is_alive:
            raise EngineGoneError(f"the engine does not run; {START_AGAIN}")
        self._process.send(request)


class _Running:
    """One life of the process, with a thread for each of its pipes."""

    def __init__(
        self, command: Sequence[str], deliver: Callable[[Event | Died], None], record: LoadRecord | None
    ) -> None:
        pipe = subprocess.PIPE
        try:
            self._child = subprocess.Popen(  # noqa: S603 - our own command
                command, stdin=pipe, stdout=pipe, stderr=pipe, creationflags=NO_WINDOW
            )
        except OSError as error:
            raise EngineGoneError(
                f"the engine cannot be started ({error.strerror or error}: {command[0]}); install pilotfish again"
            ) from error
        self.pid = self._child.pid
        self.is_alive = True
        self._deliver, self._record = deliver, record
        self._is_closed = self._is_killed = False
        self._open: dict[int, Load | Generate] = {}  # asked for and not yet ended
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._last_words: deque[str] = deque(maxlen=NUM_LAST_WORDS)
        works = {"events": self._read, "requests": self._write, "words": self._listen}
        self._threads = {name: threading.Thread(target=work, name=name, daemon=True) for name, work in works.items()}
        for thread in self._threads.values():
            thread.start()

    def send(self, request: Request) -> None:
        """Sends a request soon; one to a process that is dying is lost, of which `Died` tells."""
        if isinstance(request, (Load, Generate)):
            self._open[request.request_id] = request
        if isinstance(request, Load) and self._record is not None:
            self._record.begin(request.bundle)
        self._requests.put(request)

    def kill(self) -> None:
        self._is_killed = True
        self._child.kill()

    def close(self) -> None:
        self._is_closed = True
        self._requests.put(Quit())
        try:
            self._child.wait(QUIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
        self._threads["events"].join()
        if self._record is not None:
            for bundle in self._open_loads():
                self._record.fail(bundle)  # given up, not crashed

    def _write(self) -> None:
        assert self._child.stdin is not None  # noqa: S101 - for mypy
        with suppress(OSError), self._child.stdin as pipe:
            while (request := self._requests.get()) is not None:
                pipe.write(to_line(request))
                pipe.flush()

    def _listen(self) -> None:
        assert self._child.stderr is not None  # noqa: S101 - for mypy
        with self._child.stderr as pipe:
            for line in pipe:
                self._last_words.append(line.decode("utf-8", "replace").rstrip())

    def _read(self) -> None:
        assert self._child.stdout is not None  # noqa: S101 - for mypy
        with self._child.stdout as pipe:
            for line in pipe:
                try:
                    event = event_from(line)
                except FormatError as error:
                    _logger.error("the engine's process sent something that is no event: %s", error)
                    self._last_words.append(f"it sent something that is no event: {error}")
                    self._child.kill()
                    break
                self._note(event)
                if not self._is_closed:
                    self._deliver(event)
        self._end()

    def _note(self, event: Event) -> None:
        """Keeps track of what is open, for the record and for the day it dies."""
        if not isinstance(event, (Loaded, Done, Stopped, Failed)):
            return
        request = self._open.pop(event.request_id, None)
        if isinstance(request, Load) and self._record is not None:
            ended = self._record.succeed if isinstance(event, Loaded) else self._record.fail
            ended(request.bundle)

    def _end(self) -> None:
        exit_code = self._child.wait()
        self.is_alive = False
        self._requests.put(None)
        self._threads["words"].join(QUIT_TIMEOUT_S)
        if self._is_closed:
            return
        if self._record is not None:
            for bundle in self._open_loads()[:1]:  # later ones had not begun
                self._record.crash(bundle)
        last_words = "\n".join(self._last_words)
        if self._is_killed:
            self._deliver(replace(UNRESPONSIVE, details=last_words))
        else:
            self._deliver(death(exit_code, self._activity(), last_words))

    def _open_loads(self) -> list[str]:
        return [request.bundle for request in list(self._open.values()) if isinstance(request, Load)]

    def _activity(self) -> str:
        """What the process was at, in words."""
        first = next(iter(list(self._open.values())), None)
        if isinstance(first, Load):
            return f"loading {Path(first.bundle).name}"
        return "writing a reply" if first else ""
