"""What a benchmark asks, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotfish.runtime.bench.plan import AUTO, OFF, Arm, arms_of, schedule
from pilotfish.runtime.bench.prompts import LENGTHS, Prompt, chosen, parse_prompts, read_prompts, shipped_prompts
from pilotfish.runtime.errors import OptionError

KINDS = {"code", "edit", "question", "summary", "chat", "rewrite"}


def test_the_shipped_prompts_are_six_kinds_in_two_lengths_and_a_long_context_set():
    prompts = shipped_prompts()
    assert {(p.kind, p.length) for p in prompts if p.length != "context"} == {
        (k, n) for k in KINDS for n in LENGTHS[:2]
    }
    assert sum(prompt.length == "context" for prompt in prompts) == 3
    assert len({prompt.key for prompt in prompts}) == len(prompts)
    sizes = {n: [len(p.text.split()) for p in prompts if p.length == n] for n in LENGTHS}
    assert max(sizes["short"]) < min(sizes["long"]) < max(sizes["long"]) < 1000 < min(sizes["context"])


def test_documents_follow_the_text():
    prompt = '[[prompt]]\ntext = "Sum up."\nkind = "a"\nlength = "long"\ndocuments = ["x", "y"]\n'
    assert parse_prompts(prompt + '[documents]\nx = "1"\ny = "2"', "file") == [Prompt("a", "long", "Sum up.\n\n1\n\n2")]
    assert parse_prompts('[[prompt]]\ntext = "Hello"', "file") == [Prompt("own", "short", "Hello")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[prompt", "not valid TOML"),
        ("", "has no prompt"),
        ('prompt = ["Hello"]', "has no prompt"),
        ("[[prompt]]", "is empty"),
        ("[[prompt]]\ntext = 3", "not a string"),
        ('[[prompt]]\ntext = "a"\ntexts = "b"', "prompt 1 of file has texts"),
        ('[[prompt]]\ntext = "a"\nlength = "huge"', "'huge'"),
        ('[[prompt]]\ntext = "a"\ndocuments = ["x"]', "names the documents x"),
    ],
)
def test_a_faulty_file_is_refused_with_its_fault(text: str, message: str):
    with pytest.raises(OptionError, match=message):
        parse_prompts(text, "file")


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(OptionError, match=r"none\.toml cannot be read"):
        read_prompts(tmp_path / "none.toml")


def test_prompts_are_chosen_by_kind_length_and_number():
    prompts = shipped_prompts()
    few = chosen(prompts, [], ["short", "long"], 1)
    assert len(few) == 12
    assert few[0] == prompts[0]
    assert chosen(prompts, [], [], None) != prompts  # put together by group
    assert set(chosen(prompts, [], [], None)) == set(prompts)
    assert [(p.kind, p.length) for p in chosen(prompts, ["edit"], ["short"], 2)] == [("edit", "short")] * 2
    for kinds, lengths, message in ((["poem"], [], "poem"), ([], ["tiny"], "tiny"), (["chat"], ["context"], "both")):
        with pytest.raises(OptionError, match=message):
            chosen(prompts, kinds, lengths, None)


def test_arms_have_the_target_alone_first():
    assert arms_of("model", [4, 2, 4]) == [OFF, AUTO, Arm("model", 2), Arm("model", 4)]
    assert [arm.name for arm in arms_of("suffix", [8])] == ["off", "auto", "suffix 8"]
    with pytest.raises(OptionError, match="'auto'"):
        arms_of("auto", [2])


def test_arms_alternate_and_take_turns_in_beginning():
    prompts = [Prompt("a", "short", text) for text in "xyz"]
    runs = schedule(prompts, [OFF, AUTO], 2)
    assert [run.arm.name for run in runs] == ["off", "auto", "auto", "off"] * 3
    assert [run.prompt.text for run in runs] == list("xxyyzz") * 2
    assert [run.repeat for run in runs] == [0] * 6 + [1] * 6
    assert len(set(runs)) == len(runs)
    assert runs[0].arm == OFF  # which names the first column
