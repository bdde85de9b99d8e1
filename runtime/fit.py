"""Whether a bundle fits the memory of its devices: predicted before anything is loaded, told afterwards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pilotfish.runtime.bundle import Manifest
from pilotfish.runtime.decoder import MAX_WIDTH
from pilotfish.runtime.errors import DeviceError
from pilotfish.runtime.memory import free_memory
from pilotfish.runtime.nvml import free_gpu_bytes

# What CUDA, cuBLAS and the widest pass take beside weights and caches; an allowance, which no test has measured yet.
GPU_WORKSPACE_BYTES = 600 << 20
LEAST_CONTEXT = 2

FreeBytes = Callable[[], int | None]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """Bytes of a model's weights and caches on its device."""

    device: str
    weight_bytes: int
    cache_bytes: int


def memory_of(manifest: Manifest, devices: Mapping[str, str], context_length: int) -> dict[str, ModelMemory]:
    """What each model takes; by role, as `devices` is. Past a model's own longest context it takes no more."""
    return {
        role: ModelMemory(
            devices[role],
            manifest.weight_bytes(role),
            model.cache_bytes_per_token * (manifest.context_of(model, context_length) + MAX_WIDTH),
        )
        for role, model in manifest.models.items()
    }


def require_memory(
    manifest: Manifest,
    devices: Mapping[str, str],
    context_length: int,
    free_cpu: FreeBytes = free_memory,
    free_gpu: FreeBytes = free_gpu_bytes,
) -> None:
    """`DeviceError` with the numbers if a GPU has too little free for its models, and the context that would fit.

    On the CPU, where the system may still make room, too little is a warning in the log. What is not known is not
    judged.
    """
    for place, free_bytes, workspace in (("cpu", free_cpu, 0), ("gpu", free_gpu, GPU_WORKSPACE_BYTES)):
        roles = [role for role in manifest.models if (devices[role] == "cpu") == (place == "cpu")]
        free = free_bytes() if roles else None
        if free is None:
            continue

        def needed(length: int, roles: list[str] = roles, workspace: int = workspace) -> int:
            models = memory_of(manifest, devices, length)
            return workspace + sum(models[role].weight_bytes + models[role].cache_bytes for role in roles)

        if needed(context_length) <= free:
            continue
        message = _message(manifest, devices, context_length, roles, needed, free)
        if place == "gpu":
            raise DeviceError(message)
        _logger.warning("%s", message)


def largest_context(most: int, fits: Callable[[int], bool]) -> int | None:
    """The largest context of up to `most` tokens that fits, found by halving; None if not even the least does."""
    low, high = LEAST_CONTEXT, most
    if not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _message(
    manifest: Manifest, devices: Mapping[str, str], context_length: int, roles: list[str],
    needed: Callable[[int], int], free: int,
) -> str:  # fmt: skip
    models = memory_of(manifest, devices, context_length)
    parts = [
        f"{role} {gigabytes(models[role].weight_bytes)} of weights and {gigabytes(models[role].cache_bytes)} of caches"
        for role in roles
    ]
    named = " and ".join(dict.fromkeys(devices[role] for role in roles))
    largest = largest_context(context_length, lambda length: needed(length) <= free)
    remedy = f"a context of {largest} tokens fits (--context {largest})" if largest else "no context fits"
    return (
        f"{named} has {gigabytes(free)} free, and a context of {context_length} tokens takes "
        f"{gigabytes(needed(context_length))} ({', '.join(parts)}); {remedy}; or end other programs, or export with a "
        "smaller recipe such as int4-b128"
    )


def gigabytes(num_bytes: int) -> str:
    """As people read it, such as 1.25 GB."""
    return f"{num_bytes / 1e9:.2f} GB"
