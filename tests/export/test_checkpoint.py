"""Source models in both formats: the same weights give the same bundle, and faults are named."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from pilotfish.export.checkpoint import open_checkpoint
from pilotfish.export.llama import WEIGHT_NAMES, config_from_gguf, config_from_hugging_face
from pilotfish.runtime.cli import run
from pilotfish.runtime.errors import CheckpointError
from support.tiny_models import CONFIG, TEMPLATE, tiny_tokenizer, tiny_weights

HF_CONFIG = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 512, "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
}  # fmt: skip


def stored_order(stem: str, array: np.ndarray) -> np.ndarray:
    """q and k rows as GGUF stores them for llama: pairs (i, i + D / 2) become (2i, 2i + 1)."""
    if stem not in ("q", "k"):
        return array
    heads = array.reshape(-1, 2, CONFIG.head_dim // 2, array.shape[1])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(array.shape)


def write_folder(folder: Path, dtype: type = np.float32, **changes: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(HF_CONFIG | changes))
    (folder / "tokenizer.json").write_text(tiny_tokenizer().tokenizer_json)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": "<|end|>"}))
    tensors = {
        f"{WEIGHT_NAMES[stem][1].format(layer=layer)}.{part}": array.astype(dtype)
        for (stem, layer, part), array in tiny_weights(CONFIG).items()
    }
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for shard, members in shards.items():
        save_file({name: tensors[name] for name in members}, folder / shard)
    index = {"weight_map": {name: shard for shard, members in shards.items() for name in members}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_gguf(path: Path, **changes: object) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_context_length(512)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(320)
    for name, value in changes.items():
        writer.add_string(name.replace("__", "."), str(value))
    tokenizer = Tokenizer.from_str(tiny_tokenizer().tokenizer_json)
    model = json.loads(tiny_tokenizer().tokenizer_json)["model"]
    ids = tokenizer.get_vocab(with_added_tokens=True)
    texts = sorted(ids, key=ids.get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(texts)
    writer.add_token_types([3 if text.startswith("<|") else 1 for text in texts])
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(ids["<|end|>"])
    writer.add_chat_template(TEMPLATE)
    for (stem, layer, part), array in tiny_weights(CONFIG).items():
        writer.add_tensor(f"{WEIGHT_NAMES[stem][0].format(layer=layer)}.{part}", stored_order(stem, array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


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
    with open_checkpoint(write_folder(tmp_path / "hf", dtype)) as checkpoint:
        expected = tiny_weights(CONFIG)["down", 1, "weight"][5:9].astype(dtype).astype(np.float32)
        tensor = checkpoint.get("down", (64, 96), 1)
        np.testing.assert_array_equal(tensor.rows(5, 9), expected)
        assert checkpoint.get("norm", (64,)).read().shape == (64,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt_bigcode"}, "family 'gpt_bigcode'; supported are llama, qwen2"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_type to 'llama3'"),
        ({"hidden_act": "gelu"}, "hidden_act to 'gelu'"),
        ({"num_hidden_layers": None}, "num_hidden_layers is None"),
        ({"num_hidden_layers": -1}, "num_layers is -1"),
        ({"num_key_value_heads": 3}, "4 attention heads are not a multiple of 3 kv heads"),
        ({"head_dim": 24}, "head size 24 is not a multiple of 16"),
    ],
)
def test_an_unsupported_configuration_is_named(tmp_path: Path, changes: dict, message: str):
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(write_folder(tmp_path / "hf", **changes))


def test_faults_of_a_gguf_configuration_are_named(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"rope\.scaling\.type to 'yarn'"):
        open_checkpoint(write_gguf(tmp_path / "a.gguf", llama__rope__scaling__type="yarn"))
    with pytest.raises(CheckpointError, match="family 'mamba'; supported are llama, qwen2"):
        config_from_gguf({"general.architecture": "mamba"})
    with pytest.raises(CheckpointError, match=r"llama\.attention\.head_count is None"):
        config_from_gguf({"general.architecture": "llama"})


def test_both_formats_give_the_same_configuration(tmp_path: Path):
    with open_checkpoint(write_gguf(tmp_path / "a.gguf")) as checkpoint:
        from_gguf = checkpoint.config
    assert from_gguf.rotary_interleaved
    for name in ("num_layers", "hidden_size", "num_kv_heads", "head_dim", "vocab_size", "max_positions", "rope_theta"):
        assert getattr(from_gguf, name) == getattr(config_from_hugging_face(HF_CONFIG), name)


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
