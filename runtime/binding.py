"""What a pass reads and writes on its device, bound once for each shape and used again.

Axis letters: `N` tokens of a pass, `R` rows of logits that it computes, `C` columns of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pilotfish.runtime.bundle import ModelEntry
from pilotfish.runtime.bus import Bus
from pilotfish.runtime.filters import Logits
from pilotfish.runtime.kv_cache import KvCache
from pilotfish.runtime.plan import Plan
from pilotfish.runtime.rows import Rows
from pilotfish.runtime.session import import_onnxruntime

MOST_KEPT = 32  # shapes that are not recorded; binding one again takes far less than its pass
KEPT_ROWS = 32  # a shape of more rows is not kept, since they are megabytes


@dataclass(frozen=True, slots=True)
class Binding:
    """A pass of one shape: its inputs `ids` int64 (1, N) and `logits_rows` int64 (R,) as values on the device."""

    ids: Any
    logits_rows: Any
    io: Any
    run_options: Any


class Bindings:
    """The bindings of one session, which share the caches and the lengths `seqlens_k` (1,) and `total` ()."""

    def __init__(
        self, session: Any, model: ModelEntry, cache: KvCache, bus: Bus, plan: Plan, *, num_columns: int,
        reads_heads: bool,
    ) -> None:  # fmt: skip
        """`plan` says which shapes are recorded; `reads_heads` is as for `Decoder`."""
        self._session, self._model, self._cache, self._bus, self._plan = session, model, cache, bus, plan
        self._reads_heads = reads_heads
        self.seqlens_k = bus.allocate((1,), "int32")
        self.total = np.zeros((), np.int32)  # every provider reads it on the host
        # All rows that are kept share this memory, of which the system gives what is used.
        self._host: Logits = np.zeros((KEPT_ROWS, num_columns), np.float32)
        self._kept: dict[tuple[int, int], tuple[Binding, Rows]] = {}
        self._is_cancelled = False
        self._run_options: list[Any] = []
        self._unrecorded = self._new_run_options(-1)

    def of(self, width: int, num_rows: int) -> tuple[Binding, Rows]:
        """The binding for passes of `width` tokens, and where their `num_rows` rows of logits go."""
        shape = (width, num_rows)
        bound = self._kept.pop(shape, None) or self._bind_rows(*shape)
        if num_rows <= KEPT_ROWS:
            self._kept[shape] = bound
            passing = [kept for kept in self._kept if not self._plan.is_recorded(kept[0])]
            if len(passing) > MOST_KEPT:
                del self._kept[passing[0]]  # the one whose last use is longest ago
        return bound

    def bind(self, ids: Any, num_rows: int, outputs: Mapping[str, Any]) -> Binding:
        """A new binding of the tokens `ids` and of values that `outputs` of the graph, by name, are written into."""
        names, io = self._model.tensors, self._session.io_binding()
        for (past, present), buffer in self._cache.buffers.items():
            io.bind_ortvalue_input(past, buffer)
            io.bind_ortvalue_output(present, buffer)
        logits_rows = self._bus.allocate((num_rows,), "int64")
        io.bind_ortvalue_input(names.input_ids, ids)
        io.bind_ortvalue_input(names.logits_rows, logits_rows)
        io.bind_ortvalue_input(names.seqlens_k, self.seqlens_k)
        io.bind_cpu_input(names.total_sequence_length, self.total)
        for name, value in outputs.items():
            io.bind_ortvalue_output(name, value)
        is_recorded = self._plan.is_recorded(ids.shape()[1])
        run_options = self._new_run_options(len(self._run_options)) if is_recorded else self._unrecorded
        return Binding(ids, logits_rows, io, run_options)

    @property
    def num_kept(self) -> int:
        """How many shapes are bound."""
        return len(self._kept)

    @property
    def is_cancelled(self) -> bool:
        """Whether no pass may run."""
        return self._is_cancelled

    @is_cancelled.setter
    def is_cancelled(self, value: bool) -> None:
        self._is_cancelled = value
        for options in self._run_options:
            options.terminate = value

    def clear(self) -> None:
        """Lets go of everything that is bound, and of the session; idempotent."""
        self._kept.clear()
        self._session = None

    def _bind_rows(self, width: int, num_rows: int) -> tuple[Binding, Rows]:
        host = self._host[:num_rows] if num_rows <= KEPT_ROWS else np.zeros((num_rows, self._host.shape[1]), np.float32)
        rows = Rows(self._model, host, self._bus, reads_heads=self._reads_heads)
        return self.bind(self._bus.allocate((1, width), "int64"), num_rows, rows.values), rows

    def _new_run_options(self, graph_id: int) -> Any:
        options = import_onnxruntime().RunOptions()
        if self._plan.records:
            options.add_run_config_entry("gpu_graph_id", str(graph_id))
        self._run_options.append(options)
        options.terminate = self._is_cancelled  # read last: another thread may have set it meanwhile
        return options
