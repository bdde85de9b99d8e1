from __future__ import annotations

from pathlib import Path

import pytest
from pilotfish import runtime as pilotfish
from support.tiny_models import tiny_bundle


@pytest.fixture(scope="session")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def lookup_bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("tiny-lookup"), draft_noise=None)


@pytest.fixture
def engine(bundle_path: Path):
    with pilotfish.load(bundle_path) as loaded:
        yield loaded
