"""Named values of a source model's configuration, read with errors that name the value."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pilotfish.runtime.errors import CheckpointError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Settings:
    """Values by key; `source` goes before a key in messages. A key whose value is None counts as left out."""

    source: str
    values: Mapping[str, Any]

    def number(self, key: str, default: float | None = None) -> float:
        """The number under `key`, or `default`; `CheckpointError` if it is neither."""
        value = self._get(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        raise CheckpointError(f"{self.source}{key} is {value!r}; a number is needed")

    def count(self, key: str, default: int | None = None) -> int:
        """The whole number under `key`, or `default`; `CheckpointError` if it is neither."""
        value = self._get(key, default)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise CheckpointError(f"{self.source}{key} is {value!r}; a whole number is needed")

    def flag(self, key: str, default: bool = False) -> bool:
        """The truth value under `key`, or `default`; `CheckpointError` if it is neither."""
        value = self._get(key, default)
        if isinstance(value, bool):
            return value
        raise CheckpointError(f"{self.source}{key} is {value!r}; true or false is needed")

    def choice(self, key: str, supported: Collection[Any], default: Any = None) -> Any:
        """The value under `key`, or `default`; `UnsupportedModelError` if it is none of `supported`."""
        value = self._get(key, default)
        if isinstance(value, (str, int, float)) and value in tuple(supported):
            return value
        wanted = ", ".join(repr(item) for item in supported)
        raise UnsupportedModelError(f"{self.source}{key} is {value!r}; supported is {wanted}")

    def refuse_others(self, known: Collection[str]) -> None:
        """`UnsupportedModelError` if there is a value under a key that is not `known`."""
        for key, value in self.values.items():
            if key not in known and value is not None:
                raise UnsupportedModelError(
                    f"{self.source}{key} is {value!r}, an option that is not known here; "
                    "without it the exported model might compute something else"
                )

    def _get(self, key: str, default: object) -> object:
        value = self.values.get(key)
        return default if value is None else value
