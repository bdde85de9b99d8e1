"""Values kept in small files of which nothing depends: what cannot be read or written is told in the log, and lost."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TypeVar

from pilotfish.desktop_app.codec import decoded, encoded, parse_json
from pilotfish.desktop_app.errors import FormatError
from pilotfish.runtime.whole_file import write_whole

T = TypeVar("T")

_logger = logging.getLogger(__name__)


def read_small(path: Path, default: T) -> T:
    """The value of the type of `default` that a file holds; `default` if there is no such file, or none to be read."""
    try:
        return decoded(type(default), parse_json(path.read_bytes()))
    except FileNotFoundError:
        return default
    except (OSError, FormatError) as error:
        _logger.warning("%s cannot be read and is begun anew: %s", path, error)
        return default


def write_small(path: Path, value: object) -> None:
    """Writes a value, a dataclass of what `codec` knows."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(encoded(value)))
    except OSError as error:
        _logger.warning("%s cannot be written: %s", path, error)
