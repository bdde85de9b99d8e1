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
from pilotfish.runtime.errors import BundleError
from pilotfish.runtime.filters import Logits
from pilotfish.runtime.kv_cache import allocate
from pilotfish.runtime.session import import_onnxruntime


class Rows:
    """The rows of the latest forward of one session.

    With heads the rows stay on the device until whole ones are asked for, and what comes to the host is each row's H
    largest logits, their ids and log Σ exp. Without, the rows are written to the host at once. `num_host_bytes` counts
    what has come to the host.
    """

    def __init__(
        self, model: ModelEntry, num_columns: int, binding: Any, device: str, *, reads_heads: bool
    ) -> None:  # fmt: skip
        """Binds outputs to `binding` from the first `resize` on."""
        self.num_host_bytes = 0
        self._names, self._num_columns = model.tensors, num_columns
        self._num_largest = model.num_largest_logits if reads_heads else 0
        self._binding, self._device = binding, device
        self._logits: Logits = np.zeros((0, self._num_columns), np.float32)
        self._largest: Logits = np.zeros((0, self._num_largest), np.float32)
        self._ids: NDArray[np.int64] = np.zeros((0, self._num_largest), np.int64)
        self._log_sum_exp: NDArray[np.float32] = np.zeros(0, np.float32)
        self._bound: list[Any] = []  # what ONNX Runtime writes into must live as long as the binding

    def resize(self, num_rows: int) -> None:
        """Binds the outputs for forwards of so many rows, if the last one had another number."""
        if num_rows == len(self._logits) and self._bound:
            return
        self._logits = np.zeros((num_rows, self._num_columns), np.float32)
        if not self._num_largest:
            self._bound = [self._bind_host(self._names.logits, self._logits)]
            return
        self._largest = np.zeros((num_rows, self._num_largest), np.float32)
        self._ids = np.zeros((num_rows, self._num_largest), np.int64)
        self._log_sum_exp = np.zeros(num_rows, np.float32)
        self._bound = [
            self._bind(self._names.logits, allocate(self._logits.shape, "float32", self._device)),
            self._bind_host(self._names.largest_logits, self._largest),
            self._bind_host(self._names.largest_ids, self._ids),
            self._bind_host(self._names.log_sum_exp, self._log_sum_exp),
        ]

    def read(self, rows: slice, num_largest: int) -> tuple[Logits, NDArray[np.float32] | None]:
        """Rows of the latest forward, float32 (R, C), and log Σ exp of each (R,), or None where it was not computed.

        If `num_largest` is not 0, only so many logits of a row need to be right, its largest; the others may be −inf.
        The arrays are views that the next forward overwrites.
        """
        if not self._num_largest:
            self.num_host_bytes += self._logits.nbytes
            return self._logits[rows], None
        self.num_host_bytes += self._largest.nbytes + self._ids.nbytes + self._log_sum_exp.nbytes
        if not 0 < num_largest <= self._num_largest:
            whole = self._bound[0].numpy()
            self.num_host_bytes += whole.nbytes
            return whole[rows], self._log_sum_exp[rows]
        found = self._logits[rows]
        found.fill(-np.inf)
        np.put_along_axis(found, self._ids[rows], self._largest[rows], axis=1)
        return found, self._log_sum_exp[rows]

    def _bind_host(self, name: str, array: NDArray[Any]) -> Any:
        return self._bind(name, import_onnxruntime().OrtValue.ortvalue_from_numpy(array))

    def _bind(self, name: str, value: Any) -> Any:
        self._binding.bind_ortvalue_output(name, value)
        return value


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
