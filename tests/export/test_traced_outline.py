"""What a traced model will take is told from its configuration: without its weights, without tracing it."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from pilotfish.export.outline import TracedOutline, outline_of_path, outline_without_weights
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sizes import GRAPH_BYTES, ModelSize
from pilotfish.export.traced import write_traced
from pilotfish.runtime.cli import run
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.errors import CheckpointError
from support.checkpoint_files import write_pretrained
from support.traced_models import tiny_model

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("optimum") is None, reason="tracing needs optimum: pip install 'pilotfish[torch]'"
)

# Tied and untied, merged and not, biases, weights that are stored transposed, tables of positions, and experts: that
# are given a token or not, apart or stacked.
NAMES = (
    "gpt2", "gpt2, tied", "falcon, multi-query, parallel", "gemma2", "cohere, qk norm", "deepseek_v3",
    "opt, norm behind", "stablelm, parallel", "olmoe", "qwen3_moe", "gpt_oss",
    "mixtral", "granitemoe",
)  # fmt: skip


@pytest.mark.parametrize("recipe", ["fp32", "int8", "int4", "w8a8"])
@pytest.mark.parametrize("name", NAMES)
def test_the_predicted_sizes_are_those_of_the_export(name: str, recipe: str, tmp_path: Path):
    folder = write_pretrained(tiny_model(name), tmp_path / "model")
    size = ModelSize(outline_of_path(folder), parse_recipe(recipe))
    _, entry = write_traced(folder, size.recipe, tmp_path)
    assert size.data_bytes == pytest.approx((tmp_path / "model.onnx.data").stat().st_size, rel=0.01)
    assert (tmp_path / "model.onnx").stat().st_size < GRAPH_BYTES
    assert size.outline.config.max_positions == entry.max_positions
    for context_length in (100, 10_000):
        allowed = min(context_length, entry.max_positions)
        with Decoder(entry, tmp_path / "model.onnx", device="cpu", context_length=allowed) as decoder:
            allocated = sum(buffer.numpy().nbytes for buffer in decoder.cache.buffers.values())
        assert size.cache_bytes(context_length) == allocated


@pytest.mark.parametrize("name", ["gpt2, tied", "qwen3_moe"])
def test_the_outline_needs_no_weights(name: str, tmp_path: Path):
    folder = write_pretrained(tiny_model(name), tmp_path / "model")
    outline = outline_of_path(folder)
    assert isinstance(outline, TracedOutline)
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    assert outline_without_weights("owner/name", folder) == replace(outline, name="owner/name", path=None)


def test_parameters_are_counted_as_the_weights_are(tmp_path: Path):
    outline = outline_of_path(write_pretrained(tiny_model("gemma2"), tmp_path / "model"))
    layer = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 96 + 4 * 64
    assert outline.num_parameters == 2 * 320 * 64 + 3 * layer + 64


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mamba", "mamba cannot be exported: it keeps no cache of keys and values"),
        ("lfm2", "lfm2 cannot be exported: it keeps no cache of keys and values by heads"),
    ],
)
def test_what_keeps_no_cache_is_refused_before_its_weights_are_read(name: str, reason: str, tmp_path: Path):
    folder = write_pretrained(tiny_model(name), tmp_path / "model")
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    with pytest.raises(CheckpointError, match=reason):
        outline_without_weights("owner/name", folder)


def test_a_dry_run_tells_the_sizes_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture):
    folder, output = write_pretrained(tiny_model("gemma2"), tmp_path / "model"), tmp_path / "out"
    arguments = ["export", "--target", str(folder), "--draft", str(folder), "-o", str(output), "--draft-quant", "int4"]
    assert run([*arguments, "--dry-run", "--context", "100"]) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert not output.exists()
    for recipe in ("int8", "int4"):
        assert f"{ModelSize(outline_of_path(folder), parse_recipe(recipe)).data_bytes:,}" in printed
    assert "context of 100 tokens" in printed


def test_a_dry_run_tells_what_a_trimmed_head_takes_and_that_layers_are_not_known(tmp_path: Path, capsys):
    folder = write_pretrained(tiny_model("gpt2"), tmp_path / "model")
    arguments = ["export", "--target", str(folder), "--dry-run", "--draft"]
    whole = ModelSize(outline_of_path(folder), parse_recipe("int8"))
    assert run([*arguments, str(folder), "--draft-vocabulary", "100"]) == 0
    trimmed = replace(whole, num_head_ids=100)
    assert f"{trimmed.data_bytes:,}" in capsys.readouterr().out
    assert whole.data_bytes < trimmed.data_bytes < 1.3 * whole.data_bytes  # upper bounds count the whole head too
    assert run([*arguments, "layers:1"]) == 2
    assert "its layers are not known apart" in capsys.readouterr().err
