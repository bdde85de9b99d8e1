"""Any architecture: the traced graph computes what transformers computes for the same weights, or is refused."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.checkpoint import open_checkpoint
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import BuiltSource, open_source
from pilotfish.export.traced import write_traced
from pilotfish.export.trimmed import Trimmed
from pilotfish.runtime import load
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.cli import run
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.errors import CheckpointError, OptionError
from pilotfish.runtime.generation import GenerationOptions
from support.checkpoint_files import OPTIONS, write_folder, write_gguf, write_pretrained
from support.speculation import assert_it_drafts_for_itself
from support.traced_models import ARCHITECTURES, Attempt, attempt, documented, exported, tiny_model

REQUIRED = {
    "llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "phi3", "granite", "olmo2", "smollm3", "cohere",
    "glm", "starcoder2", "stablelm", "gpt_neox", "falcon", "gpt2", "opt",
}  # fmt: skip
TIED = OPTIONS | {"tie_word_embeddings": True}
IDS = np.random.default_rng(3).integers(0, 300, 48).tolist()

needs_optimum = pytest.mark.skipif(
    importlib.util.find_spec("optimum") is None, reason="tracing needs optimum: pip install 'pilotfish[torch]'"
)


@pytest.fixture(scope="module")
def attempted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Attempt]:
    """Exports each architecture once for all tests."""
    return functools.cache(lambda name: attempt(name, tmp_path_factory.mktemp("traced")))


@needs_optimum
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_gives_equal_logits_or_is_refused_as_documented(name: str, attempted):
    assert attempted(name).outcome == documented()[name]


@needs_optimum
@pytest.mark.parametrize("name", [name for name, outcome in documented().items() if "equal" in outcome])
def test_an_architecture_drafts_for_itself(name: str, attempted):
    folder, entry = attempted(name).folder, attempted(name).entry
    assert_it_drafts_for_itself(entry, folder / entry.graph, folder)


def test_the_table_has_every_architecture_and_those_required_pass():
    table = documented()
    assert list(table) == list(ARCHITECTURES)
    assert {name for name in REQUIRED if table[name] != "equal"} == set()


@needs_optimum
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_builder_and_trace_give_equal_logits(family: str, tmp_path: Path):
    folder = write_folder(tmp_path / "model", TIED | {"model_type": family, "sliding_window": 7})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"metadata": {}}))  # transformers wants that
    _, entry = write_traced(folder, parse_recipe("fp32"), tmp_path)
    with open_checkpoint(folder) as checkpoint:
        bundle = load_bundle(write_bundle(BuiltSource(checkpoint, parse_recipe("fp32")), None, tmp_path / "bundle"))
    built = bundle.manifest.target
    for name in ("family", "num_layers", "num_kv_heads", "head_dim", "vocab_size", "max_positions", "tensors"):
        assert getattr(entry, name) == getattr(built, name)
    np.testing.assert_allclose(
        logits(entry, tmp_path / entry.graph), logits(built, bundle.path / built.graph), rtol=0, atol=1e-4
    )


@needs_optimum
@pytest.mark.parametrize(("recipe", "least"), [("int8", 0.97), ("w8a8", 0.9), ("w8a16", 0.97), ("int4-b16", 0.7)])
@pytest.mark.parametrize("name", ["llama", "gpt2", "falcon", "gpt2, tied", "mixtral"])
def test_quantized_logits_stay_near(recipe: str, least: float, name: str, tmp_path: Path):
    found = []
    for text in ("fp32", recipe):
        (tmp_path / text).mkdir()
        with exported(name, tmp_path / text, text) as decoder:
            found.append(decoder.forward(IDS, len(IDS)).copy())
    assert np.corrcoef(found[0].ravel(), found[1].ravel())[0, 1] > least


@needs_optimum
def test_products_of_the_same_activations_are_one_and_a_tied_head_is_stored_once(tmp_path: Path):
    sizes = {}
    for name in ("llama", "llama, tied"):
        (tmp_path / name).mkdir()
        exported(name, tmp_path / name, "int8").close()
        model = onnx.load(tmp_path / name / "model.onnx", load_external_data=False)
        kinds = [node.op_type for node in model.graph.node]
        assert (kinds.count("MatMulNBits"), kinds.count("GroupQueryAttention")) == (3 * 4 + 1, 3)
        assert kinds.count("SkipSimplifiedLayerNormalization") == 3 * 2
        sizes[name] = (tmp_path / name / "model.onnx.data").stat().st_size
    assert sizes["llama"] - sizes["llama, tied"] >= 320 * 64


@needs_optimum
@pytest.mark.parametrize("name", ["llama", "granitemoe"])
def test_a_trace_holds_no_copy_of_a_weight(name: str):
    from pilotfish.export.traced_model import trace

    model = tiny_model(name)
    traced = trace(model)
    assert not traced.graph.graph.initializer
    for name, weights in model.named_parameters():
        assert np.shares_memory(traced.weights[f"model.{name}"], weights.detach().numpy())
        if weights.ndim == 3:
            assert np.shares_memory(traced.weights[f"model.{name}.1"], weights[1].detach().numpy())


@needs_optimum
@pytest.mark.parametrize("name", ["mixtral", "granitemoe", "qwen3_moe"])
def test_each_experts_weights_are_stored_by_the_recipe(name: str, tmp_path: Path):
    exported(name, tmp_path, "int8").close()
    graph = onnx.load(tmp_path / "model.onnx", load_external_data=False).graph
    assert [node.op_type for node in graph.node].count("MatMulNBits") == 3 * (2 + 1 + 4 * 2) + 1
    floats = [tensor.dims for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
    assert not [dims for dims in floats if 96 in dims or (32 in dims and 64 in dims)]


@needs_optimum
@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe", "granitemoe", "olmoe", "phimoe", "qwen3_moe", "dbrx"])
def test_the_compared_tokens_choose_different_experts(name: str):
    """In each layer every expert is chosen by some tokens and not by others."""
    from pilotfish.export.traced_gate import Reference

    model = tiny_model(name)
    text = Reference(model, 320).texts[0]
    with torch.no_grad():
        layers = model(torch.tensor([text]), output_router_logits=True, use_cache=False).router_logits
    assert len(layers) == 3
    for router_logits in layers:
        chosen = np.zeros(router_logits.shape, bool)
        np.put_along_axis(chosen, router_logits.topk(2, dim=-1).indices.numpy(), True, axis=-1)
        assert chosen.shape == (len(text), 4)
        assert ((chosen.sum(axis=0) > 0) & (chosen.sum(axis=0) < len(text))).all()


@needs_optimum
@pytest.mark.parametrize("lost", ["sliding_window", "softcap", "scaling"])
@pytest.mark.parametrize("window", [8, 4096])
def test_an_attention_option_that_gets_lost_is_noticed(
    lost: str, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also a window that is far wider than the gate's text."""
    from pilotfish.export.traced_attention import GraphCache

    attend = GraphCache.attend
    monkeypatch.setitem(ARCHITECTURES, "gemma2", ARCHITECTURES["gemma2"] | {"sliding_window": window})
    monkeypatch.setattr(GraphCache, "attend", lambda *args, **options: attend(*args, **options | {lost: None}))
    with pytest.raises(CheckpointError, match=r"gemma2 cannot be exported: its logits differ .* by up to \d"):
        exported("gemma2", tmp_path)
    assert not (tmp_path / "model.onnx").exists()


