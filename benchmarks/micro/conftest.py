"""Benchmarks of what is computed beside the models, one part at a time, so that a regression shows.

Usage: pytest benchmarks/micro --benchmark-enable [--benchmark-autosave] [--benchmark-compare]

Without `--benchmark-enable`, as in a plain `pytest`, each runs once and is not timed: its code must work, and no test
depends on the clock. Needs the extra `test`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.tiny_models import tiny_bundle


@pytest.hookimpl(tryfirst=True)  # before pytest-benchmark reads its options
def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("benchmark_enable", default=False):
        config.option.benchmark_disable = True


@pytest.fixture(scope="module")
def tiny_bundle_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A bundle of tiny real models; its calibration stays out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PILOTFISH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield tiny_bundle(tmp_path_factory.mktemp("tiny"))
