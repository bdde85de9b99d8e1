from __future__ import annotations

import pytest

from pilotfish.desktop_app.maths import with_plain_maths


@pytest.mark.parametrize(
    "text",
    ["costs $5 or $6", "$HOME and $PATH", "`$a_b$` stays", "a \\$x_1$ b", "no maths", "$ a_b $", "``$a`$``"],
)
def test_what_is_no_formula_stays(text: str):
    assert with_plain_maths(text) == text


def test_marks_in_formulas_are_escaped():
    assert with_plain_maths("a $x_1*y$ b") == "a \\$x\\_1\\*y\\$ b"
    assert with_plain_maths("\\(x\\)") == "\\\\\\(x\\\\\\)"
    assert with_plain_maths("> $$\n> a\n> $$") == "> \\$\\$\\\n> a\\\n> \\$\\$"


def test_two_paragraphs_are_no_formula():
    assert with_plain_maths("$$ a\n\nb_c $$") == "$$ a\n\nb_c $$"
