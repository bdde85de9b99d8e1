"""The program: what it prints, and its exit codes."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pilotfish import runtime as pilotfish
from pilotfish.runtime.cli import run

PROMPT = ["-p", "the pilot fish"]


def program(*arguments: str, **options) -> subprocess.Popen:
    """The program in a process that an interrupt reaches even where the tests themselves run in the background."""
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pilotfish.runtime.cli import main; main()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_generate_prints_the_reply(bundle_path: Path, capsys: pytest.CaptureFixture):
    assert run(["generate", str(bundle_path), *PROMPT, "--max-tokens", "8"]) == 0
    with pilotfish.load(bundle_path) as engine:
        options = pilotfish.GenerationOptions(max_tokens=8)
        chunks = engine.generate([{"role": "user", "content": "the pilot fish"}], options)
        assert capsys.readouterr().out == "".join(chunk.text for chunk in chunks) + "\n"


@pytest.mark.parametrize("draft", ["auto", "model", "lookup", "off"])
def test_generate_prints_json(bundle_path: Path, capsys: pytest.CaptureFixture, draft: str):
    arguments = ["--max-tokens", "8", "--draft", draft, "--num-draft-tokens", "3", "--raw", "--json", "--seed", "1"]
    assert run(["generate", str(bundle_path), *PROMPT, *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["token_ids"]) == 8
    assert result["finish_reason"] == "length"
    wanted = {"decode_s", "time_to_first_token_s", "tokens_per_s", "acceptance_rate", "tokens_per_round"}
    assert wanted <= result["stats"].keys()
    assert (result["stats"]["num_drafted"] == 0) == (draft == "off")


def test_generate_reads_standard_input(bundle_path: Path, capsys: pytest.CaptureFixture, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("the pilot fish"))
    assert run(["generate", str(bundle_path), "--max-tokens", "4"]) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", " "], "the prompt is empty"),
        ([*PROMPT, "--device", "cuda"], "CUDAExecutionProvider"),
        ([*PROMPT, "--device", "npu"], "unknown device 'npu'"),
        ([*PROMPT, "--temperature", "-1"], "temperature is -1"),
        ([*PROMPT, "--acceptance", "all"], "acceptance is 'all'"),
        ([*PROMPT, "--max-time", "0"], "max_time_s is 0"),
        ([*PROMPT, "--regex", "("], "regex grammar"),
        ([*PROMPT, "--lark", "no.lark"], "no.lark cannot be read"),
        ([*PROMPT, "--regex", "a", "--lark", "no.lark"], "--regex and --lark were given"),
        ([*PROMPT, "--top-p", "1.5"], "top_p is 1.5"),
        ([*PROMPT, "--context", "9999"], "context length 9999"),
        ([*PROMPT, "--context", "8"], "the context holds 8"),
        ([*PROMPT, "--num-draft-tokens", "0"], "num_draft_tokens is 0"),
        ([*PROMPT, "--max-tokens", "x"], "--max-tokens"),
        ([*PROMPT, "--frobnicate"], "--frobnicate"),
    ],
)
def test_wrong_input_ends_with_code_2_and_one_cause(bundle_path: Path, capsys, arguments: list[str], message: str):
    assert run(["generate", str(bundle_path), *arguments]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.out == ""
    assert "Traceback" not in output.err


def test_a_missing_bundle_ends_with_code_2(tmp_path: Path, capsys: pytest.CaptureFixture):
    assert run(["generate", str(tmp_path / "none"), *PROMPT]) == 2
    assert "is not a bundle" in capsys.readouterr().err


def test_an_unforeseen_failure_ends_with_code_1(bundle_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pilotfish.runtime.flags.load", lambda *_, **__: 1 / 0)
    assert run(["generate", str(bundle_path), *PROMPT]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_an_interrupt_ends_with_code_130(bundle_path: Path):
    process = program("generate", str(bundle_path), "--max-tokens", "5", stdin=subprocess.PIPE)
    time.sleep(3)  # it waits for standard input
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_reader_that_leaves_is_no_crash(bundle_path: Path):
    process = program("generate", str(bundle_path), *PROMPT, "--max-tokens", "400")
    process.stdout.close()
    process.wait(timeout=60)
    assert "Traceback" not in process.stderr.read()


def test_chat_keeps_the_conversation(bundle_path: Path):
    process = program("chat", str(bundle_path), "--max-tokens", "6", stdin=subprocess.PIPE)
    output, errors = process.communicate("the shark\n\nthe pilot fish\n", timeout=60)
    assert process.returncode == 0, errors
    assert output.count("tokens per round") == 2


def result_of(capsys: pytest.CaptureFixture, *arguments: str) -> dict:
    assert run(["generate", *arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_grammars_are_given_by_flag(bundle_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    schema, lark = tmp_path / "schema.json", tmp_path / "grammar.lark"
    schema.write_text('{"const": 7}')
    lark.write_text('start: "fish"')
    bundle = [str(bundle_path), *PROMPT]
    assert json.loads(result_of(capsys, *bundle, "--json-schema", str(schema))["text"]) == 7
    assert result_of(capsys, *bundle, "--lark", str(lark))["text"] == "fish"
    assert result_of(capsys, *bundle, "--regex", "(a|b){4}")["text"].strip("ab") == ""


def test_logprobs_are_in_the_json(bundle_path: Path, capsys: pytest.CaptureFixture):
    result = result_of(capsys, str(bundle_path), *PROMPT, "--max-tokens", "5", "--logprobs", "2")
    assert [entry["token_id"] for entry in result["logprobs"]] == result["token_ids"]
    assert all(len(entry["top"]) == 2 for entry in result["logprobs"])
    assert "logprobs" not in result_of(capsys, str(bundle_path), *PROMPT, "--max-tokens", "5")


def test_a_prompt_cache_is_made_and_used(bundle_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    arguments = [str(bundle_path), *PROMPT, "--max-tokens", "5", "--prompt-cache", str(tmp_path / "prompt.cache")]
    first, second = (result_of(capsys, *arguments) for _ in range(2))
    assert first["token_ids"] == second["token_ids"]
    assert first["stats"]["num_cached_tokens"] == 0
    assert second["stats"]["num_cached_tokens"] == second["stats"]["num_prompt_tokens"] - 1


def test_every_shared_flag_is_passed_on(bundle_path: Path, capsys: pytest.CaptureFixture):
    flags = {
        "max-tokens": 9, "max-time": 60, "draft": "lookup", "num-draft-tokens": 2, "temperature": 3, "top-k": 30,
        "top-p": 0.9, "min-p": 0.01, "repetition-penalty": 1.1, "presence-penalty": 0.5, "frequency-penalty": 0.5,
        "no-repeat-ngram": 3, "min-tokens": 2, "seed": 5, "acceptance": "block", "context": 128, "threads": 1,
    }  # fmt: skip
    arguments = [str(part) for name, value in flags.items() for part in (f"--{name}", value)]
    result = result_of(capsys, str(bundle_path), *PROMPT, *arguments, "--stop", "never", "--fast")
    sampling = pilotfish.SamplingParams(3, 30, 0.9, 0.01, 1.1, 0.5, 0.5, 3, 2, {}, 5, "block")
    options = pilotfish.GenerationOptions(9, sampling, "lookup", 2, ("never",), 60)
    with pilotfish.load(bundle_path, context_length=128, num_threads=1, exact=False) as engine:
        chunks = list(engine.generate([{"role": "user", "content": "the pilot fish"}], options))
    assert result["token_ids"] == [token_id for chunk in chunks for token_id in chunk.token_ids]


def test_calibrate_measures_again_and_keeps_it(
    bundle_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path))
    assert run(["calibrate", str(bundle_path)]) == 0
    (kept,) = (tmp_path / "calibrations").glob("*.json")
    first = json.loads(kept.read_text())
    capsys.readouterr()
    assert run(["calibrate", str(bundle_path)]) == 0
    second = json.loads(kept.read_text())
    assert second["target_s"] != first["target_s"]
    assert second["fingerprint"] == first["fingerprint"]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["tokens", "in", "a", "pass", "1", "2", "3", "5", "9", "17"]
    target, draft = (line.partition("ms")[2].split() for line in printed[1:3])
    assert len(target) == len(draft) == 6
    assert all(float(duration) >= 0 for duration in target + draft)
    rate = f"{second['drafts'][0]['agreement']:.0%}"
    assert printed[3] == f"the target would accept {rate} of the draft's tokens in a sample text"
    assert [line.split()[:3] for line in printed[4:6]] == [["the", role, "takes"] for role in ("target", "draft")]
