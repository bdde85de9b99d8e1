from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotfish.desktop_app.widgets.transcript import Transcript
from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.checkpoint import open_checkpoint
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import BuiltSource
from support.shown import open_transcript

# Before an application is made: the tests run where there is no screen.
os.environ["QT_QPA_PLATFORM"] = "offscreen"


@pytest.fixture(scope="session")
def smollm2_bundle(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real SmolLM2-135M in 8 bits; tokens are drafted by lookup."""
    output = tmp_path_factory.mktemp("smollm2") / "smollm2-135m"
    with open_checkpoint(smollm2) as checkpoint:
        write_bundle(BuiltSource(checkpoint, parse_recipe("int8")), None, output, verify=False)
    return output


@pytest.fixture
def transcript(qapp) -> Iterator[Transcript]:
    yield from open_transcript()
