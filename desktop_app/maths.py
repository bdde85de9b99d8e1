"""Formulas in Markdown: shown as they were written, since asterisks and underscores mean something else in them."""

from __future__ import annotations

import re

_CODE_OR_MATHS = re.compile(
    r"""(?xs)
    (?P<marks>(?<!`)`+(?!`)) .{0,4000}? (?<!`)(?P=marks)(?!`)          # code, which stays
    | (?<![\\$]) (?P<maths>
        \$\$ (?:(?!\n[ \t]*\n)[^$]){1,4000}? \$\$
        | \$ (?=[^\s$]) (?:(?!\n[ \t]*\n)[^$]){0,1000}? (?<=[^\s\\]) \$ (?!\d)
        | \\\( (?:(?!\n[ \t]*\n).){1,1000}? \\\)
        | \\\[ (?:(?!\n[ \t]*\n).){1,4000}? \\\]
    )
    """
)
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_LINE = re.compile(r"^([ \t>]*)(.*)$")


def with_plain_maths(markdown: str) -> str:
    """`markdown` in which formulas are escaped, so that they come out as they stand, line by line."""
    if "$" not in markdown and "\\" not in markdown:
        return markdown
    return _CODE_OR_MATHS.sub(lambda match: _escaped(match["maths"]) if match["maths"] else match[0], markdown)


def _escaped(maths: str) -> str:
    first, *others = maths.split("\n")
    return "\\\n".join([_escaped_words(first), *(_escaped_line(line) for line in others)])


def _escaped_line(line: str) -> str:
    """The marks of a quote in front of a line stay."""
    match = _LINE.match(line)
    return f"{match[1]}{_escaped_words(match[2])}" if match else line


def _escaped_words(words: str) -> str:
    return _PUNCTUATION.sub(lambda match: "\\" + match[0], words)
