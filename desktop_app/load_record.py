"""Which bundle to load at launch, and which not, since it took the program down before: kept in a small file.

A load is noted before it begins and struck out when it has ended, well or with an error. A note that is still there at
the next launch belongs to a load that ended with the process, or with the whole computer.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path

from pilotfish.desktop_app.small_file import read_small, write_small


@dataclass(frozen=True, slots=True)
class _Notes:
    loading: str | None = None
    last: str | None = None
    crashed: tuple[str, ...] = ()


class LoadRecord:
    """The record of one installation, for any thread. A file that cannot be read or written costs its memory only."""

    def __init__(self, path: Path) -> None:
        """Reads `path`; what was being loaded when the program ended counts as crashed."""
        self._path = path
        self._lock = threading.Lock()
        self._notes = read_small(path, _Notes())
        if self._notes.loading is not None:
            self.crash(self._notes.loading)

    @property
    def crashed(self) -> tuple[str, ...]:
        """Bundles that took the engine down when they were last loaded."""
        return self._notes.crashed

    @property
    def bundle_for_launch(self) -> str | None:
        """The bundle that was loaded last, unless it has crashed the engine since."""
        notes = self._notes
        return None if notes.last in notes.crashed else notes.last

    def begin(self, bundle: str) -> None:
        """A load begins."""
        with self._lock:
            self._keep(replace(self._notes, loading=bundle))

    def succeed(self, bundle: str) -> None:
        """It has ended well, so the bundle is the one for the next launch, whatever happened before."""
        with self._lock:
            self._keep(replace(self._ended(bundle), last=bundle, crashed=self._others(bundle)))

    def fail(self, bundle: str) -> None:
        """It has ended with an error, or was given up."""
        with self._lock:
            self._keep(self._ended(bundle))

    def crash(self, bundle: str) -> None:
        """It has ended with the process."""
        with self._lock:
            self._keep(replace(self._ended(bundle), crashed=(*self._others(bundle), bundle)))

    def _ended(self, bundle: str) -> _Notes:
        return replace(self._notes, loading=None) if self._notes.loading == bundle else self._notes

    def _others(self, bundle: str) -> tuple[str, ...]:
        return tuple(each for each in self._notes.crashed if each != bundle)

    def _keep(self, notes: _Notes) -> None:
        self._notes = notes
        write_small(self._path, notes)
