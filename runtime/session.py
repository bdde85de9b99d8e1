"""Opens ONNX Runtime sessions with exactly the device that was asked for, or says why it cannot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from pilotfish.runtime.errors import BundleError, Cancelled, DeviceError, OptionError

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}

WATCH_INTERVAL_S = 0.02


def import_onnxruntime() -> ModuleType:
    """The onnxruntime module; `DeviceError` that names the install command if there is none."""
    try:
        import onnxruntime
    except ImportError as error:
        raise DeviceError(
            "ONNX Runtime is not installed; run `pip install 'pilotfish[cpu]'`, "
            "or `pip install 'pilotfish[cuda]'` for an NVIDIA GPU (never both)"
        ) from error
    return onnxruntime  # type: ignore[no-any-return]


def check_device(device: str) -> str:
    """The provider name of `device`; `OptionError` if it is unknown, `DeviceError` if this build lacks it."""
    if device not in PROVIDERS:
        raise OptionError(f"unknown device {device!r}; choose one of {', '.join(PROVIDERS)}")
    available = import_onnxruntime().get_available_providers()
    if PROVIDERS[device] not in available:
        raise DeviceError(
            f"device {device!r} needs {PROVIDERS[device]}, which this ONNX Runtime lacks "
            f"(it has {', '.join(available)}); run "
            "`pip uninstall onnxruntime && pip install 'pilotfish[cuda]'`, or use --device cpu"
        )
    return PROVIDERS[device]


def open_session(
    graph_path: Path, device: str, num_threads: int | None = None, spin: bool = True,
    cancelled: threading.Event | None = None,
) -> Any:  # fmt: skip
    """An `onnxruntime.InferenceSession` on `device`.

    `num_threads` None means one for each physical core. `spin` lets idle threads wait busily, which is faster for one
    session and slower for two that share few cores. ONNX Runtime leaves a provider out silently if its device or
    libraries are missing, so what the session really uses is compared with what was asked: `DeviceError` on a mismatch.
    Setting `cancelled` from another thread ends the opening with the error `Cancelled`.
    """
    provider = check_device(device)
    ort = import_onnxruntime()
    if device != "cpu" and hasattr(ort, "preload_dlls"):
        ort.preload_dlls()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
    # Without VNNI instructions the fastest product of uint8 and int8 adds pairs in 16 bits, where large ones saturate.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if num_threads is not None:
        options.intra_op_num_threads = num_threads
    cancelled = cancelled or threading.Event()
    try:
        # ONNX Runtime looks at this flag of the options while it opens a session.
        with watching(cancelled, lambda: options.set_load_cancellation_flag(True)):
            session = ort.InferenceSession(str(graph_path), options, providers=[provider])
    except Exception as error:  # ONNX Runtime raises a different class for each status code
        if cancelled.is_set():
            raise Cancelled(f"loading {graph_path} was cancelled") from error
        raise BundleError(f"ONNX Runtime cannot open {graph_path}: {_first_line(error)}") from error
    if provider not in session.get_providers():
        raise DeviceError(
            f"ONNX Runtime left {provider} out and offers {', '.join(session.get_providers())} instead: no NVIDIA "
            "device, driver, or CUDA and cuDNN library was found; mend that, or use --device cpu"
        )
    return session


@contextmanager
def watching(cancelled: threading.Event, cancel: Callable[[], None]) -> Iterator[None]:
    """Calls `cancel`, from another thread, as soon as `cancelled` is set while the block runs."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            if cancelled.wait(WATCH_INTERVAL_S):
                cancel()
                return

    watcher = threading.Thread(target=watch, name="load-cancellation", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
