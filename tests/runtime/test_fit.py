"""A pair that a GPU cannot hold is refused before it is loaded, with the numbers and the context that would fit."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from pilotfish import runtime as pilotfish
from pilotfish.runtime import DeviceError
from pilotfish.runtime.bundle import Manifest, load_bundle
from pilotfish.runtime.decoder import MAX_WIDTH
from pilotfish.runtime.fit import GPU_WORKSPACE_BYTES, largest_context, memory_of, require_memory
from pilotfish.runtime.nvml import free_gpu_bytes
from support.fake_nvml import nvml
from support.tiny_models import renumbered_bundle

ON_GPU = {"target": "cuda", "draft": "cuda"}


@pytest.fixture(scope="module")
def manifest(bundle_path: Path) -> Manifest:
    return load_bundle(bundle_path).manifest


def needed(manifest: Manifest, length: int) -> int:
    return sum(each.weight_bytes + each.cache_bytes for each in memory_of(manifest, ON_GPU, length).values())


def test_memory_is_that_of_the_loaded_buffers(bundle_path: Path, manifest: Manifest):
    with pilotfish.load(bundle_path, context_length=100) as engine:
        for role, memory in engine.memory.items():
            buffers = engine._context.decoders[role].cache.buffers.values()
            assert memory.cache_bytes == sum(buffer.numpy().nbytes for buffer in buffers)
            assert memory.weight_bytes == manifest.models[role].weight_bytes > 0


def test_a_draft_with_a_tokenizer_of_its_own_has_room_for_more_tokens(tmp_path: Path):
    with pilotfish.load(renumbered_bundle(tmp_path), context_length=100) as engine:
        for role, memory in engine.memory.items():
            buffers = engine._context.decoders[role].cache.buffers.values()
            assert memory.cache_bytes == sum(buffer.numpy().nbytes for buffer in buffers)
        assert engine.memory["draft"].cache_bytes > engine.memory["target"].cache_bytes


@pytest.mark.parametrize("length", [2, 57, 199])
def test_the_context_that_is_said_to_fit_is_the_largest(manifest: Manifest, length: int):
    free = GPU_WORKSPACE_BYTES + needed(manifest, length)
    with pytest.raises(DeviceError, match=rf"a context of {length} tokens fits \(--context {length}\)") as caught:
        require_memory(manifest, ON_GPU, 200, free_gpu=lambda: free)
    assert f"{free / 1e9:.2f} GB free" in str(caught.value)
    require_memory(manifest, ON_GPU, length, free_gpu=lambda: free)
    with pytest.raises(DeviceError):
        require_memory(manifest, ON_GPU, length + 1, free_gpu=lambda: free)


def test_weights_alone_may_be_too_much(manifest: Manifest):
    with pytest.raises(DeviceError, match="no context fits"):
        require_memory(manifest, ON_GPU, 100, free_gpu=lambda: GPU_WORKSPACE_BYTES)


def test_each_device_is_judged_by_what_is_on_it(manifest: Manifest, caplog: pytest.LogCaptureFixture):
    apart = {"target": "cuda", "draft": "cpu"}
    target = memory_of(manifest, apart, 100)["target"]
    enough = GPU_WORKSPACE_BYTES + target.weight_bytes + target.cache_bytes
    with caplog.at_level(logging.WARNING):
        require_memory(manifest, apart, 100, free_cpu=lambda: 1 << 40, free_gpu=lambda: enough)
        assert not caplog.messages
        require_memory(manifest, apart, 100, free_cpu=lambda: 1000, free_gpu=lambda: enough)  # the system may make room
    assert "cpu has 0.00 GB free" in caplog.text
    assert "target" not in caplog.text
    with pytest.raises(DeviceError, match="cuda has"):
        require_memory(manifest, apart, 100, free_cpu=lambda: 1 << 40, free_gpu=lambda: enough - 1)


def test_what_is_not_known_is_not_judged(manifest: Manifest):
    require_memory(manifest, ON_GPU, 100, free_gpu=lambda: None)
    require_memory(manifest, dict.fromkeys(ON_GPU, "cpu"), 100, free_cpu=lambda: None)


@pytest.mark.parametrize("border", [2, 3, 100, 4096])
def test_halving_finds_the_border(border: int):
    assert largest_context(4096, lambda length: length <= border) == border
    assert largest_context(4096, lambda length: False) is None


def test_a_draft_with_a_shorter_context_takes_no_more_than_it_can_use(manifest: Manifest):
    most = manifest.target.max_positions
    target = memory_of(manifest, ON_GPU, 10 * most)["target"]
    assert target.cache_bytes == manifest.target.cache_bytes_per_token * (most + MAX_WIDTH)


@pytest.mark.parametrize(
    ("visible", "free"), [(None, 10), ("0", 10), ("1,0", 20), ("GPU-b", 20), ("", 10), ("7", None)]
)
def test_the_gpu_asked_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch, visible: str | None, free: int | None):
    module = nvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert free_gpu_bytes() == free
    assert module.num_users == 0


def test_without_nvml_nothing_is_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert free_gpu_bytes() is None
