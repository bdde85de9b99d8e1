"""NVIDIA's GPUs as NVML sees them, through the package nvidia-ml-py (module pynvml), where it is installed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def first_gpu(nvml: Any, environment: Mapping[str, str]) -> Any:
    """NVML's handle of the first GPU that this process may use; `nvml` is the module, initialized."""
    # NVML numbers all GPUs, whatever this process may see of them.
    wanted = environment.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    by_number = wanted.isdecimal() or not wanted
    find = nvml.nvmlDeviceGetHandleByIndex if by_number else nvml.nvmlDeviceGetHandleByUUID
    return find(int(wanted or 0) if by_number else wanted)


def free_gpu_bytes() -> int | None:
    """Bytes of the first GPU's memory that nobody has; None where there is no NVML to ask."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # NVML raises a class of its own for each status
        return None
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(first_gpu(pynvml, os.environ)).free)
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
