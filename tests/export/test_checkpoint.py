"""Source models in both formats: the same weights give the same bundle, and faults are named."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pilotfish.export.checkpoint import open_checkpoint
from pilotfish.export.config_json import config_from_hugging_face
from pilotfish.export.rope import Llama3, Rope
from pilotfish.runtime.cli import run
from pilotfish.runtime.errors import CheckpointError
from support.checkpoint_files import METADATA, OPTIONS, write_folder, write_gguf
from support.references import exported_logits
from support.tiny_models import CONFIG, tiny_weights

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
GGUF_YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}

# name: `config.json` options, GGUF architecture, GGUF metadata, both beside those that all share
SAME_MODELS = {
    "llama": ({}, "llama", {"rope.dimension_count": 16, "rope.scaling.type": "none", "expert_count": 0}),
    "llama, linear rope": ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "llama", {"rope.scale_linear": 4.0}),
    "llama, llama3 rope": ({"rope_scaling": LLAMA3}, "llama", {}),
    "mistral, window": ({"sliding_window": 7}, "llama", {"attention.sliding_window": 7}),
    "qwen2": ({}, "qwen2", {}),
    "qwen2, yarn": ({"rope_scaling": YARN}, "qwen2", GGUF_YARN),
    "qwen3": ({"head_dim": 32}, "qwen3", {"attention.key_length": 32, "attention.value_length": 32}),
    "smollm3": ({"num_hidden_layers": 4}, "smollm3", {"block_count": 4}),
    "granite": (
        {"embedding_multiplier": 12.0, "residual_multiplier": 0.25, "attention_multiplier": 0.125,
         "logits_scaling": 8.0, "attention_bias": True},
        "granite",
        {"embedding_scale": 12.0, "residual_scale": 0.25, "attention.scale": 0.125, "logit_scale": 8.0},
    ),
    "phi3, half of each head rotated": (
        {"head_dim": 32, "partial_rotary_factor": 0.5, "sliding_window": 7},
        "phi3",
        {"attention.key_length": 32, "attention.value_length": 32, "rope.dimension_count": 16,
         "attention.sliding_window": 7},
    ),
}  # fmt: skip


def greedy(bundle: Path, capsys: pytest.CaptureFixture) -> list[int]:
    arguments = ["-p", "the pilot fish", "--max-tokens", "24", "--json"]
    assert run(["generate", str(bundle), *arguments]) == 0
    return json.loads(capsys.readouterr().out)["token_ids"]


def test_a_folder_and_a_gguf_of_the_same_weights_give_the_same_text(tmp_path: Path, capsys: pytest.CaptureFixture):
    folder, file = write_folder(tmp_path / "hf"), write_gguf(tmp_path / "model.gguf")
    outputs = []
    for number, (target, draft) in enumerate([(folder, folder), (file, file), (folder, file)]):
        output = tmp_path / f"bundle{number}"
        arguments = ["--target", str(target), "--draft", str(draft), "--quant", "fp32", "-o", str(output)]
        assert run(["export", *arguments]) == 0
        assert capsys.readouterr().out.strip() == str(output)
        outputs.append(greedy(output, capsys))
    assert outputs[0] == outputs[1] == outputs[2]
    assert len(outputs[0]) > 1


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_tensors_are_read_as_float32(tmp_path: Path, dtype: type):
    with open_checkpoint(write_folder(tmp_path / "hf", dtype=dtype)) as checkpoint:
        expected = tiny_weights(CONFIG)["down", 1, "weight"][5:9].astype(dtype).astype(np.float32)
        tensor = checkpoint.get("down", (64, 96), 1)
        np.testing.assert_array_equal(tensor.rows(5, 9), expected)
        assert checkpoint.get("norm", (64,)).read().shape == (64,)


@pytest.mark.parametrize("name", SAME_MODELS)
def test_both_formats_of_each_family_give_the_same_logits(name: str, tmp_path: Path):
    changes, architecture, metadata = SAME_MODELS[name]
    options = OPTIONS | {"model_type": name.split(",")[0]} | changes
    config = config_from_hugging_face(options)
    weights = tiny_weights(config, seed=4)
    extra = {}
    if isinstance(config.rope.scaling, Llama3):
        plain = Rope(config.rope.theta, config.rope.width)
        extra = {"rope_freqs.weight": (plain.frequencies / config.rope.frequencies).astype(np.float32)}
    folder = write_folder(tmp_path / "hf", options, weights)
    file = write_gguf(tmp_path / "a.gguf", METADATA | metadata, weights, architecture=architecture, extra=extra)
    ids = np.random.default_rng(5).integers(0, 300, 40).tolist()
    logits = []
    for source in (folder, file):
        with open_checkpoint(source) as checkpoint:
            logits.append(exported_logits(checkpoint, ids, tmp_path / source.stem))
            assert checkpoint.config.max_positions == config.max_positions
    np.testing.assert_allclose(logits[1], logits[0], rtol=0, atol=2e-5 * np.abs(logits[0]).max())


def test_a_weight_that_would_be_left_unused_is_named(tmp_path: Path):
    extra = {"blk.0.attn_q_norm.weight": np.ones(16, np.float32), "blk.1.attn_q_norm.weight": np.ones(16, np.float32)}
    message = r"blk\.0\.attn_q_norm\.weight and 1 others would be left unused by a llama decoder of 2 layers"
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(write_gguf(tmp_path / "a.gguf", extra=extra))
    with pytest.raises(CheckpointError, match=r"model\.layers\.1\.input_layernorm\.weight and 8 others.*of 1 layers"):
        open_checkpoint(write_folder(tmp_path / "hf", OPTIONS | {"num_hidden_layers": 1}))
    biased = tiny_weights(CONFIG, bias=True)
    with pytest.raises(CheckpointError, match=r"self_attn\.k_proj\.bias and 5 others would be left unused"):
        open_checkpoint(write_folder(tmp_path / "biased", weights=biased))


def test_other_copies_beside_a_whole_model_are_not_read(tmp_path: Path):
    folder = write_folder(tmp_path / "hf")
    tensors = {name: part for shard in folder.glob("model-*") for name, part in load_file(shard).items()}
    for path in folder.glob("model*"):
        path.unlink()
    save_file(tensors, folder / "model.safetensors")
    save_file({"layers.0.attention.wq.weight": np.ones((64, 64), np.float32)}, folder / "consolidated.safetensors")
    with open_checkpoint(folder) as checkpoint:
        assert len(checkpoint.tensors) == len(tensors)


def test_a_bias_that_the_configuration_wants_is_not_left_out(tmp_path: Path):
    with (
        open_checkpoint(write_folder(tmp_path / "hf", OPTIONS | {"model_type": "qwen2"})) as checkpoint,
        pytest.raises(CheckpointError, match=r"weight q\.bias of layer 0 is missing"),
    ):
        exported_logits(checkpoint, [1, 2], tmp_path)


def test_a_stored_head_is_heeded_only_if_the_model_is_not_tied(tmp_path: Path):
    weights = tiny_weights(CONFIG, tied=False)
    for tied, has_head in ((True, False), (False, True), (None, True)):
        options = OPTIONS | {"tie_word_embeddings": tied}
        with open_checkpoint(write_folder(tmp_path / str(tied), options, weights)) as checkpoint:
            assert (checkpoint.find("head") is not None) == has_head
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is missing, but tie_word_embeddings is false"):
        open_checkpoint(write_folder(tmp_path / "headless", OPTIONS | {"tie_word_embeddings": False}))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda f: (f / "config.json").unlink(), r"config\.json does not exist"),
        (lambda f: (f / "config.json").write_text("{"), r"config\.json is not valid JSON.*line 1"),
        (lambda f: (f / "config.json").write_text("[]"), "a JSON object is needed"),
        (lambda f: (f / "tokenizer.json").unlink(), r"tokenizer\.json"),
        (lambda f: (f / "model-2.safetensors").unlink(), r"model-2\.safetensors is missing"),
        (lambda f: (f / "model-1.safetensors").write_bytes(b"12345678"), "not a whole safetensors file"),
        (lambda f: [p.unlink() for p in f.glob("model*")], r"no \*\.safetensors files"),
    ],
)
def test_a_faulty_folder_is_refused_with_code_2(tmp_path: Path, capsys, fault, message: str):
    folder = write_folder(tmp_path / "hf")
    fault(folder)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)
    assert run(["export", "--target", str(folder), "-o", str(tmp_path / "out")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf"]
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "nowhere.gguf"], "nowhere.gguf"),
        (["--target", "{gguf}", "--quant", "int5"], "unknown recipe 'int5'"),
        (["--target", "{text}"], "not a GGUF"),
        (["--target", "{short}"], "download it again"),
    ],
)
def test_wrong_input_of_export_ends_with_code_2(tmp_path: Path, capsys, arguments: list[str], message: str):
    whole = write_gguf(tmp_path / "model.gguf")
    (tmp_path / "short.gguf").write_bytes(whole.read_bytes()[:-1000])
    (tmp_path / "text.gguf").write_text("this is plain text, not a model")
    names = {"gguf": whole, "text": tmp_path / "text.gguf", "short": tmp_path / "short.gguf"}
    formatted = [argument.format(**names) for argument in arguments]
    assert run(["export", *formatted, "-o", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not list(tmp_path.glob("*out*"))
