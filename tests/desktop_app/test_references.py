from __future__ import annotations

from pilotfish.desktop_app.references import definitions_of, with_definitions


def test_definitions_are_found_and_the_first_one_holds():
    texts = ["words [x]: no", "[A  b]: https://a.org\n[c]: <https://c.org> 'title'", "[a B]: https://other.org"]
    assert definitions_of(texts) == {"a b": "[A  b]: https://a.org", "c": "[c]: <https://c.org> 'title'"}


def test_a_text_gets_only_what_it_uses():
    definitions = {"a": "[a]: https://a.org", "b": "[b]: https://b.org"}
    assert with_definitions("see [words][A] and [a]", definitions) == "see [words][A] and [a]\n\n[a]: https://a.org"
    assert with_definitions("no label", definitions) == "no label"
    assert with_definitions("[other]", definitions) == "[other]"
