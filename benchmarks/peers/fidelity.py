"""How far a peer's target is from the float32 logits of the weights that the GGUF file holds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from results import Fidelity

from pilotfish.export.checkpoint import open_checkpoint
from pilotfish.export.parity import divergences
from pilotfish.export.reference import reference_logits

Floats = NDArray[np.float32]


def reference_of(target: Path, token_ids: Sequence[int], folder: Path) -> Floats:
    """The reference's logits (N, V), from `folder` if they were computed before: that takes a minute."""
    about = f"{target.name} {target.stat().st_size} {list(token_ids)}"
    path = folder / f"reference-{hashlib.sha256(about.encode()).hexdigest()[:12]}.npy"
    if not path.exists():
        with open_checkpoint(target) as checkpoint:
            logits = reference_logits(checkpoint, token_ids)
        unfinished = path.with_suffix(".part.npy")
        np.save(unfinished, logits)
        unfinished.rename(path)
    found: Floats = np.load(path, mmap_mode="r")
    return found


def fidelity_of(reference: Floats, logits: Floats) -> dict[str, float]:
    """`Fidelity`, ready for JSON; both (N, V)."""
    if reference.shape != logits.shape:
        raise ValueError(f"logits have shape {logits.shape}, and the reference {reference.shape}")
    divergence = divergences(reference, logits)
    return asdict(
        Fidelity(
            mean_kl=float(divergence.mean()),
            median_kl=float(np.median(divergence)),
            top1_agreement=float(np.mean(reference.argmax(axis=1) == logits.argmax(axis=1))),
        )
    )
