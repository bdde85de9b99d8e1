"""The devices that the installed ONNX Runtime offers."""

from __future__ import annotations

from pilotfish.runtime.errors import DeviceError
from pilotfish.runtime.providers import PROVIDERS
from pilotfish.runtime.session import import_onnxruntime


def find_devices() -> tuple[str, ...]:
    """Names for `LoadOptions.device`; none without ONNX Runtime. That one can be opened is seen only in a load.

    Imports ONNX Runtime, which takes a while: for a thread of its own.
    """
    try:
        available = import_onnxruntime().get_available_providers()
    except (DeviceError, AttributeError):  # of two wheels over each other, a module without contents may remain
        return ()
    return tuple(device for device, provider in PROVIDERS.items() if provider in available)
