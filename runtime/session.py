"""Opens ONNX Runtime sessions with exactly the device that was asked for, or says why it cannot."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from pilotfish.runtime.cuda_probe import CudaProbe, probe
from pilotfish.runtime.errors import BundleError, Cancelled, DeviceError, OptionError
from pilotfish.runtime.providers import PROVIDERS, provider_options

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
    graph_path: Path, device: str, num_threads: int | None = None, cancelled: threading.Event | None = None, *,
    cuda_graphs: bool = False,
) -> Any:  # fmt: skip
    """An `onnxruntime.InferenceSession` on `device`.

    `num_threads` None means one for each physical core. ONNX Runtime leaves a provider out silently if its device or
    libraries are missing, so what the session really uses is compared with what was asked: `DeviceError` on a mismatch,
    with its cause and remedy, and for a graph that cannot be recorded if `cuda_graphs` are wanted.
    Setting `cancelled` from another thread ends the opening with the error `Cancelled`.
    """
    provider = check_device(device)
    providers = provider_options(device, graph_path, cuda_graphs=cuda_graphs)
    ort = import_onnxruntime()
    preload_libraries(ort, device)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    # Threads wait busily for the next operator of a pass, but not for the next pass: one of another session comes
    # between and needs the cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    # Without VNNI instructions the fastest product of uint8 and int8 adds pairs in 16 bits, where large ones saturate.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if num_threads is not None:
        options.intra_op_num_threads = num_threads
    cancelled = cancelled or threading.Event()
    try:
        # ONNX Runtime looks at this flag of the options while it opens a session.
        with watching(cancelled, lambda: options.set_load_cancellation_flag(True)):
            session = ort.InferenceSession(
                str(graph_path), options, providers=list(providers.items()), enable_fallback=False
            )
    except Exception as error:  # ONNX Runtime raises a different class for each status code
        if cancelled.is_set():
            raise Cancelled(f"loading {graph_path} was cancelled") from error
        raise _refusal(graph_path, device, error, cuda_graphs) from error
    if provider not in session.get_providers():
        raise _missing(device, probe(provider))
    return session


def preload_libraries(ort: ModuleType, device: str) -> None:
    """Loads CUDA's libraries from their wheels, where ONNX Runtime itself would not look for them."""
    if device != "cpu" and hasattr(ort, "preload_dlls"):
        with redirect_stdout(io.StringIO()):  # it prints what it misses; whether that matters is seen afterwards
            ort.preload_dlls()


def _refusal(graph_path: Path, device: str, error: Exception, cuda_graphs: bool) -> BundleError | DeviceError:
    """What it means that ONNX Runtime opened no session at all."""
    if cuda_graphs and "graph capture" in str(error):
        return DeviceError(
            f"{graph_path} cannot be recorded as a CUDA graph: {_first_line(error)}; load it without CUDA graphs"
        )
    found = None if device == "cpu" else probe(PROVIDERS[device])
    if found is not None and not found.is_open:
        return _missing(device, found)
    return BundleError(f"ONNX Runtime cannot open {graph_path}: {_first_line(error)}")


def _missing(device: str, found: CudaProbe) -> DeviceError:
    """Why there is no session on `device`, by what its probe found, and what to do."""
    cause = found.cause or "although it opens elsewhere, it does not with this graph"
    detail = f" ({found.detail})" if found.detail else ""
    remedy = found.remedy or "run `pilotfish doctor`"
    another = "" if "--device" in remedy else ", or use --device cpu"
    return DeviceError(f"{PROVIDERS[device]} cannot be used: {cause}{detail}; {remedy}{another}")


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
