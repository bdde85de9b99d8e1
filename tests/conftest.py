from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pilotfish import runtime as pilotfish
from pilotfish.export.download import pull
from pilotfish.runtime.catalog import load_catalog
from pilotfish.runtime.errors import DownloadError
from support.tiny_models import tiny_bundle


@pytest.fixture(scope="session", autouse=True)
def _own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Calibrations of tiny models are no use to anybody, so they stay out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PILOTFISH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("tiny"), verify=True)


@pytest.fixture(scope="session")
def lookup_bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("tiny-lookup"), draft_noise=None)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real SmolLM2-135M, fetched once into the development cache."""
    folder = Path(os.environ.get("PILOTFISH_DEV_MODELS", "~/.cache/pilotfish-dev-models")).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return pull(load_catalog().model("smollm2-135m"), folder)
    except DownloadError as error:
        pytest.skip(f"the model cannot be fetched here: {error}")


@pytest.fixture
def engine(bundle_path: Path):
    with pilotfish.load(bundle_path) as loaded:
        yield loaded


# The machines that run the tests are shared, so nothing is judged by the clock.
settings.register_profile("pilotfish", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pilotfish")
