"""How a bundle is loaded: what must be the same for what was computed or measured with it to hold again."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass

from pilotfish.runtime.bundle import Manifest, manifest_to_json
from pilotfish.runtime.session import import_onnxruntime


@dataclass(frozen=True, slots=True)
class Setup:
    """A bundle's manifest and the options it is loaded with; `num_threads` None stands for all physical cores."""

    manifest: Manifest
    device: str
    draft_device: str
    num_threads: int | None
    num_draft_threads: int | None
    exact: bool
    context_length: int
    cuda_graphs: bool = False

    @property
    def of_caches(self) -> str:
        """For cached numbers to mean the same, bit for bit."""
        # By what it says and not by where it is: a draft that is only tried is in no file.
        digest = hashlib.sha256(manifest_to_json(self.manifest).encode()).hexdigest()
        threads = f"{self.num_threads or 'all'} and {self.num_draft_threads or 'all'} threads"
        return (
            f"bundle {digest[:16]}, devices {self.device} and {self.draft_device}, {threads}, "
            f"{'CUDA graphs, ' * self.cuda_graphs}"
            f"ONNX Runtime {import_onnxruntime().__version__}, {platform.machine()} {os.cpu_count()}"
        )

    @property
    def of_costs(self) -> str:
        """For measured costs and exact widths to hold."""
        # A short context leaves wide passes unmeasured, so what was found with one says nothing of a longer one.
        return f"{self.of_caches}, {'exact' if self.exact else 'fast'}, context of {self.context_length} tokens"
