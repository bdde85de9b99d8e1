"""The floor of a pass, counted from graphs whose work is known, and the whole script on a tiny bundle."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import BuiltSource
from support.tiny_models import CONFIG, tiny_checkpoint

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "roofline.py"


@pytest.fixture(scope="module")
def roofline() -> ModuleType:
    spec = importlib.util.spec_from_file_location("roofline", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["roofline"] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    return module


def products() -> int:
    """Multiplications of a row of the tiny model, by the definition of the llama family."""
    qkv = (CONFIG.num_heads + 2 * CONFIG.num_kv_heads) * CONFIG.head_dim * CONFIG.hidden_size
    attended = CONFIG.num_heads * CONFIG.head_dim * CONFIG.hidden_size
    inner = 3 * CONFIG.hidden_size * CONFIG.intermediate_size
    return CONFIG.num_layers * (qkv + attended + inner) + CONFIG.vocab_size * CONFIG.hidden_size


@pytest.mark.parametrize(
    ("recipe", "fp32", "int8", "bytes_a_weight"),
    [
        ("fp32", 2, 0, 4),
        ("int8", 0, 2, 1 + 4 / 32),
        ("int4", 0, 2, 0.5 + 4.5 / 32),
        ("w8a8", 0, 2, 1),
        ("w8a16", 0, 4, 1),
    ],
)
def test_each_recipe_has_its_work(
    roofline: ModuleType, tmp_path: Path, recipe: str, fp32: int, int8: int, bytes_a_weight: float
):
    bundle = write_bundle(BuiltSource(tiny_checkpoint(), parse_recipe(recipe)), None, tmp_path / "b", verify=False)
    graph = onnx.load(bundle / "target" / "model.onnx", load_external_data=False).graph
    work = roofline.work_of(graph, CONFIG.head_dim)
    assert (work.fp32_ops, work.int8_ops) == (fp32 * products(), int8 * products())
    assert work.attention_ops == 4 * CONFIG.num_layers * CONFIG.num_heads * CONFIG.head_dim
    # Norms, scales of rows and small constants come on top of the matrices.
    assert bytes_a_weight * products() < work.weight_bytes < bytes_a_weight * products() * 1.25


def test_the_floor_is_the_longer_of_reading_and_multiplying(roofline: ModuleType):
    work = roofline.Work(weight_bytes=1000, fp32_ops=100, int8_ops=2000, attention_ops=1)
    rates = roofline.Rates(bytes_per_s=1e3, fp32_per_s=1e3, int8_per_s=1e4)
    one = roofline.floor_of(work, rates, width=1, num_past=99, cache_bytes_per_token=10)
    assert (one.num_bytes, one.num_ops) == (1990, 100 + 100 + 2000)
    assert (one.memory_s, one.products_s) == pytest.approx((1.99, 0.4))
    assert one.seconds == one.memory_s
    wide = roofline.floor_of(work, rates, width=16, num_past=0, cache_bytes_per_token=10)
    assert wide.seconds == wide.products_s == pytest.approx(16 * (100 + 16) / 1e3 + 16 * 2000 / 1e4)


def test_one_node_sessions_compute_what_is_timed(roofline: ModuleType):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5, 7)).astype(np.float32)
    node = onnx.helper.make_node("MatMul", ["a", "b"], ["out"])
    run = roofline._runner(node, {"a": a, "b": b.T.copy()}, 1, stored={"b"})
    np.testing.assert_allclose(run()[0], a @ b.T, rtol=1e-5)
    assert all(rate > 0 for rate in roofline.product_rates(1, 64, 1))


def test_the_script_prints_a_table_for_each_model(
    roofline: ModuleType, bundle_path: Path, capsys: pytest.CaptureFixture
):
    sizes = ["--past", "16", "--widths", "1", "4", "--repeats", "1", "--buffer", "4000000", "--matrix", "64"]
    roofline.main([str(bundle_path), *sizes])
    printed = capsys.readouterr().out
    assert printed.count("GB/s") == 4
    for role in ("target", "draft"):
        lines = printed.partition(f"{role} (fp32)")[2].splitlines()[1:4]
        assert [line.split()[0] for line in lines] == ["width", "1", "4"]
        assert float(lines[1].split()[1]) == pytest.approx(float(lines[2].split()[1]))  # bytes do not grow with width
        assert all(line.endswith("%") and float(line.split()[7]) > 0 for line in lines[1:])
