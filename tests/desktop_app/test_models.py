from __future__ import annotations

import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from pilotfish.desktop_app.errors import DesktopError
from pilotfish.desktop_app.model_export import (
    ExportEnded,
    ExportOrder,
    ExportProgress,
    ModelExport,
    free_name,
    pair_order,
    parse_progress,
)
from pilotfish.desktop_app.models import FitEstimate, delete_model, estimate_fit, list_models
from pilotfish.runtime import load_bundle
from pilotfish.runtime.catalog import load_catalog
from pilotfish.runtime.decoder import MAX_WIDTH
from support.checkpoint_files import write_folder


def test_bundles_are_listed_damaged_ones_too(bundle_path: Path, tmp_path: Path):
    shutil.copytree(bundle_path, tmp_path / "good")
    shutil.copytree(bundle_path, tmp_path / "cut")
    (tmp_path / "cut" / "target" / "model.onnx.data").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    shutil.copytree(bundle_path, tmp_path / ".half.partial")
    (tmp_path / "file").write_text("")
    cut, empty, good = list_models(tmp_path)
    assert [entry.name for entry in (cut, empty, good)] == ["cut", "empty", "good"]
    assert "export the bundle again" in cut.fault
    assert "is not a bundle" in empty.fault
    assert (good.fault, good.manifest) == ("", load_bundle(bundle_path).manifest)
    on_disk = sum(path.stat().st_size for path in good.path.rglob("*") if path.is_file())
    assert 0 < on_disk - good.num_bytes < 20_000  # the manifest does not list itself
    assert list_models(tmp_path / "nowhere") == ()


def test_the_fit_counts_weights_draft_and_caches(bundle_path: Path):
    manifest = load_bundle(bundle_path).manifest
    short, long = (estimate_fit(manifest, length, 10_000_000) for length in (100, 200))
    per_token = sum(model.cache_bytes_per_token for model in manifest.models.values())
    assert long.cache_bytes - short.cache_bytes == 100 * per_token
    assert short.cache_bytes == (100 + MAX_WIDTH) * per_token
    assert short.target_bytes > (bundle_path / "target" / "model.onnx.data").stat().st_size
    assert short.draft_bytes > 0
    beyond = estimate_fit(manifest, 1 << 30, None, loaded_bytes=5)
    assert beyond.cache_bytes == (manifest.target.max_positions + MAX_WIDTH) * per_token
    assert estimate_fit(manifest, 100, 10, loaded_bytes=5).free_bytes == 15


@pytest.mark.parametrize(
    ("free_bytes", "verdict"), [(None, "unknown"), (59, "too large"), (60, "tight"), (70, "tight"), (71, "fits")]
)
def test_verdicts(free_bytes: int | None, verdict: str):
    assert FitEstimate(30, 20, 10, free_bytes).verdict == verdict


def test_a_bundle_is_deleted(bundle_path: Path, tmp_path: Path):
    shutil.copytree(bundle_path, tmp_path / "good")
    delete_model(tmp_path / "good")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DesktopError, match="cannot be deleted"):
        delete_model(tmp_path / "good")


def test_names_and_orders(tmp_path: Path):
    assert free_name("/x/Qwen 2.gguf", tmp_path) == tmp_path / "Qwen-2"
    assert free_name("owner/name/", tmp_path) == tmp_path / "name"
    assert free_name("C:\\models\\é.gguf", tmp_path) == tmp_path / "model"
    (tmp_path / "name").mkdir()
    assert free_name("owner/name", tmp_path) == tmp_path / "name-2"
    pair = load_catalog().default_pair
    arguments = pair_order(pair, tmp_path).arguments
    assert arguments[:3] == ["export", f"--target={pair.target}", f"--quant={pair.target_recipe}"]
    assert f"--output={tmp_path / pair.name}" in arguments


def test_progress_lines():
    line = b'{"progress": "fetching x", "done": 3, "total": 9}\n'
    assert parse_progress(line) == ExportProgress("fetching x", 3, 9)
    for other in (b"", b"text\n", b'{"progress": 3}\n', b'{"progress"', b"\xff"):
        assert parse_progress(other) is None


def test_an_export_adds_a_bundle_and_tells_its_progress(tmp_path: Path):
    delivered: list = []
    source = write_folder(tmp_path / "model")
    order = ExportOrder(str(source), tmp_path / "bundles" / "new", "int8", str(source), "int8")
    export = ModelExport(order, delivered.append)
    export.wait()
    assert delivered[-1] == ExportEnded(order.output, "added")
    works = {event.progress: event for event in delivered[:-1]}
    assert {"exporting target", "verifying target", "exporting draft"} <= set(works)
    assert all(event.done == event.total > 0 for event in works.values())
    (entry,) = list_models(tmp_path / "bundles")
    assert (entry.name, entry.fault) == ("new", "")
    assert entry.manifest.draft is not None


def test_a_failed_export_says_why(tmp_path: Path):
    delivered: list = []
    export = ModelExport(ExportOrder(str(tmp_path / "nothing.gguf"), tmp_path / "out"), delivered.append)
    export.wait()
    ended = delivered[-1]
    assert isinstance(ended, ExportEnded)
    assert ended.outcome == "failed"
    assert "nothing.gguf" in ended.message
    assert not ended.message.startswith("pilotfish:")


SLOW = """
import pathlib, sys, time
pathlib.Path(sys.argv[1]).mkdir()
print('{"progress": "exporting target", "done": 1, "total": 9}', file=sys.stderr, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("prefix", ["", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_a_cancelled_export_is_ended_and_cleaned_up(tmp_path: Path, prefix: str, monkeypatch: pytest.MonkeyPatch):
    if prefix and not hasattr(signal, "SIGKILL"):
        pytest.skip("nothing can ignore the end here")
    monkeypatch.setattr("pilotfish.desktop_app.model_export.END_TIMEOUT_S", 0.3)
    partial, delivered = tmp_path / ".out.partial", []
    command = [sys.executable, "-c", f"{prefix}\n{SLOW}", str(partial)]
    export = ModelExport(ExportOrder("x", tmp_path / "out"), delivered.append, lambda arguments: command)
    while not delivered:
        time.sleep(0.01)
    assert partial.is_dir()
    export.cancel()
    export.wait()
    assert delivered == [
        ExportProgress("exporting target", 1, 9), ExportEnded(tmp_path / "out", "cancelled"),
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []
