"""Whether a session on a GPU can really be opened, and if not, why: the causes told apart by ONNX Runtime's own words.

`get_available_providers()` lists CUDA on machines without a GPU, and a session asked for it falls back in silence. So a
tiny graph is run in a process of its own, whose error output has the reason and whose crash harms nobody.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

PROBE_TIMEOUT_S = 180.0
DRIVER_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

# The ONNX model `y = x + x` of float [1] (IR version 8, opset 14), as
# `onnx.helper.make_model(make_graph([make_node("Add", ["x", "x"], ["y"])], …)).SerializeToString()` gives it.
ADD_MODEL = (
    b'\x08\x08\x12\x00:5\n\x0e\n\x01x\n\x01x\x12\x01y"\x03Add\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02'
    b"\x08\x01b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x0e"
)

CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"

_PROBE = "from pilotfish.runtime.cuda_probe import run_add; print('providers', *run_add('{}'))"

_INSTALL = "run `pip install 'pilotfish[cuda]'`, which brings CUDA and cuDNN"
_DRIVER = "install or update NVIDIA's driver and restart"
_TENSORRT = "install TensorRT 10 and put its folder of libraries on the library path, or use --device cuda"

# (pattern of ONNX Runtime's or CUDA's text, what it means, what to do); the first that is found counts, and a missing
# library goes before what follows from it
_CAUSES = (
    (r"libcuda\.so|nvcuda\.dll", "NVIDIA's driver is not installed", _DRIVER),
    (r"nv(infer|onnxparser)\w*\.(so|dll)|install TensorRT libraries|Failed to create TensorrtExecution",
     "a library of TensorRT is missing", _TENSORRT),
    (r"(lib)?cudnn\w*(\.so|64|\.dll)", "a library of cuDNN is missing", _INSTALL),
    (
        r"(lib)?(cublas|cudart|cufft|curand|nvrtc|cusparse|cusolver|nvJitLink)\w*(\.so|64|\.dll)",
        "a library of CUDA is missing",
        _INSTALL,
    ),
    (r"no CUDA-capable device|failure 100\b", "the driver sees no NVIDIA GPU",
     "look at `nvidia-smi` and at CUDA_VISIBLE_DEVICES, or use --device cpu"),
    (r"invalid device ordinal|failure 101\b", "there is no GPU of that number",
     "look at CUDA_VISIBLE_DEVICES, or use --device cpu"),
    (r"driver version is insufficient|failure 35\b", "NVIDIA's driver is missing, or too old for this CUDA", _DRIVER),
    (r"unsupported display driver|failure 80[34]\b", "the driver and its kernel module are of different versions",
     "restart the computer, then install the driver anew if that does not mend it"),
    (r"no kernel image is available|failure 209\b", "the GPU is too old for this ONNX Runtime",
     "use an older onnxruntime-gpu, or --device cpu"),
    (r"out of memory|failure 2\b", "the GPU's memory is full", "end what uses it (`nvidia-smi` lists it)"),
    (r"devices are busy or unavailable|failure 46\b", "another process has the GPU to itself",
     "end it (`nvidia-smi` lists it)"),
    (r"Require cuDNN|Failed to create CUDAExecutionProvider", "a library of CUDA or cuDNN is missing", _INSTALL),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CudaProbe:
    """How the attempt went. `detail` is the line of the error text that says most, empty if the session opened."""

    is_open: bool
    cause: str = ""
    remedy: str = ""
    detail: str = ""


def probe_cuda() -> CudaProbe:
    """`probe` of CUDA."""
    return probe(CUDA)


def probe(provider: str) -> CudaProbe:
    """Runs the tiny graph by `provider`, CUDA or TensorRT, in another process. What CUDA lacks, TensorRT lacks too."""
    if provider == TENSORRT and not (cuda := probe(CUDA)).is_open:
        return cuda
    command = [sys.executable, "-c", _PROBE.format(provider)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return CudaProbe(False, f"the GPU did not answer within {PROBE_TIMEOUT_S:.0f} seconds", _DRIVER)
    return with_other_version(judge(ended.returncode, ended.stdout, ended.stderr, provider), library_dirs())


def run_add(provider: str) -> list[str]:
    """The providers that a session has which was asked for `provider`, after it has computed 1 + 1."""
    import numpy as np

    from pilotfish.runtime.session import import_onnxruntime, preload_libraries

    ort = import_onnxruntime()
    if provider != "CPUExecutionProvider":
        try:
            ctypes.CDLL(DRIVER_LIBRARY)
        except OSError as error:  # without a driver ONNX Runtime names other libraries, or one that is too old
            print(error, file=sys.stderr)  # noqa: T201
        preload_libraries(ort, "cuda")
    session = ort.InferenceSession(ADD_MODEL, providers=[provider], enable_fallback=False)
    (result,) = session.run(None, {"x": np.ones(1, np.float32)})
    if result != 2:
        raise ArithmeticError(f"{provider} says that 1 + 1 is {result}")
    return list(session.get_providers())


def judge(returncode: int, output: str, errors: str, provider: str = CUDA) -> CudaProbe:
    """What the probe's exit status, its output and its error text mean."""
    if returncode == 0 and provider in output:
        return CudaProbe(True)
    for pattern, cause, remedy in _CAUSES:
        if found := re.search(pattern, errors, re.IGNORECASE):
            return CudaProbe(False, cause, remedy, _line_around(errors, found.start()))
    if returncode < 0:
        return CudaProbe(False, f"the attempt was ended by signal {-returncode}", _DRIVER, _last_line(errors))
    return CudaProbe(False, "ONNX Runtime does not say why", _DRIVER, _last_line(errors))


def with_other_version(found: CudaProbe, folders: Iterable[Path]) -> CudaProbe:
    """The same, unless the library that is missing lies in one of `folders` in another version: then that is said."""
    missing = re.search(r"(lib\w+\.so)\.(\d+)(?=: cannot open shared object)", found.detail)
    if missing is None:
        return found
    others = sorted({path.name for folder in folders for path in folder.glob(f"{missing[1]}.[0-9]*")})
    if not others or missing[0] in others:
        return found
    cause = f"CUDA or cuDNN is there in another version: {others[-1]}, where {missing[0]} is needed"
    return replace(found, cause=cause)


def library_dirs() -> Iterator[Path]:
    """Folders where libraries of CUDA and cuDNN are commonly installed, by wheels among others; Linux only."""
    for folder in map(Path, sys.path):
        yield from folder.glob("nvidia/*/lib")
    yield from Path("/usr/local").glob("cuda*/lib64")
    yield Path(f"/usr/lib/{os.uname().machine}-linux-gnu" if hasattr(os, "uname") else "/usr/lib")
    yield from (Path(each) for each in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if each)


def _line_around(text: str, position: int) -> str:
    return _message(text[text.rfind("\n", 0, position) + 1 :].splitlines()[0])


def _last_line(text: str) -> str:
    return _message(text.strip().splitlines()[-1]) if text.strip() else ""


def _message(line: str) -> str:
    """A line of ONNX Runtime's log without colours, time and place in its source."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
    return re.sub(r"^.*?\[ONNXRuntimeError\] : \d+ : \w+ : ", "", plain)
