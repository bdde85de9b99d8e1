"""Which shapes the passes of a model have: any, or a few that its device prepares for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pilotfish.runtime.errors import OptionError

MOST_PADDING = 64  # dummy tokens that a graph has positions for behind its longest context, as export makes it
ROUND_WIDTHS = (1, 2, 3, 5, 9, 17)  # of rounds
PREFILL_WIDTHS = (32, 64, 128, 192, 256)  # of prompts


@dataclass(frozen=True, slots=True)
class Plan:
    """`widths`, ascending, that passes are padded to; none leaves them as they are.

    With `records` a pass of one of them is recorded at its first run and played again from then on: nothing of it may
    change but what its inputs on the device hold. So the total length that the host tells is that of the whole cache,
    and the true one stands in `seqlens_k`. Passes wider than all widths run as they are, and are not recorded.
    """

    widths: tuple[int, ...] = ()
    records: bool = False

    def __post_init__(self) -> None:
        steps = [above - below for below, above in pairwise((0, *self.widths))]
        if any(not 1 <= step <= MOST_PADDING for step in steps):
            raise OptionError(f"widths are {self.widths}; they must ascend by at most {MOST_PADDING}")
        if self.records and not (self.widths and self.widths[-1] <= MOST_PADDING):
            raise OptionError(f"passes of widths {self.widths} cannot be recorded; up to {MOST_PADDING} can")

    def padded(self, number: int) -> int:
        """How many tokens, or rows, a pass has that needs `number` of them."""
        return padded(number, self.widths)

    def is_recorded(self, width: int) -> bool:
        """Whether a pass of so many tokens is."""
        return self.records and width <= self.widths[-1]


def padded(number: int, widths: Sequence[int]) -> int:
    """The least of `widths`, which ascend, that is no less than `number`; `number` if none is."""
    return next((width for width in widths if width >= number), number)


def plan_for(device: str, *, cuda_graphs: bool = False) -> Plan:
    """The plan of a device: TensorRT prepares for widths, CUDA records them if asked to, everything else is free."""
    if device == "tensorrt":
        return Plan((*ROUND_WIDTHS, *PREFILL_WIDTHS))
    return Plan(ROUND_WIDTHS, records=True) if cuda_graphs and device == "cuda" else Plan()


def require_cuda(devices: Collection[str]) -> None:
    """`OptionError` if no model is where CUDA graphs can be recorded."""
    if "cuda" not in devices:
        where = " and ".join(sorted(set(devices)))
        raise OptionError(
            f"CUDA graphs are recorded by device 'cuda' only, and the models are on {where}; "
            "leave --cuda-graphs out, or add --device cuda"
        )
