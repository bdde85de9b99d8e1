"""Documents of Markdown that have broken renderers."""

from __future__ import annotations

NASTY = {
    "unclosed fence": "Look:\n\n```python\ndef f():\n    return '''\n\n# no heading\n",
    "nested fences": "````markdown\n```python\nprint(1)\n```\n````\nafter\n\n~~~\n```\n~~~\n",
    "fence in a list": "1. First:\n\n   ```sh\n   pip install x\n\n   ls\n   ```\n   then\n2. Second\n   - deeper\n"
                       "     ```js\n     let a = `${b}`;\n     ```\n   - last\n\nEnd.",
    "fence that the list ends": "- item\n  ```\n  code\nout of the list\n```\nmore\n```\n",
    "table": "| name | value |\n|:-----|------:|\n| a `|` b | 1 |\n| **x** | 2\n| cut",
    "table in a paragraph": "words\n| a | b |\n|---|---|\n| 1 | 2 |\n\nafter",
    "setext": "A title\nof two lines\n===\n\nAnother\n---\n\nno title\n\n---\n- - -\n***",
    "lists": "* a\n\n  b\n\n      code in a\n* c\n1) d\n   1. e\n\n\n   f\n- [ ] g\n"
             "- [x] h\n-\n- i\n\n10. ten\n11. eleven",
    "quotes": "> a\nlazy\n> - b\n>   ```py\n>   c\n>   ```\n\n> new\n\n" + "> " * 60 + "deep\n",
    "html": "<script>alert(1)</script>\n\n<b>bold</b> & <img src='file:///etc/passwd'> "
             "<!-- x\n\ny --> &amp; &copy; &#0;",
    "maths": "Costs $5 or $6. $a_1 * b_2 * c_3$ and \\(x_{1}\\).\n\n$$\n\\sum_i x_i \\\\\n= 2\n$$\n\n"
             "\\[ a < b \\]\n\n- $x*y*z$\n",
    "right to left": "שלום **עולם**, זה `code` מעורב.\n\n- פריט\n- مرحبا بالعالم\n\n> اقتباس\n",
    "cjk and emoji": "你好，**世界**。これは`コード`です。👨‍👩‍👧‍👦 🇩🇪 "
             "👍🏽 e\u0301\n\n| 甲 | 乙 |\n|---|---|\n| 🦈 | 鮫 |\n",
    "nul and controls": "a\x00b\x07c\r\nd\u2028e\u2029f\ufffcg\ufdd0h\x0ci\n\n```\nx\x00y\u2029z\n```\n",
    "lone surrogates": "half \ud83d pair \udc1f and `\ud800`\n",
    "long words": "w" * 9000 + "\n\n" + "https://example.org/" + "p/" * 3000 + "\n\n`" + "c" * 5000 + "`",
    "long line of a list": "- " + "word " * 2000 + "\n- next\n",
    "long code line": "```\n" + "z" * 9000 + "\nshort\n```\n",
    "reference links": "See [the docs][1], [here] and ![pic][p].\n\n> quoted [Here][HERE]\n\n[1]: https://example.org/a\n"
                       "[here]: <https://example.org/b> \"title\"\n[p]: file:///etc/passwd\n[1]: https://example.org/second\n",
    "links": "[a](https://x.org/a_(b)) <https://y.org> [b](javascript:alert(1)) [c](file:///etc/passwd) ![i](http://z.org/i.png)"
             " www.w.org me@v.org [](https://x.org) [d](<https://x.org/a b> 'title')",
    "emphasis": "**bold *both*** ***x** y* __a__ _b_ ~~c~~ `` d`e `` \\*f\\* snake_case_name 2*3*4 **unclosed `too",
    "tabs": "\ttab code\n\n-\titem\n\n\tin the item\n\n1.\tone\n\t```\n\tcode\n\t```\n",
    "nothing": "\n\n   \n\t\n",
    "depth": "".join("  " * depth + f"- level {depth}\n" for depth in range(40)),
}  # fmt: skip
"""The documents by what is nasty in them."""

LONG = {
    "paragraphs": "Some *words* of a paragraph with `code` and a [link](https://example.org). " * 4 + "\n\n",
    "paragraph": "word after word, and no end of the paragraph ",
    "word": "x",
    "code": "def function(argument):  # a comment\n    return argument + 1\n\n",
    "code line": "value, ",
    "list": "- an item of a **long** list\n",
    "table": "| a cell | `another` | 3 |\n",
    "quote": "> what somebody said\n",
    "items of two lines": "1. an item\n   goes on\n\n",
}
LONG_HEADS = {"code": "```python\n", "code line": "```\n", "table": "| a | b | c |\n|---|:-:|--:|\n"}


def long_document(name: str, num_characters: int = 100_000) -> str:
    """A document that is one kind of thing all through."""
    unit = LONG[name]
    return LONG_HEADS.get(name, "") + (unit * (num_characters // len(unit) + 1))[:num_characters]
