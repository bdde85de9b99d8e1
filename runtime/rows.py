"""Where a forward's rows of logits go: to the host, or only as much of them as is needed.

Axis letters: `R` rows of logits, `H` largest logits that the graph gives of each, `C` columns of a row: one for each id
of the vocabulary, or for each that a trimmed head has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.bundle import ModelEntry
from pilotfish.runtime.bus import Bus
from pilotfish.runtime.errors import BundleError
from pilotfish.runtime.filters import Logits


class Rows:
    """Where the rows of logits of passes of one shape go.

    With heads the rows stay on the device until whole ones are asked for, and what comes to the host is each row's H
    largest logits, their ids and log Σ exp. `values` are what the graph's outputs, by name, are written into.
    """

    def __init__(self, model: ModelEntry, host: Logits, bus: Bus, *, reads_heads: bool) -> None:
        """`host` float32 (R, C) is the memory that rows are given back in."""
        names, num_rows = model.tensors, len(host)
        self._names, self._host, self._bus = names, host, bus
        self._num_largest = model.num_largest_logits if reads_heads else 0
        if not self._num_largest:
            self.values: dict[str, Any] = {names.logits: bus.over(host)}
            return
        self.values = {
            names.logits: bus.allocate(host.shape, "float32"),
            names.largest_logits: bus.allocate((num_rows, self._num_largest), "float32"),
            names.largest_ids: bus.allocate((num_rows, self._num_largest), "int64"),
            names.log_sum_exp: bus.allocate((num_rows,), "float32"),
        }

    def read(self, rows: slice, num_largest: int) -> tuple[Logits, NDArray[np.float32] | None]:
        """Rows of the latest pass, float32 (rows, C), and log Σ exp of each (rows,), or None if that was not computed.

        If `num_largest` is not 0, only so many logits of a row need to be right, its largest; the others may be −inf.
        The logits are a view that the next pass, of any shape, overwrites.
        """
        values, names, bus = self.values, self._names, self._bus
        if not self._num_largest:
            return bus.read_into(self._host, values[names.logits])[rows], None
        log_sum_exp = bus.read(values[names.log_sum_exp])[rows].copy()
        if not 0 < num_largest <= self._num_largest:
            return bus.read_into(self._host, values[names.logits])[rows], log_sum_exp
        found = self._host[rows]
        found.fill(-np.inf)
        ids, largest = bus.read(values[names.largest_ids]), bus.read(values[names.largest_logits])
        np.put_along_axis(found, ids[rows], largest[rows], axis=1)
        return found, log_sum_exp


def read_head_ids(path: Path, vocab_size: int) -> NDArray[np.int64]:
    """The token ids that a trimmed head has, ascending int64 (C,); `BundleError` if the file does not hold such."""
    try:
        ids = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BundleError(f"{path} cannot be read ({error}); export the bundle again") from error
    if not (ids.dtype == np.int64 and ids.ndim == 1 and len(ids) and (np.diff(ids, prepend=-1) > 0).all()):
        raise BundleError(f"{path} does not hold ascending token ids; export the bundle again")
    if ids[-1] >= vocab_size:
        raise BundleError(f"{path} has the token id {ids[-1]} of a model of {vocab_size}; export the bundle again")
    return ids  # type: ignore[no-any-return]