@needs_optimum
def test_a_bias_in_the_attention_is_told_and_not_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    exported("falcon, alibi", tmp_path).close()
    assert "attention stays in single operators, which is slower" in caplog.text
    assert "its attention adds a bias" in caplog.text


@needs_optimum
def test_a_wide_window_is_exported_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(ARCHITECTURES, "mistral", {"sliding_window": 4096})
    exported("mistral", tmp_path).close()
    graph = onnx.load(tmp_path / "model.onnx", load_external_data=False).graph
    windows = [
        attribute.i for node in graph.node for attribute in node.attribute if attribute.name == "local_window_size"
    ]
    assert windows == [4096] * 3


@needs_optimum
def test_a_table_of_positions_may_be_filled_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(
        ARCHITECTURES, "gpt2", ARCHITECTURES["gpt2"] | {"n_positions": 64, "max_position_embeddings": 64}
    )
    with exported("gpt2", tmp_path) as decoder:
        decoder.forward([7] * 63, 0)
        plain = decoder.forward([5], 1).copy()
        decoder.rollback(63)
        decoder.exact_widths = (4,)
        np.testing.assert_allclose(decoder.forward([5], 1), plain, atol=1e-4)


@needs_optimum
@pytest.mark.parametrize(("name", "num_positions"), [("phi3, longrope", 128), ("llama, dynamic rope", 512)])
def test_positions_end_where_the_rotation_would_change(name: str, num_positions: int, tmp_path: Path):
    tiny_model(name).save_pretrained(tmp_path / "model")
    _, entry = write_traced(tmp_path / "model", parse_recipe("fp32"), tmp_path)
    assert entry.max_positions == num_positions


@needs_optimum
@pytest.mark.parametrize(
    ("options", "fault"),
    [({"tie_word_embeddings": False}, "1 weights are missing in a llama, such as lm_head"),
     ({"num_hidden_layers": 1}, "18 weights are unexpected in a llama, such as model.layers.1"),
     ({"intermediate_size": 80}, "cannot load the model")],
)  # fmt: skip
def test_weights_that_do_not_fit_the_configuration_are_refused(options: dict, fault: str, tmp_path: Path):
    """PyTorch would fill in random ones, and the gate would find the graph equal to them."""
    tiny_model("llama, tied").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | options))
    with pytest.raises(CheckpointError, match=fault):
        write_traced(tmp_path, parse_recipe("fp32"), tmp_path)


