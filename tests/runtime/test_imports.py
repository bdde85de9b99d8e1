"""What `import pilotfish.runtime` brings along, and what it offers."""

from __future__ import annotations

import subprocess
import sys

from pilotfish import runtime

HEAVY = (
    "torch",
    "transformers",
    "onnx",
    "PySide6",
    "optimum",
    "gguf",
    "safetensors",
    "huggingface_hub",
    "llguidance",
    "rich",
    "typer",
    "matplotlib",
)


def modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_the_runtime_pulls_in_nothing_heavy():
    loaded = modules_after("import pilotfish.runtime")
    assert not loaded & set(HEAVY)
    assert not any(name.startswith(("pilotfish.export", "pilotfish.desktop_app")) for name in loaded)


def test_generating_pulls_in_nothing_heavy(bundle_path):
    loaded = modules_after(f"from pilotfish import runtime\nlist(runtime.load({str(bundle_path)!r}).generate('x'))")
    assert not loaded & (set(HEAVY) - {"rich"})
    assert "onnxruntime" in loaded


def test_the_same_measure_notices_a_heavy_import():
    assert "safetensors" in modules_after("import pilotfish.runtime, safetensors")


def test_without_onnxruntime_the_error_names_the_command(bundle_path):
    code = (
        "import sys; sys.modules['onnxruntime'] = None\n"
        "from pilotfish import runtime\n"
        f"try: runtime.load({str(bundle_path)!r})\n"
        "except runtime.DeviceError as error: print('said:', error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'pilotfish[cpu]'" in run.stdout


def test_the_public_names():
    assert sorted(runtime.__all__) == [
        "Bundle", "BundleError", "CacheFileError", "Cancelled", "Chunk", "ContextOverflowError", "DeviceError",
        "Engine", "GenerationOptions", "Grammar", "GrammarError", "OptionError", "PilotfishError", "SamplingParams",
        "Stats", "TemplateError", "TokenLogprob", "load", "load_bundle",
    ]  # fmt: skip
    assert all(getattr(runtime, name).__doc__ for name in runtime.__all__)
