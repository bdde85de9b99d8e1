"""Speculative decoding on ONNX Runtime: load a bundle, stream text, read the statistics.

```python
from pilotfish import runtime as pilotfish

with pilotfish.load("my-bundle") as engine:
    for chunk in engine.generate([{"role": "user", "content": "Why is the sky blue?"}]):
        print(chunk.text, end="", flush=True)
    print(engine.stats.tokens_per_s, engine.stats.acceptance_rate)
```
"""

from pilotfish.runtime.bundle import Bundle, load_bundle
from pilotfish.runtime.engine import Engine, load
from pilotfish.runtime.errors import (
    BundleError,
    ContextOverflowError,
    DeviceError,
    OptionError,
    PilotfishError,
    TemplateError,
)
from pilotfish.runtime.generation import Chunk, GenerationOptions
from pilotfish.runtime.metrics import Stats
from pilotfish.runtime.sampling import SamplingParams

__all__ = [
    "Bundle",
    "BundleError",
    "Chunk",
    "ContextOverflowError",
    "DeviceError",
    "Engine",
    "GenerationOptions",
    "OptionError",
    "PilotfishError",
    "SamplingParams",
    "Stats",
    "TemplateError",
    "load",
    "load_bundle",
]
