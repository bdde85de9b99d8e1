from __future__ import annotations

import pytest

from pilotfish.desktop_app.conversation import Span
from pilotfish.desktop_app.origins import Origins, Part, Run, aligned

RENDERED = [
    ("plain text, unchanged", ["plain text, unchanged"]),
    ("a **bold *both*** b", ["a bold both b"]),
    ("1. 1 one\n2. 2 two\n3. 3", ["1 one", "2 two", "3"]),
    ("- [x] done\n- [ ] open", ["done", "open"]),
    ("## ## two\n", ["## two"]),
    ("see [words](https://x.org/words) words", ["see words words"]),
    ("see [words][words] words", ["see words words"]),
    ("| ab | cd |\n|----|----|\n| ef | gh |", ["ab", "cd", "ef", "gh"]),
    ("> > quoted\n> > more", ["quoted more"]),
    ("x \\*y\\* z", ["x *y* z"]),
    ("a &amp; b &copy; c &lt;d", ["a & b © c <d"]),
    ("`a &amp; b` c", ["a &amp; b c"]),
    ("Title\n=====\nbody", ["Title", "body"]),
    ("你好，**世界**。👍🏽 ok", ["你好，世界。👍🏽 ok"]),
    ("```py\np\n```\n", ["p"]),
]


@pytest.mark.parametrize(("source", "rendered"), RENDERED)
def test_rendered_characters_are_found_in_order(source: str, rendered: list[str]):
    positions = aligned(source, rendered)
    walked = [position for each in positions for position in each]
    assert walked == sorted(walked)
    for text, each in zip(rendered, positions, strict=True):
        wrong = [
            c for c, i in zip(text, each, strict=True) if source[i] != c and c not in "©<" and source[i] not in "\n"
        ]
        assert wrong == []


def test_the_right_one_of_equal_words_is_found():
    source = "see [words](https://x.org/words) words"
    assert aligned(source, ["see words words"])[0][-5:] == list(range(33, 38))
    assert aligned("1. 1 one\n2. 2 two", ["1 one", "2 two"])[1][0] == 12


def test_after_what_is_not_in_the_source_the_walk_finds_its_way():
    source = "before ![image](http://x.org/i.png) after all"
    positions = aligned(source, ["before [something else] after all"])[0]
    assert positions[-9:] == list(range(36, 45))


def test_no_source_and_no_text():
    assert aligned("", ["abc", ""]) == [[0, 0, 0], []]


def test_runs_of_kinds():
    origins = Origins([Span("target", 2), Span("suffix", 0), Span("suffix", 2), Span("cascade", 1), Span("model", 2)])
    assert [origins.at(position) for position in (0, 2, 4, 5, 7)] == ["target", "lookup", "lookup", "model", None]
    assert origins.runs([0, 1, 2, 4, 6, 7, 8]) == (Run("target", 0, 2), Run("lookup", 2, 2), Run("model", 4, 1))


def test_what_was_put_before_a_part_is_of_nobody():
    origins = Origins([Span("target", 10), Span("model", 20)])
    part = Part("|cd|ef|", 12, origins, head="|a|b|\n|-|-|\n")
    assert part.runs_of(["a", "b", "cd", "ef"]) == [(), (), (Run("model", 0, 2),), (Run("model", 0, 2),)]
