"""What is asked of ONNX Runtime for each device, and in which words one that is not there is refused everywhere.

On a machine with a GPU nothing is missing; the tests of what is then said are left out there.
"""

from __future__ import annotations

import queue
from pathlib import Path

import onnxruntime
import pytest

from pilotfish import runtime as pilotfish
from pilotfish.desktop_app.engine_child import EngineChild
from pilotfish.desktop_app.protocol import Failed, Load, to_line
from pilotfish.runtime.cli import run
from pilotfish.runtime.cuda_probe import probe_cuda
from pilotfish.runtime.providers import engine_dir, provider_options

CPU_BUILD = "CUDAExecutionProvider" not in onnxruntime.get_available_providers()
LISTED = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]


@pytest.fixture
def graph_path(tmp_path: Path) -> Path:
    path = tmp_path / "target" / "model.onnx"
    path.parent.mkdir()
    path.write_bytes(b"graph")
    (path.parent / "model.data").write_bytes(b"weights")
    return path


@pytest.mark.parametrize(
    ("device", "providers"), [("cpu", LISTED[2:]), ("cuda", LISTED[1:2]), ("tensorrt", LISTED[:2])]
)
def test_providers_stand_in_order_and_their_options_are_texts(graph_path: Path, device: str, providers: list[str]):
    options = provider_options(device, graph_path)
    assert list(options) == providers
    assert all(isinstance(value, str) for each in options.values() for value in each.values())


def test_cuda_takes_no_more_memory_than_asked_and_rounds_nothing(graph_path: Path):
    options = provider_options("cuda", graph_path)["CUDAExecutionProvider"]
    assert (options["arena_extend_strategy"], options["use_tf32"]) == ("kSameAsRequested", "0")
    assert options["enable_cuda_graph"] == "0"
    recording = provider_options("cuda", graph_path, cuda_graphs=True)["CUDAExecutionProvider"]
    assert recording == options | {"enable_cuda_graph": "1"}


def test_engines_are_kept_in_the_cache_folder_and_never_of_another_model(
    graph_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    options = provider_options("tensorrt", graph_path)["TensorrtExecutionProvider"]
    assert Path(options["trt_timing_cache_path"]) == tmp_path / "cache" / "tensorrt"
    assert Path(options["trt_engine_cache_path"]) == engine_dir(graph_path)
    assert engine_dir(graph_path).parent == tmp_path / "cache" / "tensorrt"
    assert not any(name.startswith("trt_profile") for name in options)
    first = engine_dir(graph_path)
    (graph_path.parent / "model.data").write_bytes(b"other weights")
    assert engine_dir(graph_path) != first


def said_by_library(bundle: Path, device: str) -> str:
    with pytest.raises(pilotfish.DeviceError) as caught:
        pilotfish.load(bundle, device=device)
    return str(caught.value)


def said_by_command(bundle: Path, device: str, capsys: pytest.CaptureFixture) -> str:
    assert run(["generate", str(bundle), "-p", "x", "--device", device]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.strip().splitlines()[-1].removeprefix("pilotfish: ")


def said_by_app(bundle: Path, device: str) -> str:
    outbox: queue.SimpleQueue = queue.SimpleQueue()
    child = EngineChild(outbox)
    child.serve([to_line(Load(1, str(bundle), device=device))])
    while not isinstance(event := outbox.get(timeout=120), Failed):
        pass
    assert event.fault == "device"
    return f"{event.message}; {event.remedy}"


@pytest.mark.skipif(not CPU_BUILD, reason="this ONNX Runtime is built for GPUs")
@pytest.mark.parametrize("device", ["cuda", "tensorrt"])
def test_a_build_without_gpus_is_named_everywhere(bundle_path: Path, device: str, capsys: pytest.CaptureFixture):
    said = said_by_library(bundle_path, device)
    assert "which this ONNX Runtime lacks" in said
    assert "pip install 'pilotfish[cuda]'" in said
    assert said_by_command(bundle_path, device, capsys) == said_by_app(bundle_path, device) == said


@pytest.mark.filterwarnings("ignore:Specified provider")
@pytest.mark.parametrize("device", ["cuda", "tensorrt"])
def test_what_a_session_lacks_is_found_and_named_everywhere(
    bundle_path: Path, device: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """A build for GPUs lists its providers on any machine; its session is then one on the CPU, as it is here."""
    found = probe_cuda()
    if found.is_open:
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: LISTED)
    said = said_by_library(bundle_path, device)
    assert found.cause in said
    assert found.remedy in said
    assert "--device cpu" in said
    assert said_by_command(bundle_path, device, capsys) == said_by_app(bundle_path, device) == said
