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
    CacheFileError,
    Cancelled,
    ContextOverflowError,
    DeviceError,
    GrammarError,
    OptionError,
    PilotfishError,
    TemplateError,
)
from pilotfish.runtime.generation import Chunk, GenerationOptions
from pilotfish.runtime.grammar import Grammar
from pilotfish.runtime.logprobs import TokenLogprob
from pilotfish.runtime.metrics import Stats
from pilotfish.runtime.sampling import SamplingParams

__all__ = [
    "Bundle",
    "BundleError",
    "CacheFileError",
    "Cancelled",
    "Chunk",
    "ContextOverflowError",
    "DeviceError",
    "Engine",
    "GenerationOptions",
    "Grammar",
    "GrammarError",
    "OptionError",
    "PilotfishError",
    "SamplingParams",
    "Stats",
    "TemplateError",
    "TokenLogprob",
    "load",
    "load_bundle",
]
