"""Each problem is found, told apart from the others, and comes with a remedy; a sound machine has none."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
import typer

from pilotfish.runtime.cli import run
from pilotfish.runtime.cuda_probe import ADD_MODEL, TENSORRT, CudaProbe, judge, run_add, with_other_version
from pilotfish.runtime.cuda_probe import CUDA as CUDA_PROVIDER
from pilotfish.runtime.doctor import doctor, examine, line
from pilotfish.runtime.machine import Facts, collect, num_usable_cores, write_fault
from pilotfish.runtime.memory import free_memory, linux_free_bytes, macos_free_bytes, windows_free_bytes

FACTS = Facts(
    python="3.12.1", system="Linux 6.1", versions={"pilotfish": "0.1.0", "numpy": "2.4", "onnxruntime": "1.32.0"},
    providers=("CPUExecutionProvider",), import_fault="", cuda=None, num_cores=8, num_usable_cores=8,
    free_memory_bytes=8_000_000_000, cache="/home/me/.cache/pilotfish", cache_free_bytes=50_000_000_000, cache_fault="",
)  # fmt: skip
CUDA = ("CUDAExecutionProvider", "CPUExecutionProvider")
BOTH = {"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.31.1"}


def problems(facts: Facts) -> list[str]:
    found = [finding for finding in examine(facts) if finding.is_problem]
    assert all(finding.remedy for finding in found)
    return [line(finding) for finding in found]


def test_a_sound_machine_has_no_problem_and_says_what_it_has():
    assert problems(FACTS) == []
    text = "\n".join(map(line, examine(FACTS)))
    parts = ["Python 3.12.1", "numpy 2.4", "onnxruntime 1.32.0", "--device cpu", "8 logical cores", "8.0 GB free",
             "/home/me/.cache/pilotfish, 50.0 GB", "extra grammar: not installed", "pilotfish[grammar]"]  # fmt: skip
    assert [part for part in parts if part not in text] == []


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"versions": BOTH}, ["onnxruntime 1.32.0 and onnxruntime-gpu 1.31.1 are both installed",
                              "pip uninstall onnxruntime onnxruntime-gpu", "never both"]),
        ({"versions": {"onnxruntime": "1.9.0"}}, ["onnxruntime 1.9.0 is too old, 1.31.1", "--upgrade 'onnxruntime>="]),
        ({"versions": {"onnxruntime": "1.31.0rc1"}}, ["too old"]),
        ({"import_fault": "No module named 'onnxruntime'", "versions": {}, "providers": ()},
         ["No module named 'onnxruntime'", "pip install 'pilotfish[cpu]'"]),
        ({"providers": CUDA, "cuda": CudaProbe(False, "the cause", "the remedy", "the words")},
         ["no session can be opened: the cause (the words)", "the remedy"]),
        ({"free_memory_bytes": 900_000_000}, ["0.9 GB free", "smaller model"]),
        ({"cache_free_bytes": 12_000_000}, ["0.0 GB free", "PILOTFISH_CACHE"]),
        ({"cache_fault": "/home/me cannot be written: Permission denied"}, ["Permission denied", "PILOTFISH_CACHE"]),
    ],
)  # fmt: skip
def test_each_problem_is_named_with_its_remedy(change: dict, parts: list[str]):
    (problem,) = problems(replace(FACTS, **change))
    for part in parts:
        assert part in problem


def test_what_is_no_problem():
    assert problems(replace(FACTS, providers=CUDA, cuda=CudaProbe(True))) == []
    assert problems(replace(FACTS, free_memory_bytes=None)) == []
    assert problems(replace(FACTS, versions={"onnxruntime-gpu": "1.40.0"})) == []
    restricted = replace(FACTS, num_usable_cores=2)
    assert problems(restricted) == []
    assert any("--threads 2" in finding.remedy for finding in examine(restricted))


# as onnxruntime-gpu 1.31.1 prints it where there is no CUDA; only the library's name varies
FAILED_TO_LOAD = (
    "\x1b[1;31m2026-11-30 10:41:03.767499824 [E:onnxruntime:Default, provider_bridge_ort.cc:2458 operator()] "
    "/onnxruntime_src/onnxruntime/core/session/provider_bridge_ort.cc:2043 onnxruntime::Provider& onnxruntime::"
    "ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library /venv/lib/onnxruntime/capi/"
    "libonnxruntime_providers_cuda.so with error: {}: cannot open shared object file: No such file or directory\n"
    "\x1b[m\n\x1b[0;93m2026-11-30 10:41:03.767520413 [W:onnxruntime:Default, onnxruntime_pybind_state.cc:1101] Failed "
    "to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 13.*. Please install all dependencies\x1b[m\n"
)
CUDA_FAILURE = "RuntimeError: cuda_call.cc:123 CudaCall CUDA failure {}; GPU=0 ; hostname=a ; expr=cudaSetDevice(0);\n"


@pytest.mark.parametrize(
    ("errors", "cause", "remedy"),
    [
        (FAILED_TO_LOAD.format("libcudnn.so.9"), "library of cuDNN", "pilotfish[cuda]"),
        (FAILED_TO_LOAD.format("libcudnn_adv.so.9"), "library of cuDNN", "pilotfish[cuda]"),
        (FAILED_TO_LOAD.format("libcublasLt.so.13"), "library of CUDA", "pilotfish[cuda]"),
        (FAILED_TO_LOAD.format("libcurand.so.10"), "library of CUDA", "pilotfish[cuda]"),
        (FAILED_TO_LOAD.format("libcuda.so.1"), "driver is not installed", "driver"),
        ('Error loading "onnxruntime_providers_cuda.dll" which depends on "cudnn64_9.dll"', "cuDNN", "pilotfish[cuda]"),
        ('Error loading "onnxruntime_providers_cuda.dll" which depends on "cublas64_13.dll"', "of CUDA", "cuda"),
        ("Failed to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 13.*.", "of CUDA or cuDNN", "cuda"),
        (CUDA_FAILURE.format("100: no CUDA-capable device is detected "), "sees no NVIDIA GPU", "CUDA_VISIBLE_DEVICES"),
        (CUDA_FAILURE.format("101: invalid device ordinal "), "no GPU of that number", "CUDA_VISIBLE_DEVICES"),
        (CUDA_FAILURE.format("35: CUDA driver version is insufficient for CUDA runtime"), "or too old", "driver"),
        (CUDA_FAILURE.format("803: system has unsupported display driver / cuda driver combination "), "different",
         "restart"),
        (CUDA_FAILURE.format("209: no kernel image is available for execution on the device "), "GPU is too", "older"),
        (CUDA_FAILURE.format("2: out of memory "), "memory is full", "nvidia-smi"),
        (CUDA_FAILURE.format("46: CUDA-capable device(s) is/are busy or unavailable"), "another process", "nvidia-smi"),
        # as the probe's process prints it before ONNX Runtime names what else is missing
        ("libcuda.so.1: cannot open shared object file\n" + FAILED_TO_LOAD.format("libcublasLt.so.13"),
         "driver is not installed", "driver"),
        (FAILED_TO_LOAD.format("libnvinfer.so.10").replace("cuda.so", "tensorrt.so"), "of TensorRT", "TensorRT 10"),
        ("RuntimeError: Please install TensorRT libraries as mentioned in the GPU requirements page", "of TensorRT",
         "--device cuda"),
        ("something new\n", "does not say why", "driver"),
        ("", "does not say why", "driver"),
    ],
)  # fmt: skip
def test_the_causes_of_a_missing_cuda_session_are_told_apart(errors: str, cause: str, remedy: str):
    for returncode, output in ((1, ""), (0, "providers CPUExecutionProvider\n")):
        probe = judge(returncode, output, errors)
        assert not probe.is_open
        assert cause in probe.cause
        assert remedy in probe.remedy
        assert probe.detail in errors


def test_each_provider_is_judged_by_itself():
    output = "providers CUDAExecutionProvider CPUExecutionProvider\n"
    assert judge(0, output, "").is_open
    assert not judge(0, output, "", TENSORRT).is_open
    assert judge(0, f"providers {TENSORRT} {CUDA_PROVIDER}\n", "", TENSORRT).is_open


@pytest.mark.parametrize(
    ("there", "cause"),
    [
        (["libcublasLt.so.12"], "another version: libcublasLt.so.12, where libcublasLt.so.13 is needed"),
        (["libcublasLt.so.12", "libcublasLt.so.13"], "a library of CUDA is missing"),
        (["libcublas.so.12"], "a library of CUDA is missing"),
        ([], "a library of CUDA is missing"),
    ],
)
def test_a_wrong_version_is_no_missing_library(tmp_path: Path, there: list[str], cause: str):
    for name in there:
        (tmp_path / name).touch()
    found = judge(1, "", FAILED_TO_LOAD.format("libcublasLt.so.13"))
    assert cause in with_other_version(found, [tmp_path / "none", tmp_path]).cause


def test_tensorrt_that_is_not_there_is_no_problem():
    facts = replace(FACTS, providers=CUDA, cuda=CudaProbe(True), tensorrt=CudaProbe(False, "the cause", "the remedy"))
    assert problems(facts) == []
    assert "TensorRT: is listed, but no session can be opened: the cause" in "\n".join(map(line, examine(facts)))


def test_the_detail_is_what_the_line_with_the_cause_says():
    assert judge(0, "", FAILED_TO_LOAD.format("libcudnn.so.9")).detail == (
        "Failed to load library /venv/lib/onnxruntime/capi/libonnxruntime_providers_cuda.so with error: libcudnn.so.9: "
        "cannot open shared object file: No such file or directory"
    )


def test_a_crash_and_a_success_are_told_apart():
    assert "signal 11" in judge(-11, "", "").cause
    assert judge(0, "providers CUDAExecutionProvider CPUExecutionProvider\n", "a warning") == CudaProbe(True)
    assert not judge(1, "providers CUDAExecutionProvider\n", "").is_open


def test_the_probe_graph_is_small_sound_and_computed():
    assert len(ADD_MODEL) < 200
    onnx.checker.check_model(onnx.load_from_string(ADD_MODEL), full_check=True)
    assert run_add("CPUExecutionProvider") == ["CPUExecutionProvider"]


def test_a_cpu_only_build_is_never_asked_for_a_cuda_session():
    if "CUDAExecutionProvider" not in collect().providers:
        assert collect().cuda is None


def test_the_facts_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "not/yet"))
    facts = collect()
    assert facts.cache == str(tmp_path / "not/yet")
    assert facts.cache_fault == ""
    assert list(tmp_path.iterdir()) == []
    assert "CPUExecutionProvider" in facts.providers
    assert facts.versions["numpy"]
    assert 1 <= facts.num_usable_cores <= facts.num_cores


def test_limits_of_a_container_count(tmp_path: Path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  4000 kB\nMemAvailable:   2000 kB\n")
    assert linux_free_bytes(meminfo, tmp_path) == 2_048_000
    assert linux_free_bytes(tmp_path / "none", tmp_path) is None
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    assert linux_free_bytes(meminfo, tmp_path) == 600_000
    (tmp_path / "memory.max").write_text("max\n")
    assert linux_free_bytes(meminfo, tmp_path) == 2_048_000
    whole = num_usable_cores(tmp_path)
    for text, expected in (("max 100000", whole), ("100000 100000", 1), ("50000 100000", 1), ("9900000 100000", whole)):
        (tmp_path / "cpu.max").write_text(text)
        assert num_usable_cores(tmp_path) == expected


VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               12345.
Pages active:                            400000.
Pages inactive:                          300000.
Pages speculative:                         1000.
Pages throttled:                              0.
Pages wired down:                        200000.
Pages purgeable:                           5000.
"Translation faults":                 123456789.
Pages stored in compressor:              654321.
"""


