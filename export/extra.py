"""Says which command installs what `export` needs, before an import fails for want of it."""

from __future__ import annotations

import importlib.util

from pilotfish.runtime.errors import OptionError

MODULES = ("onnx", "safetensors", "huggingface_hub", "threadpoolctl")


def need_export_extra() -> None:
    """`OptionError` if a module of the extra `export` is not installed."""
    if missing := [name for name in MODULES if not importlib.util.find_spec(name)]:
        raise OptionError(f"this command needs {', '.join(missing)}; run `pip install 'pilotfish[export]'`")
