"""Greedy passes in a row, each of which reads on the device the token id that the one before it has written there."""

from __future__ import annotations

from typing import Any

import numpy as np

from pilotfish.runtime.binding import Binding, Bindings
from pilotfish.runtime.bus import Bus

MOST_PENDING = 2  # tokens of the first pass: after full acceptance a draft has so many to read


class Chain:
    """The passes of one session by their places in a row, each bound to the ids before and behind it."""

    def __init__(self, bindings: Bindings, bus: Bus, output: str) -> None:
        """`output` is the graph's output of the most likely token after the last row, int64 (1, 1)."""
        self._bindings, self._bus, self._output = bindings, bus, output
        self._ids: list[Any] = []  # as each pass writes them
        self._first: dict[int, Binding] = {}  # by their number of tokens
        self._later: list[Binding] = []

    def first(self, width: int) -> Binding:
        """The pass of `width` tokens that the host tells."""
        if width not in self._first:
            ids = self._bus.allocate((1, width), "int64")
            self._first[width] = self._bindings.bind(ids, 1, {self._output: self._written(0)})
        return self._first[width]

    def later(self, place: int) -> Binding:
        """The pass at `place`, from 1 on, of the token that the one before has written."""
        while len(self._later) < place:
            before, behind = self._written(len(self._later)), self._written(len(self._later) + 1)
            self._later.append(self._bindings.bind(before, 1, {self._output: behind}))
            self._bus.write(self._later[-1].logits_rows, np.zeros(1, np.int64))
        return self._later[place - 1]

    def read(self, number: int) -> list[int]:
        """The ids that the first `number` passes wrote."""
        return [int(self._bus.read(ids)[0, 0]) for ids in self._ids[:number]]

    def clear(self) -> None:
        """Lets go of everything that is bound; idempotent."""
        self._first.clear()
        self._later.clear()

    def _written(self, place: int) -> Any:
        while len(self._ids) <= place:
            self._ids.append(self._bus.allocate((1, 1), "int64"))
        return self._ids[place]