def test_free_memory_is_told_or_unknown():
    assert macos_free_bytes(VM_STAT) == 16384 * (12345 + 300000 + 1000 + 5000)
    assert macos_free_bytes("") is None
    assert macos_free_bytes("Pages free: 5.") is None
    assert windows_free_bytes(SimpleNamespace(GlobalMemoryStatusEx=_windows_status)) == 6_000_000_000
    assert windows_free_bytes(SimpleNamespace(GlobalMemoryStatusEx=lambda _: 0)) is None
    assert free_memory() > 1 << 20


def _windows_status(status) -> int:
    """What Windows does with a MEMORYSTATUSEX, which has 64 bytes and must say so."""
    buffer = (ctypes.c_uint64 * 8).from_address(ctypes.addressof(status._obj))
    assert buffer[0] & 0xFFFFFFFF == ctypes.sizeof(status._obj) == 64
    buffer[2] = 6_000_000_000
    return 1


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    assert "none cannot be written: No such file" in write_fault(tmp_path / "none")
    assert write_fault(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("change", "code"), [({}, None), ({"cache_fault": "full"}, 1)])
def test_the_command_prints_and_ends_with_its_code(monkeypatch, capsys: pytest.CaptureFixture, change: dict, code):
    monkeypatch.setattr("pilotfish.runtime.doctor.collect", lambda: replace(FACTS, **change))
    for as_json in (False, True):
        if code is None:
            doctor(as_json)
        else:
            with pytest.raises(typer.Exit) as caught:
                doctor(as_json)
            assert caught.value.exit_code == code
        printed = capsys.readouterr().out
        if as_json:
            assert json.loads(printed)["num_problems"] == (code or 0)
        else:
            assert printed.count("PROBLEM") == (code or 0)


def test_the_program_has_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr("pilotfish.runtime.doctor.collect", lambda: replace(FACTS, cache_fault="full"))
    assert run(["doctor"]) == 1
    assert "PROBLEM  cache" in capsys.readouterr().out


def test_without_onnxruntime_the_doctor_still_examines():
    code = "import sys; sys.modules['onnxruntime'] = None\nfrom pilotfish.runtime.doctor import doctor\ndoctor()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "PROBLEM  ONNX Runtime: import of onnxruntime halted" in ended.stdout
    assert "memory" in ended.stdout
