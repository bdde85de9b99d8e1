"""Markdown of all kinds, as it grows."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QTextCharFormat

from pilotfish.desktop_app.conversation import Span, as_unicode
from pilotfish.desktop_app.themes import DARK, LIGHT, contrast
from pilotfish.desktop_app.widgets.code_card import CodeCard
from pilotfish.desktop_app.widgets.look import Look
from pilotfish.desktop_app.widgets.message_body import MessageBody
from pilotfish.desktop_app.widgets.tinting import UNDERLINES, blocks_of
from support.nasty_markdown import NASTY, long_document
from support.shown import body_of, render_all, shown

pytestmark = pytest.mark.usefixtures("qtbot")


def rendered(text: str, look: Look | None = None, spans=()) -> MessageBody:
    body = body_of(look)
    body.set_source(text, spans)
    render_all(body)
    return body


def plain(body: MessageBody) -> list[str]:
    return [view.toPlainText() for view in body.views]


@pytest.mark.parametrize("has_tints", [False, True], ids=["plain", "tinted"])
@pytest.mark.parametrize("name", NASTY)
def test_every_prefix_is_rendered_and_ends_as_the_whole(name: str, has_tints: bool):
    text, look = NASTY[name], Look(has_tints=has_tints)
    spans = [Span(("model", "suffix", "target")[i % 3], 5) for i in range(len(text) // 5 + 1)]
    body = body_of(look)
    for length in [*range(0, len(text), 1 if len(text) < 700 and not has_tints else 61), len(text)]:
        body.set_source(text[:length], spans)
        render_all(body)
    assert shown(body) == shown(rendered(text, look, spans))


@pytest.mark.parametrize("name", ["code", "list", "table", "paragraphs", "code line"])
def test_a_long_text_ends_as_the_whole(name: str):
    text, body = long_document(name, 15_000), body_of()
    for length in [*range(0, len(text), 701), len(text)]:
        body.set_source(text[:length])
        body.advance(600)
    render_all(body)
    assert shown(body) == shown(rendered(text))


def test_a_text_may_be_replaced_by_another():
    body = rendered(NASTY["lists"])
    body.set_source(NASTY["table"])
    render_all(body)
    assert shown(body) == shown(rendered(NASTY["table"]))
    body.set_source("")
    render_all(body)
    assert body.views == []


def test_html_is_shown_as_it_was_written():
    text = "".join(plain(rendered(NASTY["html"])))
    assert "<script>alert(1)</script>" in text
    assert "<b>bold</b> &" in text
    assert "<img" in text


def test_formulas_are_shown_as_they_were_written():
    text = "\n".join(plain(rendered(NASTY["maths"])))
    assert "$a_1 * b_2 * c_3$" in text
    assert "\\(x_{1}\\)" in text
    assert "$$\n\\sum_i x_i \\\\\n= 2\n$$" in text
    assert "$x*y*z$" in text


def test_only_links_into_the_web_are_links():
    addresses = set()
    for view in rendered(NASTY["links"] + "\n\n" + NASTY["reference links"]).views:
        for block in blocks_of(view.document()):
            pieces = block.begin()
            while not pieces.atEnd():
                addresses.add(pieces.fragment().charFormat().anchorHref())
                pieces += 1
    schemes = {QUrl(address).scheme() for address in addresses if address}
    assert schemes == {"http", "https", "mailto"}
    assert "https://example.org/a" in addresses
    assert "https://example.org/second" not in addresses


def test_a_picture_is_a_description_and_nothing_is_loaded():
    views = rendered("![the fish](http://example.org/fish.png) ![host](file:///etc/hostname)").views
    assert views[0].toPlainText() == "[the fish] [host]"
    for address in ("file:///etc/hostname", "/etc/hostname", "http://example.org/", "data:text/plain,x"):
        assert views[0].loadResource(2, QUrl(address)) == b""
        assert not views[0].document().resource(2, QUrl(address)).size()


def test_a_definition_that_comes_late_makes_links_of_earlier_words():
    body = rendered("See [the docs][d].\n\n" + "words\n\n" * 50)
    assert plain(body)[0] == "See [the docs][d]."
    body.set_source("See [the docs][d].\n\n" + "words\n\n" * 50 + "[d]: https://example.org\n\nend")
    render_all(body)
    assert plain(body)[0] == "See the docs."


def test_numbers_of_a_list_go_on_behind_code():
    body = rendered(NASTY["fence in a list"])
    items = [
        block.textList().itemText(block)
        for view in body.views
        for block in blocks_of(view.document())
        if block.textList() is not None and block.text() in ("First:", "Second")
    ]
    assert items == ["1.", "2."]


def test_text_from_right_to_left_begins_at_the_right():
    body = rendered(NASTY["right to left"])
    assert [blocks_of(view.document())[0].textDirection().name for view in body.views] == ["RightToLeft"] * 3


def test_code_is_shown_exactly():
    for name in ("fence in a list", "long code line", "nul and controls", "tabs"):
        for card in rendered(NASTY[name]).findChildren(CodeCard):
            view = card.view
            view.selectAll()
            code = card.code.removesuffix("\n").translate({0: 0xFFFD, 0x2029: 0xFFFD})
            assert view.selected_text() == code


def test_a_lone_surrogate_is_replaced():
    assert "".join(plain(rendered(NASTY["lone surrogates"]))) == as_unicode(NASTY["lone surrogates"]).strip().replace(
        "`", ""
    )


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("has_tints", [False, True], ids=["plain", "tinted"])
def test_everything_can_be_read(colours, has_tints: bool):
    text = (
        "# Head\n\nwords `code` [link](https://x.org) \n\n> quote\n\n"
        "```python\ndef f(x): return 'a' # b\n```\n| a |\n|---|\n| b |"
    )
    spans = [Span(("model", "suffix", "target")[i % 3], 3) for i in range(60)]
    body = rendered(text, Look(colours, has_tints=has_tints), spans)
    seen = set()
    for view in body.views:
        ground = colours.code if isinstance(view.parentWidget(), CodeCard) else colours.window
        for block in blocks_of(view.document()):
            pieces = block.begin()
            while not pieces.atEnd():
                fragment = pieces.fragment()
                seen.add(_pair(fragment.charFormat(), QTextCharFormat(), colours.text, ground))
                for each in block.layout().formats():
                    seen.add(_pair(fragment.charFormat(), each.format, colours.text, ground))
                pieces += 1
    assert len(seen) > 5
    assert min(contrast(ink, ground) for ink, ground in seen) >= 4.5


def _pair(below: QTextCharFormat, above: QTextCharFormat, text: str, ground: str) -> tuple[str, str]:
    """Ink and ground of words with one format laid over another."""
    for style in (below, above):
        if style.foreground().style() != Qt.BrushStyle.NoBrush:
            text = style.foreground().color().name()
        if style.background().style() != Qt.BrushStyle.NoBrush:
            ground = style.background().color().name()
    return text, ground


def test_tints_have_a_cue_that_is_no_colour():
    text = "model **look** target\n\n```py\nmodel look\n```\n"
    spans = [Span("model", 6), Span("suffix", 9), Span("target", 14), Span("model", 6), Span("suffix", 10)]
    body = rendered(text, Look(has_tints=True), spans)
    styles = {}
    for view in body.views:
        for block in blocks_of(view.document()):
            for each in block.layout().formats():
                if each.format.background().style() != Qt.BrushStyle.NoBrush:
                    word = block.text()[each.start : each.start + each.length].strip()
                    styles[word, view is body.views[0]] = each.format.underlineStyle()
    assert styles == {
        ("model", True): UNDERLINES["model"], ("look", True): UNDERLINES["lookup"],
        ("target", True): UNDERLINES["target"],
        ("model", False): UNDERLINES["model"], ("look", False): UNDERLINES["lookup"],
    }  # fmt: skip
    assert len(set(UNDERLINES.values())) == 3


def test_tints_are_right_behind_emoji():
    body = rendered(
        "🦈🦈 drafted 🦈 rest", Look(has_tints=True), [Span("target", 3), Span("model", 7), Span("target", 7)]
    )
    block = blocks_of(body.views[0].document())[0]
    drafted = next(each for each in block.layout().formats() if each.format.underlineStyle() == UNDERLINES["model"])
    assert block.text().encode("utf-16-le")[2 * drafted.start : 2 * (drafted.start + drafted.length)].decode(
        "utf-16-le"
    ) == "drafted"  # fmt: skip
