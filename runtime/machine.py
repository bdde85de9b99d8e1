"""What a machine offers: versions, devices, cores, memory, disk. Facts only; `doctor.py` judges them."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pilotfish.runtime.catalog import cache_dir
from pilotfish.runtime.cuda_probe import CudaProbe, probe, probe_cuda
from pilotfish.runtime.errors import DeviceError
from pilotfish.runtime.memory import CGROUP, free_memory, system_text
from pilotfish.runtime.providers import PROVIDERS
from pilotfish.runtime.session import import_onnxruntime

# distributions that install the module `onnxruntime`
RUNTIMES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino", "onnxruntime-qnn",
            "onnxruntime-silicon", "ort-nightly", "ort-nightly-gpu")  # fmt: skip
LIBRARIES = ("pilotfish", "numpy", "tokenizers", "jinja2", "typer", "rich")
# extra: a distribution of it that nothing else brings
EXTRAS = {"export": "safetensors", "grammar": "llguidance", "server": "starlette", "torch": "optimum",
          "app": "PySide6-Essentials", "plot": "matplotlib"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found. `versions` has the installed distributions only; None stands for what could not be told.

    `cuda` and `tensorrt` are None where ONNX Runtime does not list them, `tensorrt` also where CUDA cannot be opened.
    `num_cores` is what the system has, `num_usable_cores` what this process may use. `cache_fault` is empty if the
    cache folder can be written.
    """

    python: str
    system: str
    versions: Mapping[str, str]
    providers: tuple[str, ...]
    import_fault: str
    cuda: CudaProbe | None
    num_cores: int
    num_usable_cores: int
    free_memory_bytes: int | None
    cache: str
    cache_free_bytes: int | None
    cache_fault: str
    tensorrt: CudaProbe | None = None


def collect() -> Facts:
    """Looks at this machine. Changes nothing but that a file is made in the cache folder and deleted again."""
    providers, import_fault = _providers()
    cuda = probe_cuda() if PROVIDERS["cuda"] in providers else None
    has_tensorrt = PROVIDERS["tensorrt"] in providers and cuda is not None and cuda.is_open
    cache = cache_dir()
    existing = next(folder for folder in (cache, *cache.parents) if folder.is_dir())
    return Facts(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        versions=_versions((*LIBRARIES, *RUNTIMES, *EXTRAS.values())),
        providers=providers,
        import_fault=import_fault,
        cuda=cuda,
        num_cores=os.cpu_count() or 1,
        num_usable_cores=num_usable_cores(CGROUP),
        free_memory_bytes=free_memory(),
        cache=str(cache),
        cache_free_bytes=shutil.disk_usage(existing).free,
        cache_fault=write_fault(existing),
        tensorrt=probe(PROVIDERS["tensorrt"]) if has_tensorrt else None,
    )


def _providers() -> tuple[tuple[str, ...], str]:
    """What ONNX Runtime lists, or why it cannot be asked."""
    try:
        return tuple(import_onnxruntime().get_available_providers()), ""
    except (
        DeviceError,
        AttributeError,
    ) as error:  # of two wheels over each other, a module without contents may remain
        return (), str(error.__cause__ or error)


def _versions(names: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def num_usable_cores(cgroup: Path) -> int:
    """Cores that this process may use, by its affinity and by the quota of its container."""
    num_cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota, _, period = system_text(cgroup / "cpu.max").partition(" ")
    if quota.isdecimal() and period.isdecimal():
        return min(num_cores, max(int(quota) // int(period), 1))
    return num_cores


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """What the processor is called, by Linux's `/proc/cpuinfo` or else by Python."""
    for line in system_text(cpuinfo).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def write_fault(folder: Path) -> str:
    """Why no file can be made in `folder`; empty if one can. The file is deleted again."""
    probe = folder / f".pilotfish-doctor-{os.getpid()}"
    try:
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror or error}"
    return ""
