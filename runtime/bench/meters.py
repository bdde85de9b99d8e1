"""What a request takes beside time: energy, memory, and the GPU's share, where something here measures it.

Energy of processors comes from Linux's powercap files, which many systems let only an administrator read; all about
NVIDIA GPUs from NVML, through the package nvidia-ml-py. Both count the whole device, not one process.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pilotfish.runtime.nvml import first_gpu

POWERCAP = Path("/sys/class/powercap")
SAMPLED_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one request; None where nothing measures it."""

    energy_j: float | None = None
    gpu_utilisation: float | None = None


class Meters:
    """All meters that there are, read before and after each request; `note` says why the GPU has none."""

    def __init__(self, *, on_gpu: bool, powercap: Path = POWERCAP) -> None:
        """Opens the GPU's if the models run there."""
        self.note = ""
        self._packages = energy_files(powercap)
        self._gpu: GpuMeter | None = None
        self._before: dict[Path, int] = {}
        if on_gpu:
            try:
                import pynvml

                self._gpu = GpuMeter(pynvml, os.environ)
            except Exception as error:  # NVML raises a class of its own for each status
                self.note = f"the GPU is not measured: {error}; `pip install nvidia-ml-py` if it is missing"

    @property
    def measures_energy(self) -> bool:
        """Whether all that computes is covered: the processors, and the GPU if the models run there."""
        return bool(self._packages) and not self.note

    @property
    def gpu_name(self) -> str | None:
        """What the GPU is called; None if none is measured."""
        return self._gpu.name if self._gpu else None

    @property
    def peak_gpu_bytes(self) -> int | None:
        """The most memory of the GPU that was in use, by whomever, whenever it was looked at."""
        return self._gpu.peak_bytes if self._gpu else None

    def start(self) -> None:
        """A request begins."""
        self._before = read_energy(self._packages)
        if self._gpu:
            self._gpu.start()

    def stop(self) -> Usage:
        """It has ended."""
        gpu_j, utilisation = self._gpu.stop() if self._gpu else (0.0, None)
        if not self.measures_energy or gpu_j is None:
            return Usage(None, utilisation)
        return Usage(gpu_j + energy_between(self._before, read_energy(self._packages), self._packages), utilisation)

    def close(self) -> None:
        """Ends the use of NVML; idempotent."""
        if self._gpu:
            self._gpu.close()
            self._gpu = None

    def __enter__(self) -> Meters:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


class GpuMeter:
    """The first GPU that this process may use. Its utilisation is sampled in a thread while a request runs."""

    def __init__(self, nvml: Any, environment: Mapping[str, str]) -> None:
        """`nvml` is the module pynvml; it raises if there is no driver or no GPU."""
        nvml.nvmlInit()
        self._nvml = nvml
        self._device = first_gpu(nvml, environment)
        self.name = str(nvml.nvmlDeviceGetName(self._device))
        self.peak_bytes = 0
        self._samples: list[float] = []
        self._before_mj = self._energy_mj()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to sample."""
        self._samples, self._ended = [], threading.Event()
        self._before_mj = self._energy_mj()
        self._thread = threading.Thread(target=self._sample, args=(self._ended,), daemon=True)
        self._thread.start()

    def stop(self) -> tuple[float | None, float | None]:
        """(joules since the start, mean utilisation from 0 to 1), each None if it cannot be told."""
        self._ended.set()
        if self._thread:
            self._thread.join()
        after_mj, utilisation = self._energy_mj(), statistics.fmean(self._samples) if self._samples else None
        if after_mj is None or self._before_mj is None:
            return None, utilisation
        return (after_mj - self._before_mj) / 1e3, utilisation

    def close(self) -> None:
        """Ends the sampling and the use of NVML."""
        self._ended.set()
        if self._thread:
            self._thread.join()
        self._nvml.nvmlShutdown()

    def _energy_mj(self) -> int | None:
        try:
            return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device))
        except self._nvml.NVMLError:  # GPUs before Volta do not count it
            return None

    def _sample(self, ended: threading.Event) -> None:
        while not ended.wait(SAMPLED_EVERY_S):
            self._samples.append(self._nvml.nvmlDeviceGetUtilizationRates(self._device).gpu / 100)
            self.peak_bytes = max(self.peak_bytes, self._nvml.nvmlDeviceGetMemoryInfo(self._device).used)


def energy_files(powercap: Path) -> dict[Path, int]:
    """The counters of the processor packages that can be read, with the microjoules at which each begins anew."""
    found = {}
    try:
        for zone in sorted(powercap.iterdir()):
            # The zones are called so on processors of others too; those with other names overlap the packages.
            if re.fullmatch(r"intel-rapl:\d+", zone.name) and _text(zone / "name").startswith("package"):
                int(_text(zone / "energy_uj"))
                found[zone / "energy_uj"] = int(_text(zone / "max_energy_range_uj"))
    except (OSError, ValueError):  # one package alone would tell too little
        return {}
    return found


def read_energy(counters: Mapping[Path, int]) -> dict[Path, int]:
    """Microjoules that each counter shows."""
    return {counter: int(_text(counter)) for counter in counters}


def energy_between(before: Mapping[Path, int], after: Mapping[Path, int], ranges: Mapping[Path, int]) -> float:
    """Joules between two readings; a counter that shows less than before began anew once."""
    return sum((after[key] - before[key]) % (ranges[key] + 1) for key in before) / 1e6


def peak_memory_bytes() -> int | None:
    """The most memory that this process has had, mapped files included; None where the system does not tell."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()
