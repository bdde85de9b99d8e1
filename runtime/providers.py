"""The execution providers of each device, and how each is set up: all of their options are here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from pilotfish.runtime.catalog import cache_dir

PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "CPUExecutionProvider",
        "cuda": "CUDAExecutionProvider",
        "tensorrt": "TensorrtExecutionProvider",
    }
)


@dataclass(frozen=True, slots=True)
class CudaOptions:
    """Options of CUDA's provider, by its own names.

    Memory grows by what is asked for, not by doubling, so that the prediction of `fit.py` holds. Without TF32 float32
    graphs are as exact as on the CPU.
    """

    device_id: int = 0
    arena_extend_strategy: str = "kSameAsRequested"
    use_tf32: bool = False
    enable_cuda_graph: bool = False


@dataclass(frozen=True, slots=True)
class TensorrtOptions:
    """Options of TensorRT's provider, by its own names.

    An engine is built once and kept. No profile of shapes is given: the provider takes one only with the shapes of
    every dynamic input of each of its parts of the graph, and refuses to build otherwise. It has no
    GroupQueryAttention, so each layer's attention is a border between two parts, whose inputs have names that only the
    provider knows. Without a profile it takes the widths that it meets; `Decoder.warm_up` shows it the outermost ones
    first, so that no later width makes it build again.
    """

    trt_engine_cache_path: str
    trt_timing_cache_path: str
    device_id: int = 0
    trt_engine_cache_enable: bool = True
    trt_timing_cache_enable: bool = True
    trt_fp16_enable: bool = True


def provider_options(device: str, graph_path: Path, *, cuda_graphs: bool = False) -> dict[str, dict[str, str]]:
    """The providers for `device` in order of preference, each with its options as ONNX Runtime takes them.

    TensorRT stands before CUDA, which computes what TensorRT does not know. `device` is one of `PROVIDERS`; only CUDA
    alone records graphs.
    """
    if device == "cpu":
        return {PROVIDERS["cpu"]: {}}
    cuda = {PROVIDERS["cuda"]: _texts(CudaOptions(enable_cuda_graph=cuda_graphs))}
    if device == "cuda":
        return cuda
    engines = TensorrtOptions(str(engine_dir(graph_path)), str(cache_dir() / "tensorrt"))
    return {PROVIDERS["tensorrt"]: _texts(engines), **cuda}


def engine_dir(graph_path: Path) -> Path:
    """Where the engines of one graph are kept; not created.

    The provider names an engine after the names in the graph, which all models of a family share, so each folder of a
    model has its own, and another one when its files change.
    """
    files = sorted(path for path in graph_path.resolve().parent.iterdir() if path.is_file())
    facts = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return cache_dir() / "tensorrt" / hashlib.sha256(repr(facts).encode()).hexdigest()[:24]


def _texts(options: CudaOptions | TensorrtOptions) -> dict[str, str]:
    return {name: str(int(value)) if isinstance(value, bool) else str(value) for name, value in asdict(options).items()}
