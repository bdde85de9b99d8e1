"""Stands for the module pynvml on a machine with two GPUs."""

from __future__ import annotations

from types import SimpleNamespace


class NvmlError(Exception):
    pass


def nvml(energies: list[int] | None = None) -> SimpleNamespace:
    """`energies` are the millijoules of each reading, None for a GPU that does not count them.

    The GPUs have 10 and 20 bytes free; `num_users` counts who has begun to use NVML and not ended.
    """

    def energy(_device: str) -> int:
        if energies is None:
            raise NvmlError("not supported")
        return energies.pop(0)

    def by_index(index: int) -> str:
        if index > 1:
            raise NvmlError("no such GPU")
        return f"GPU {index}"

    def use(change: int) -> None:
        module.num_users += change

    module = SimpleNamespace(
        NVMLError=NvmlError, num_users=0, nvmlInit=lambda: use(1), nvmlShutdown=lambda: use(-1),
        nvmlDeviceGetHandleByIndex=by_index, nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetName=lambda device: f"a {device}", nvmlDeviceGetTotalEnergyConsumption=energy,
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=60),
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=5_000, free=10 if device == "GPU 0" else 20),
    )  # fmt: skip
    return module
