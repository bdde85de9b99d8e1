"""The files for onnxruntime-genai: its graph computes what the bundle's own does, over the same data file."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.pairing import vocabulary_of
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import BuiltSource, open_source
from pilotfish.export.verification import check_files
from pilotfish.runtime import load
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.cli import run
from pilotfish.runtime.decoder import Decoder
from support.checkpoint_files import write_gguf, write_pretrained
from support.tiny_models import tiny_checkpoint
from support.traced_models import tiny_model

IDS = np.random.default_rng(5).integers(0, 300, 40)
STEPS = (23, 1, 1, 7, 1, 1)  # tokens of each pass
CAPACITY = 64


class Masked:
    """A graph as onnxruntime-genai runs it: told a mask as long as the text, with past and present in one buffer."""

    def __init__(self, folder: Path, config_path: Path) -> None:
        config = json.loads(config_path.read_text())["model"]
        decoder = config["decoder"]
        self._names = decoder["inputs"] | decoder["outputs"]
        self._session = onnxruntime.InferenceSession(folder / decoder["filename"])
        self._binding, self.length = self._session.io_binding(), 0
        shape = (1, decoder["num_key_value_heads"], CAPACITY, decoder["head_size"])
        for layer in range(decoder["num_hidden_layers"]):
            for part in ("key", "value"):
                buffer = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
                self._binding.bind_ortvalue_input(self._names[f"past_{part}_names"] % layer, buffer)
                self._binding.bind_ortvalue_output(self._names[f"present_{part}_names"] % layer, buffer)

    def forward(self, token_ids: np.ndarray) -> np.ndarray:
        """(1, 1, V): the logits of the last token."""
        self.length += len(token_ids)
        self._binding.bind_cpu_input(self._names["input_ids"], token_ids[None])
        self._binding.bind_cpu_input(self._names["attention_mask"], np.ones((1, self.length), np.int64))
        self._binding.bind_output(self._names["logits"])
        self._session.run_with_iobinding(self._binding)
        return self._binding.get_outputs()[-1].numpy()  # in the order of binding


def check_logits(bundle_path: Path) -> None:
    bundle = load_bundle(bundle_path)
    places = {"target": bundle_path, "draft": bundle_path / "draft"}
    for role, model in bundle.manifest.models.items():
        masked, start = Masked(places[role], places[role] / "genai_config.json"), 0
        with Decoder(model, bundle_path / model.graph, device="cpu", context_length=CAPACITY) as decoder:
            for num_tokens in STEPS:
                block = IDS[start : start + num_tokens]
                expected, found = decoder.forward(block.tolist(), 1), masked.forward(block)
                assert found.shape == (1, 1, model.vocab_size)
                np.testing.assert_allclose(found[0], expected, atol=1e-5 * np.abs(expected).max(), rtol=0)
                start += num_tokens


@pytest.mark.parametrize("recipe", ["fp32", "int8", "int4", "w8a8", "int4-mixed"])
def test_the_logits_are_those_of_the_bundles_own_graph(recipe: str, tmp_path: Path):
    source = BuiltSource(tiny_checkpoint(), parse_recipe(recipe))
    check_logits(write_bundle(source, source, tmp_path / "bundle", verify=False, genai=True))


@pytest.mark.skipif(importlib.util.find_spec("optimum") is None, reason="tracing needs optimum")
@pytest.mark.parametrize("name", ["gpt2", "gemma3_text"])
def test_the_logits_of_a_traced_model(name: str, tmp_path: Path):
    source = open_source(write_pretrained(tiny_model(name), tmp_path / "model"), parse_recipe("int8"))
    check_logits(write_bundle(source, None, tmp_path / "bundle", verify=False, genai=True))


def test_nothing_is_stored_twice_and_the_manifest_has_the_files(tmp_path: Path):
    source, bundle = str(write_gguf(tmp_path / "tiny.gguf")), tmp_path / "bundle"
    arguments = ["export", "--target", source, "--draft", source]
    assert run([*arguments, "-o", str(bundle), "--genai"]) == 0
    assert run([*arguments, "-o", str(tmp_path / "plain")]) == 0
    added = set(load_bundle(bundle).manifest.files) - set(load_bundle(tmp_path / "plain").manifest.files)
    assert added == {
        "genai_config.json", "tokenizer_config.json", "target/genai.onnx", "draft/genai.onnx",
        "draft/genai_config.json",
    }  # fmt: skip
    check_files(load_bundle(bundle))
    for role in ("target", "draft"):
        own, other = (
            onnx.load(bundle / role / name, load_external_data=False) for name in ("model.onnx", "genai.onnx")
        )
        external = [tensor for tensor in own.graph.initializer if tensor.external_data]
        assert external
        assert [tensor for tensor in other.graph.initializer if tensor.external_data] == external
        assert other.ByteSize() < own.ByteSize() + 2000
        assert {value.name.split(".")[0] for value in other.graph.output} == {"logits", "present"}
        assert "TopK" not in {node.op_type for node in other.graph.node}
    with load(bundle) as engine:
        assert engine.bundle.manifest.draft is not None


def test_the_settings_name_the_tokens(tmp_path: Path):
    source = BuiltSource(tiny_checkpoint(), parse_recipe("int8"))
    bundle = load_bundle(write_bundle(source, None, tmp_path / "bundle", verify=False, genai=True))
    config = json.loads((bundle.path / "genai_config.json").read_text())
    texts = vocabulary_of((bundle.path / "tokenizer.json").read_text())
    tokenizer = bundle.manifest.tokenizer
    assert config["model"]["eos_token_id"] == list(tokenizer.end_token_ids)
    assert texts[config["model"]["pad_token_id"]] == tokenizer.eos_token
    assert config["model"]["vocab_size"] == bundle.manifest.target.vocab_size
    assert config["model"]["context_length"] == bundle.manifest.target.max_positions >= config["search"]["max_length"]
