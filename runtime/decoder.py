"""One model on one device: token ids in, rows of logits out, with a cache that stays where the device is.

Axis letters: `N` tokens of a forward, `R` rows of logits asked for, `C` columns of a row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.binding import Binding, Bindings
from pilotfish.runtime.bundle import ModelEntry
from pilotfish.runtime.bus import Bus
from pilotfish.runtime.chain import MOST_PENDING, Chain
from pilotfish.runtime.errors import Cancelled, DeviceError
from pilotfish.runtime.filters import Logits
from pilotfish.runtime.kv_cache import KvCache
from pilotfish.runtime.plan import Plan, padded, plan_for
from pilotfish.runtime.rows import Rows, read_head_ids
from pilotfish.runtime.session import open_session

MAX_WIDTH = 256  # tokens of one forward; bounds the memory that ONNX Runtime's arena keeps


class Decoder:
    """A session, what is bound to it, and its cache.

    A forward of no more rows than the last of `exact_widths`, ascending, is padded to one of them with dummy tokens
    behind the real ones, which causal attention keeps out of their results and which the cache then forgets. See
    `exactness.py`.
    `head_ids` are the token ids of the columns of its logits, ascending int64 (C,), if its head was trimmed; else it is
    None, and there is a column for each of `vocab_size` ids.
    """

    def __init__(
        self, model: ModelEntry, graph_path: Path, *, device: str, context_length: int,
        num_threads: int | None = None, cancelled: threading.Event | None = None,
        reads_heads: bool | None = None, plan: Plan | None = None, hands_ids_on: bool | None = None,
    ) -> None:  # fmt: skip
        """Opens the graph and allocates caches for `context_length` tokens and the widest padding.

        `reads_heads` says whether rows of logits stay on the device where their largest are enough; by default they do
        but on the CPU, where whole rows cost nothing to send and heads something to compute. `plan` says which shapes
        passes have, by default what suits the device. `hands_ids_on` lets `continue_greedily` be called if the graph
        has what it needs, by default but on the CPU.
        `cancelled`, set from another thread, ends the loading with the error `Cancelled`.
        """
        if model.cache_dtype == "bfloat16" and device == "cpu":
            raise DeviceError(
                f"{graph_path} computes in bfloat16, which ONNX Runtime does not on the CPU; "
                "load it with --device cuda, or export with fp16 instead of bf16"
            )
        self.device = device
        self.exact_widths: Sequence[int] = ()
        self.run_s = 0.0
        self.vocab_size = model.vocab_size
        self.head_ids = (
            read_head_ids(graph_path.with_name(model.head_ids), model.vocab_size) if model.head_ids else None
        )
        self._num_columns = model.vocab_size if self.head_ids is None else len(self.head_ids)
        self.plan = plan_for(device) if plan is None else plan
        if reads_heads is None:
            reads_heads = device != "cpu"
        if hands_ids_on is None:
            hands_ids_on = device != "cpu"
        if (reads_heads or hands_ids_on) and model.heads is not None:
            graph_path = graph_path.with_name(model.heads)
        self._session = open_session(
            graph_path, device, num_threads, cancelled, cuda_graphs=self.plan.records
        )  # fmt: skip
        self._bus = Bus(device)
        self.cache = KvCache(model, context_length + MAX_WIDTH, self._bus)
        self._bindings = Bindings(
            self._session, model, self.cache, self._bus, self.plan, num_columns=self._num_columns,
            reads_heads=reads_heads,
        )  # fmt: skip
        self._chain = Chain(self._bindings, self._bus, model.tensors.next_id)
        given = {output.name for output in self._session.get_outputs()}
        self._hands_ids_on = hands_ids_on and model.tensors.next_id in given
        self.log_sum_exp: NDArray[np.float32] | None = None

    @property
    def length(self) -> int:
        """Tokens in the cache; the next position."""
        return self.cache.length

    @property
    def context_length(self) -> int:
        """Tokens that the cache can hold."""
        return self.cache.capacity - MAX_WIDTH

    @property
    def _recorded_total(self) -> int:
        """The total length in recorded passes: no less than any true one, no more than the graph has positions for."""
        return self.context_length + self.plan.widths[-1]

    def padded(self, number: int) -> int:
        """How many tokens, or rows, a forward of `number` of them runs."""
        return self.plan.padded(padded(number, self.exact_widths))

    def rollback(self, length: int) -> None:
        """Makes the cache hold exactly its first `length` tokens. Copies nothing."""
        self.cache.rollback(length)

    @property
    def num_host_bytes(self) -> int:
        """Bytes that came from the device to the host so far."""
        return self._bus.num_to_host

    @property
    def num_device_bytes(self) -> int:
        """Bytes that went from the host to the device so far."""
        return self._bus.num_to_device

    def forward(self, token_ids: Sequence[int], num_logits: int, num_largest: int = 0) -> Logits:
        """Appends tokens to the cache and returns the logits after the last `num_logits` of them.

        Returns float32 (num_logits, C): a view that the next forward overwrites. If `num_largest` is not 0, only so
        many logits of a row are needed, its largest; the others may be −inf. `log_sum_exp` (num_logits,) then is
        log Σ exp over each whole row, or None if the device did not compute it. More than `MAX_WIDTH` tokens run in
        several passes. On any error, `Cancelled` included, the cache keeps the whole passes only.
        """
        if not 0 <= num_logits <= min(len(token_ids), MAX_WIDTH):
            raise ValueError(f"{num_logits} rows of logits of {len(token_ids)} tokens were asked for")
        if self.length + len(token_ids) > self.context_length:
            raise ValueError(f"{len(token_ids)} tokens after {self.length} exceed the context of {self.context_length}")
        if not token_ids:
            return np.zeros((0, self._num_columns), np.float32)
        done = 0
        while (left := len(token_ids) - done) > MAX_WIDTH:
            width = min(MAX_WIDTH, left - num_logits)  # the asked-for rows stay together in the last pass
            self._run(token_ids[done : done + width], 0)
            done += width
        rows, asked = self._run(token_ids[done:], num_logits)
        if not num_logits:
            return np.zeros((0, self._num_columns), np.float32)
        logits, self.log_sum_exp = rows.read(asked, num_largest)
        return logits

    @property
    def hands_ids_on(self) -> bool:
        """Whether `continue_greedily` can be called."""
        return self._hands_ids_on and self.padded(1) == 1

    def continue_greedily(self, token_ids: Sequence[int], num_tokens: int) -> list[int]:
        """Appends tokens, and after them the most likely ones; returns the `num_tokens` ids, of which the last is not
        appended any more.

        Each pass reads on the device what the one before has written; the ids come to the host at the end, and no row
        of logits does. On any error, `Cancelled` included, the cache keeps the whole passes only.
        """
        if not (token_ids and num_tokens >= 1):
            raise ValueError(f"{num_tokens} tokens after {len(token_ids)} new ones were asked for")
        if self.length + len(token_ids) + num_tokens - 1 > self.context_length:
            raise ValueError(f"{num_tokens} tokens after {self.length} exceed the context of {self.context_length}")
        if len(token_ids) > MOST_PENDING:
            self.forward(token_ids[:-1], 0)
            token_ids = token_ids[-1:]
        width = self.plan.padded(len(token_ids))
        binding = self._chain.first(width)
        self._write_ids(binding, token_ids, width)
        self._bus.write(binding.logits_rows, np.array([len(token_ids) - 1]))
        self._play(binding, width, len(token_ids))
        for place in range(1, num_tokens):
            self._play(self._chain.later(place), 1, 1)
        return self._chain.read(num_tokens)

    def cancel(self) -> None:
        """Ends the forward that is running, from another thread, and every later one until `resume`."""
        self._bindings.is_cancelled = True

    def resume(self) -> None:
        """Allows forwards again after `cancel`."""
        self._bindings.is_cancelled = False

    def _run(self, token_ids: Sequence[int], num_logits: int) -> tuple[Rows, slice]:
        """One pass; returns the computed rows of logits, and where among them the asked-for ones are."""
        num_tokens = len(token_ids)
        width = self.padded(num_tokens)
        # The head is a matrix product too, so its rows are padded like the forward's.
        num_rows = self.padded(num_logits)
        binding, rows = self._bindings.of(width, num_rows)
        first = min(num_tokens - num_logits, width - num_rows)
        self._write_ids(binding, token_ids, width)
        self._bus.write(binding.logits_rows, np.arange(first, first + num_rows))
        self._play(binding, width, num_tokens)
        skipped = num_tokens - num_logits - first
        return rows, slice(skipped, skipped + num_logits)

    def _write_ids(self, binding: Binding, token_ids: Sequence[int], width: int) -> None:
        padded = [*token_ids, *[token_ids[-1]] * (width - len(token_ids))]
        self._bus.write(binding.ids, np.array([padded], np.int64))

    def _play(self, binding: Binding, width: int, num_tokens: int) -> None:
        """Appends the first `num_tokens` of the `width` ids that a binding holds to the cache."""
        if self._bindings.is_cancelled:  # a recorded pass would not look
            raise Cancelled("the forward was cancelled")
        total = self.length + width
        self._bus.write(self._bindings.seqlens_k, np.array([total - 1], np.int32))
        self._bindings.total[...] = self._recorded_total if self.plan.is_recorded(width) else total
        started = time.perf_counter()
        try:
            self._session.run_with_iobinding(binding.io, binding.run_options)
        except Exception as error:  # ONNX Runtime raises a different class for each status code
            if self._bindings.is_cancelled:
                raise Cancelled("the forward was cancelled") from error
            raise
        finally:
            self.run_s += time.perf_counter() - started
        self.cache.length += num_tokens

    def close(self) -> None:
        """Frees the session and the caches; idempotent."""
        self._bindings.clear()
        self._chain.clear()
        self._session = None
        self.cache.buffers.clear()

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
