"""PyTorch operators that TorchScript exports wrongly, slowly, or not at all, written with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def operators_replaced() -> Iterator[None]:
    """Replaces the operators inside the block."""
    replacements: list[tuple[Any, str, Callable[..., Tensor]]] = [
        (torch, "repeat_interleave", _repeat_interleave),
        (Tensor, "repeat_interleave", _repeat_interleave),
        (torch, "expm1", _expm1),
        (Tensor, "expm1", _expm1),
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
