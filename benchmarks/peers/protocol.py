"""What the driver and a peer's worker say to each other: one JSON object a line, every request answered by one reply.

| request | its values | reply |
|---|---|---|
| `load` | `paths` by name, `draft`, `threads`, `context_length` | `versions` |
| `generate` | `prompt_ids`, `text` (the same, as the user wrote it), `max_tokens`, `draft` | an answer, see below |
| `logits` | `token_ids`, `path` to write float32 (N, V) to | nothing |

An answer has `token_ids`, `arrivals`, a pair (seconds since the request, tokens so far) for each time tokens came, and
`num_drafted` and `num_accepted`, null where the peer does not tell. A failure is a reply with `error`. `draft` is
`off`, `model`, `lookup` or, for pilotfish, `auto`. The end of standard input ends a worker.

Runs in every peer's environment, so it needs nothing but Python and NumPy.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

PR_SET_PDEATHSIG = 1
Arrived = Callable[[Sequence[int]], None]
Counts = tuple[int, int] | None  # drafted tokens that were verified, accepted ones


class Model(Protocol):
    """A peer that has loaded its models."""

    versions: Mapping[str, str]

    def generate(self, request: Mapping[str, Any], arrived: Arrived) -> Counts:
        """Answers greedily from cold caches, and calls `arrived` with new token ids as soon as there are any."""

    def logits(self, token_ids: Sequence[int]) -> Any:
        """The target's logits after each token, (N, V)."""


def serve(load: Callable[[Mapping[str, Any]], Model]) -> None:
    """Answers requests until standard input ends. What else is printed goes to standard error."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    model: Model | None = None
    for line in sys.stdin:
        request = json.loads(line)
        reply: dict[str, Any] = {}
        try:
            if request["do"] == "load":
                model = load(request)
                reply = {"versions": dict(model.versions)}
            elif model is None:
                raise RuntimeError(f"{request['do']} was asked before load")
            elif request["do"] == "generate":
                reply = answer(model, request)
            else:
                save(model.logits(request["token_ids"]), request["path"])
        except Exception as error:  # the driver is to know of any
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


def answer(model: Model, request: Mapping[str, Any], clock: Callable[[], float] = time.perf_counter) -> dict[str, Any]:
    """One answer, timed from its request."""
    token_ids: list[int] = []
    arrivals: list[tuple[float, int]] = []

    def arrived(new: Sequence[int]) -> None:
        if len(new):
            token_ids.extend(map(int, new))
            arrivals.append((clock() - started, len(token_ids)))

    started = clock()
    num_drafted, num_accepted = model.generate(request, arrived) or (None, None)
    return {"token_ids": token_ids, "arrivals": arrivals, "num_drafted": num_drafted, "num_accepted": num_accepted}


def end_with_parent() -> None:
    """Called in a new process: Linux is to end it when its parent ends, however that ends. A stopped one would stay."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def save(logits: Any, path: str) -> None:
    """Writes logits, of whatever leading axes of size 1, as float32 (N, V)."""
    import numpy as np

    rows = np.asarray(logits, np.float32)
    np.save(path, rows.reshape(-1, rows.shape[-1]))
