from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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


# The machines that run the tests are shared, so nothing is judged by the clock.
settings.register_profile("pilotfish", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pilotfish")
