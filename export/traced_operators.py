"""PyTorch operators that TorchScript exports wrongly, slowly, or not at all, written with others.

Among them those by which models choose between experts: a trace sees one choice only, so Python code that asks which
experts were chosen is led through all of them. An expert that no token chose then gets no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

FOUND = "pilotfish_found"  # an attribute of the tensors that `_nonzero` returns

_own_nonzero, _own_where, _own_iterate = Tensor.nonzero, torch.where, Tensor.__iter__
_own_tolist, _own_split = Tensor.tolist, Tensor.split


@contextmanager
def operators_replaced() -> Iterator[None]:
    """Replaces the operators inside the block."""
    replacements: list[tuple[Any, str, Callable[..., Any]]] = [
        (torch, "repeat_interleave", _repeat_interleave),
        (Tensor, "repeat_interleave", _repeat_interleave),
        (torch, "expm1", _expm1),
        (Tensor, "expm1", _expm1),
        (torch, "index_add", _index_add),
        (Tensor, "index_add", _index_add),
        (torch, "nonzero", _nonzero),
        (Tensor, "nonzero", _nonzero),
        (torch, "where", _where),
        (Tensor, "__iter__", _iterate),
        (Tensor, "tolist", _tolist),
        (Tensor, "split", _split),
    ]
    own = [getattr(owner, name) for owner, name, _ in replacements]
    try:
        for owner, name, replacement in replacements:
            setattr(owner, name, replacement)
        yield
    finally:
        for (owner, name, _), operator in zip(replacements, own, strict=True):
            setattr(owner, name, operator)


def _repeat_interleave(tensor: Tensor, repeats: Any, dim: int | None = None, **_: object) -> Tensor:
    """Each element `repeats` times along `dim`. TorchScript writes the axis over other constants of the same value."""
    if not isinstance(repeats, int):
        raise TypeError("elements are repeated by different numbers")
    if dim is None:
        tensor, dim = tensor.flatten(), 0
    dim %= tensor.dim()
    behind = tensor.dim() - dim - 1
    return tensor.unsqueeze(dim + 1).expand(*[-1] * (dim + 1), repeats, *[-1] * behind).flatten(dim, dim + 1)


def _expm1(tensor: Tensor) -> Tensor:
    return tensor.exp() - 1


def _index_add(tensor: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Adds the slices of `source` along `dim` at `index`. TorchScript writes only one of those with the same index."""
    shape = [1] * tensor.dim()
    shape[dim] = -1
    return tensor.scatter_add(dim, index.view(shape).expand_as(source), source)


class _NonZero(torch.autograd.Function):
    """Traces to NonZero. Run by PyTorch it finds every element, so that code goes on that skips what is empty."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:  # noqa: ARG004
        return _own_nonzero(torch.ones_like(tensor))

    @staticmethod
    def symbolic(graph: Any, tensor: Any) -> Any:
        return graph.op("Transpose", graph.op("NonZero", tensor), perm_i=[1, 0])


def _nonzero(tensor: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The indices of what is not zero, (number found, axes)."""
    found: Tensor = _NonZero.apply(tensor)  # type: ignore[no-untyped-call]
    setattr(found, FOUND, True)
    return tuple(found[:, axis] for axis in range(tensor.dim())) if as_tuple else found


def _where(condition: Tensor, *branches: Any, **options: Any) -> Any:
    if branches or options:
        return _own_where(condition, *branches, **options)
    return _nonzero(condition, as_tuple=True)


def _iterate(tensor: Tensor) -> Iterator[Tensor]:
    """The elements along the first axis; of indices that were found, all that could be, as constants."""
    if hasattr(tensor, FOUND):
        return iter([torch.tensor(index) for index in _own_tolist(tensor)])
    elements: Iterator[Tensor] = _own_iterate(tensor)  # type: ignore[no-untyped-call]
    return elements


def _tolist(tensor: Tensor) -> Any:
    """The elements, which stay tensors while a model is traced if they can be sizes."""
    is_tracing = torch._C._get_tracing_state() is not None
    if is_tracing and tensor.dim() == 1 and not tensor.is_floating_point():
        return list(tensor.unbind())
    return _own_tolist(tensor)


def _split(tensor: Tensor, split_size: Any, dim: int = 0) -> Sequence[Tensor]:
    """Parts of the given sizes along `dim`, or parts of one size."""
    if not isinstance(split_size, Sequence) or not any(isinstance(size, Tensor) for size in split_size):
        parts: Sequence[Tensor] = _own_split(tensor, split_size, dim)  # type: ignore[no-untyped-call]
        return parts
    stops = list(accumulate(split_size))
    before = (slice(None),) * (dim % tensor.dim())
    return [tensor[*before, start:stop] for start, stop in zip([0, *stops], stops, strict=False)]
