"""The bundles on this computer: their sizes, whether they fit the memory that is free now, and deleting of them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from pilotfish.desktop_app.errors import DesktopError
from pilotfish.runtime import BundleError, load_bundle
from pilotfish.runtime.bundle import Manifest
from pilotfish.runtime.catalog import bundles_dir
from pilotfish.runtime.decoder import MAX_WIDTH

TIGHT_SHARE = 0.85  # of the free memory; beyond it the system may have to swap


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A bundle folder. `manifest` is None if the bundle is damaged, and `fault` then says how."""

    path: Path
    manifest: Manifest | None
    fault: str = ""

    @property
    def name(self) -> str:
        """What the list calls it."""
        return self.path.name

    @property
    def num_bytes(self) -> int:
        """Bytes of its files; 0 if it is damaged."""
        return sum(file.size for file in self.manifest.files.values()) if self.manifest else 0


@dataclass(frozen=True, slots=True)
class FitEstimate:
    """Bytes that a bundle takes in memory at a context length, beside those that are free now; None if not known.

    What ONNX Runtime works with comes on top, so this is a little too low.
    """

    target_bytes: int
    draft_bytes: int
    cache_bytes: int
    free_bytes: int | None

    @property
    def num_bytes(self) -> int:
        """All together."""
        return self.target_bytes + self.draft_bytes + self.cache_bytes

    @property
    def verdict(self) -> str:
        """`fits`, `tight`, `too large`, or `unknown`."""
        if self.free_bytes is None:
            return "unknown"
        if self.num_bytes > self.free_bytes:
            return "too large"
        return "tight" if self.num_bytes > TIGHT_SHARE * self.free_bytes else "fits"


def list_models(folder: Path | None = None) -> tuple[ModelEntry, ...]:
    """The bundles in a folder (default: where export puts them), by name. A damaged one is listed, never an error."""
    folder = folder or bundles_dir()
    if not folder.is_dir():
        return ()
    paths = (path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith("."))
    return tuple(_entry(path) for path in paths)


def estimate_fit(
    manifest: Manifest, context_length: int, free_bytes: int | None, *, loaded_bytes: int = 0
) -> FitEstimate:
    """Weights of target and draft, and their caches, against `free_bytes`.

    `loaded_bytes` are those of the bundle that is loaded now and would make room.
    """
    weights = {
        role: sum(file.size for name, file in manifest.files.items() if name.startswith(f"{role}/"))
        for role in ("target", "draft")
    }
    cache_bytes = sum(
        model.cache_bytes_per_token * (min(context_length, model.max_positions) + MAX_WIDTH)
        for model in manifest.models.values()
    )
    free = None if free_bytes is None else free_bytes + loaded_bytes
    return FitEstimate(weights["target"], weights["draft"], cache_bytes, free)


def delete_model(path: Path) -> None:
    """Deletes a bundle for good. `DesktopError` if it cannot go, such as one that is loaded on Windows."""
    doomed = path.with_name(f".{path.name}.deleted.partial")  # which `pilotfish rm --leftovers` finds too
    try:
        if path.is_symlink():
            path.unlink()
            return
        shutil.rmtree(doomed, ignore_errors=True)
        shutil.rmtree(path.rename(doomed))
    except OSError as error:
        raise DesktopError(f"{path} cannot be deleted ({error.strerror}); unload the model and try again") from error


def _entry(path: Path) -> ModelEntry:
    try:
        return ModelEntry(path, load_bundle(path).manifest)
    except (BundleError, OSError, ValueError, RecursionError) as error:
        return ModelEntry(path, None, str(error))
