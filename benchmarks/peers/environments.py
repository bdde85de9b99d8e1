"""Makes each peer's virtual environment from its pinned requirements, and llama.cpp's server from its source.

Usage: python benchmarks/peers/environments.py FOLDER [--only openvino ...]

`FOLDER` gets an environment for each `*.txt` beside this script, of the same name; one that is there stays as it is.
Needs CPython 3.11 or 3.12 and, for llama.cpp, cmake and a C++ compiler: it is built with the instructions of this very
machine, once as the library of llama-cpp-python and once as `llama-server`, from the source that is in the same release
(20 minutes on two cores).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
LLAMA_CPP = "llama_cpp"
OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
)  # fmt: skip


def requirements() -> dict[str, Path]:
    """The requirements files by the name of their environment."""
    return {path.stem: path for path in sorted(HERE.glob("*.txt"))}


def make(folder: Path, path: Path) -> None:
    """Makes the environment of a requirements file; a failed one is removed."""
    python = folder / "bin" / "python"
    try:
        run([sys.executable, "-m", "venv", str(folder)])
        native = {"CMAKE_ARGS": "-DGGML_NATIVE=ON"} if path.stem == LLAMA_CPP else {}
        run([str(python), "-m", "pip", "install", "--quiet", "-r", str(path)], native)
        if path.stem == LLAMA_CPP:
            add_server(folder, release_of(path))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def release_of(path: Path) -> str:
    """The line that pins llama-cpp-python."""
    return next(line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("llama_cpp_python=="))


def add_server(folder: Path, release: str) -> None:
    """Builds `llama-server` out of the source archive of a release, into the environment's `bin`."""
    with tempfile.TemporaryDirectory() as place:
        pip = [str(folder / "bin" / "python"), "-m", "pip", "download", "--quiet", "--no-deps"]
        run([*pip, "--no-binary", "llama_cpp_python", "--dest", place, release])
        with tarfile.open(next(Path(place).glob("*.tar.gz"))) as archive:
            archive.extractall(place, filter="data")
        source = next(Path(place).glob("*/vendor/llama.cpp"))
        build = Path(place) / "build"
        run(["cmake", "-S", str(source), "-B", str(build), *OPTIONS])
        run(["cmake", "--build", str(build), "--target", "llama-server", "--parallel", "2"])
        shutil.copy2(build / "bin" / "llama-server", folder / "bin")


def run(command: list[str], more: Mapping[str, str] | None = None) -> None:
    """Runs a command, shows it, and raises if it fails."""
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True, env={**os.environ, **(more or {})})


def main() -> None:
    """Makes those that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(requirements()))
    arguments = parser.parse_args()
    for name, path in requirements().items():
        if name in (arguments.only or requirements()) and not (arguments.folder / name).exists():
            make(arguments.folder / name, path)


if __name__ == "__main__":
    main()
