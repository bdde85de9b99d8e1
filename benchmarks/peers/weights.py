"""Makes what the peers run out of the two GGUF files: each in the format, and with the tools, of its peer.

Usage: python benchmarks/peers/weights.py TARGET.gguf DRAFT.gguf ENVIRONMENTS FOLDER

`ENVIRONMENTS` is what `environments.py` made. What is in `FOLDER` already stays as it is. All start from the weights
that the GGUF files hold: llama.cpp runs these files, everything else is made of the dequantized weights, and so is
rounded once more. Needs 25 GB of disk and 16 GB of memory, and takes 15 minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from folder import write_folder

BENCHMARKS = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Tools:
    """Where the programs of the peers are."""

    environments: Path

    def script(self, environment: str, name: str) -> str:
        """A program in the `bin` of an environment."""
        return str(self.environments / environment / "bin" / name)

    def openvino(self, source: Path, weights: str, output: Path) -> None:
        """OpenVINO's model, by optimum-intel, compressed by nncf."""
        how = {"int8": ["int8"], "int4": ["int4", "--sym", "--group-size", "128", "--ratio", "1.0"]}[weights]
        task = ["--task", "text-generation-with-past", "--weight-format"]
        _run([self.script("openvino", "optimum-cli"), "export", "openvino", "--model", str(source), *task, *how,
              str(output)])  # fmt: skip

    def genai(self, source: Path, weights: str, block_size: int, output: Path) -> None:
        """onnxruntime-genai's graph, by its own builder."""
        builder = [self.script("genai", "python"), "-m", "onnxruntime_genai.models.builder"]
        options = ["--extra_options", "accuracy_level=4", f"block_size={block_size}"]
        with_cache = ["-e", "cpu", "-c", str(output.with_name("genai-cache"))]
        _run([*builder, "-i", str(source), "-o", str(output), "-p", weights, *with_cache, *options])

    def optimum(self, source: Path, output: Path) -> None:
        """optimum's graph, traced in float32 and quantized by ONNX Runtime's own tool.

        optimum's ORTQuantizer has the same weights in memory three times, more than 21 GB.
        """
        program, quantizer = self.script("optimum", "optimum-cli"), "onnxruntime.quantization.matmul_nbits_quantizer"
        _run([program, "export", "onnx", "--model", str(source), "--task", "text-generation-with-past",
              "--no-post-process", str(output)])  # fmt: skip
        traced = output / "traced.onnx"
        (output / "model.onnx").rename(traced)
        _run([self.script("optimum", "python"), "-m", quantizer, "--input_model", str(traced), "--output_model",
              str(output / "model.onnx"), "--bits", "8", "--block_size", "32", "--symmetric", "True",
              "--accuracy_level", "4"])  # fmt: skip
        traced.unlink()
        (output / "model.onnx_data").unlink()

    def llama_cpp(self, source: Path, type_name: str, output: Path) -> None:
        """Another GGUF file, by llama.cpp."""
        script = str(BENCHMARKS / "recipes_llama_cpp.py")
        _run([self.script("llama_cpp", "python"), script, "quantize", str(source), type_name, str(output)])


def steps(target: Path, draft: Path, tools: Tools, folder: Path) -> Mapping[str, Callable[[Path], None]]:
    """What makes each file or folder, in order."""
    hf_target, hf_draft = folder / "hf-target", folder / "hf-draft"
    return {
        "hf-target": partial(write_folder, target),
        "hf-draft": partial(write_folder, draft),
        "q8_0-target.gguf": partial(tools.llama_cpp, target, "Q8_0"),
        "openvino-int8-target": partial(tools.openvino, hf_target, "int8"),
        "openvino-int4-target": partial(tools.openvino, hf_target, "int4"),
        "openvino-int4-draft": partial(tools.openvino, hf_draft, "int4"),
        "genai-int8-target": partial(tools.genai, hf_target, "int8", 32),
        "genai-int4-draft": partial(tools.genai, hf_draft, "int4", 128),
        "optimum-int8-target": partial(tools.optimum, hf_target),
    }


def _run(command: list[str]) -> None:
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})


def main() -> None:
    """Makes what is missing, each beside its place until it is whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("target", "draft", "environments", "folder"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    tools = Tools(arguments.environments.absolute())
    for name, make in steps(arguments.target, arguments.draft, tools, arguments.folder.absolute()).items():
        if not (arguments.folder / name).exists():
            print(name, file=sys.stderr)
            unfinished = arguments.folder.absolute() / f"unfinished-{name}"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.unlink(missing_ok=True)
            make(unfinished)
            unfinished.rename(arguments.folder / name)


if __name__ == "__main__":
    main()