@needs_optimum
def test_what_is_no_causal_language_model_is_refused_by_name(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(CheckpointError, match="t5 cannot be exported: transformers has no causal language model"):
        write_traced(tmp_path, parse_recipe("fp32"), tmp_path)
    with pytest.raises(CheckpointError, match=r"cannot read config\.json"):
        write_traced(tmp_path / "nowhere", parse_recipe("fp32"), tmp_path)


def test_without_the_extra_the_error_names_the_command(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path\n"
        "import pilotfish.export.traced as traced, pilotfish.export.passes\n"
        "assert not {'torch', 'transformers', 'optimum'} & set(sys.modules)\n"
        "traced.importlib.util.find_spec = lambda name: None\n"
        "try: traced.write_traced(Path('.'), None, Path('.'))\n"
        "except traced.OptionError as error: print('said:', error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "needs torch, transformers, optimum; run `pip install 'pilotfish[cpu,export,torch]'`" in run.stdout


def logits(entry, graph_path: Path) -> np.ndarray:
    with Decoder(entry, graph_path, device="cpu", context_length=64) as decoder:
        return decoder.forward(IDS, len(IDS)).copy()


@needs_optimum
@pytest.mark.parametrize("recipe", ["fp32", "int8", "w8a8"])
@pytest.mark.parametrize("name", ["gpt2, tied", "gemma2", "cohere", "phi", "mixtral"])
def test_the_head_of_a_traced_draft_is_trimmed(name: str, recipe: str, tmp_path: Path):
    source, ids = (
        open_source(write_pretrained(tiny_model(name), tmp_path / "model"), parse_recipe(recipe)),
        np.arange(0, 250, 2),
    )
    found = []
    for number, draft in enumerate((source, Trimmed(source, ids))):
        bundle = load_bundle(write_bundle(source, draft, tmp_path / str(number), verify=False))
        entry = bundle.manifest.draft
        with Decoder(entry, bundle.path / entry.graph, device="cpu", context_length=len(IDS)) as decoder:
            found.append(decoder.forward(IDS, len(IDS)).copy())
    np.testing.assert_allclose(found[1], found[0][:, ids], rtol=0, atol=1e-4)


@needs_optimum
@pytest.mark.parametrize("name", ["gpt2", "cohere", "gemma3_text", "falcon"])
def test_a_command_exports_an_architecture_that_drafts_for_itself(name: str, tmp_path: Path, capsys):
    """From the command to the output: as its own draft everything is accepted, and a coarser copy changes nothing."""
    model, bundles = str(write_pretrained(tiny_model(name), tmp_path / "model")), {}
    for draft_recipe in ("fp32", "int8"):
        bundles[draft_recipe] = tmp_path / draft_recipe
        arguments = ["--target", model, "--draft", model, "--quant", "fp32", "--draft-quant", draft_recipe]
        assert run(["export", *arguments, "-o", str(bundles[draft_recipe])]) == 0, capsys.readouterr().err
        report = load_bundle(bundles[draft_recipe]).manifest.target.parity
        assert report.reference == "PyTorch"
        assert report.mean_kl < 1e-6
    assert run(["verify", str(bundles["fp32"]), "--target", model]) == 0, capsys.readouterr().err
    outputs = {}
    for draft_recipe, draft in (("fp32", "off"), ("fp32", "model"), ("int8", "model")):
        with load(bundles[draft_recipe]) as engine:
            chunks = engine.generate("the pilot fish", GenerationOptions(max_tokens=40, draft=draft))
            outputs[draft_recipe, draft] = [token_id for chunk in chunks for token_id in chunk.token_ids]
            if draft == "model":
                assert engine.stats.num_drafted > 0
                assert (engine.stats.acceptance_rate == 1) >= (draft_recipe == "fp32")
    assert len(set(map(tuple, outputs.values()))) == 1


def test_without_the_extra_a_model_without_a_builder_is_refused_with_both_reasons(tmp_path: Path, monkeypatch):
    folder = write_folder(tmp_path / "model", TIED | {"model_type": "gemma2"})
    monkeypatch.setattr("pilotfish.export.traced.importlib.util.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"no builder \(the model is of family 'gemma2'.*needs torch.*pip install"):
        open_source(folder, parse_recipe("fp32"))


def test_a_gguf_without_a_builder_is_refused_by_name(tmp_path: Path):
    path = write_gguf(tmp_path / "model.gguf")
    path.write_bytes(path.read_bytes().replace(b"llama", b"lemma"))
    with pytest.raises(CheckpointError, match="family 'lemma'"):
        open_source(path, parse_recipe("fp32"))


@needs_optimum
@pytest.mark.parametrize("recipe", ["fp32", "int8", "int4", "w8a8", "w8a16"])
@pytest.mark.parametrize("name", ["gpt2", "gemma3_text", "glm4_moe"])
def test_the_room_for_a_traced_model_holds_what_is_written(name: str, recipe: str, tmp_path: Path):
    source = open_source(write_pretrained(tiny_model(name), tmp_path / "model"), parse_recipe(recipe))
    source.write(tmp_path, "target", lambda num_weights: None)
    assert sum(path.stat().st_size for path in (tmp_path / "target").iterdir()) <= source.num_bytes
