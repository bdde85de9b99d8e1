"""Text comes out as it streams, never broken; a template is rendered in a sandbox."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.errors import BundleError, TemplateError
from pilotfish.runtime.tokenizer import StreamDecoder, Tokenizer

REPLACEMENT = "\ufffd"


@pytest.fixture(scope="module")
def tokenizer(bundle_path: Path) -> Tokenizer:
    return Tokenizer(load_bundle(bundle_path))


@pytest.fixture
def copy(bundle_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle_path, tmp_path / "copy"))


def with_template(copy: Path, template: str) -> Tokenizer:
    (copy / "chat_template.jinja").write_text(template)
    manifest = json.loads((copy / "pilotfish.json").read_text())
    manifest["files"]["chat_template.jinja"]["size"] = len(template.encode())
    (copy / "pilotfish.json").write_text(json.dumps(manifest))
    return Tokenizer(load_bundle(copy))


@given(text=st.text())
def test_streamed_text_equals_the_text(tokenizer: Tokenizer, text: str):
    stream = StreamDecoder(tokenizer)
    pieces = [stream.push(token_id) for token_id in tokenizer.encode(text)]
    assert "".join(pieces) + stream.flush() == text
    if REPLACEMENT not in text:
        assert not any(REPLACEMENT in piece for piece in pieces)


@given(token_ids=st.lists(st.integers(0, 255), max_size=40))
def test_any_tokens_stream_to_what_they_decode_to(tokenizer: Tokenizer, token_ids: list[int]):
    stream = StreamDecoder(tokenizer)
    pieces = [stream.push(token_id) for token_id in token_ids]
    assert "".join(pieces) + stream.flush() == tokenizer.decode(token_ids)


def test_an_emoji_appears_with_its_last_byte(tokenizer: Tokenizer):
    stream = StreamDecoder(tokenizer)
    token_ids = tokenizer.encode("\N{GRINNING FACE}")  # not in the training text, so one token for each byte
    assert len(token_ids) > 1
    assert [stream.push(token_id) for token_id in token_ids] == [""] * (len(token_ids) - 1) + ["\N{GRINNING FACE}"]


def test_an_emoji_cut_short_comes_out_at_the_end(tokenizer: Tokenizer):
    stream = StreamDecoder(tokenizer)
    assert [stream.push(token_id) for token_id in tokenizer.encode("a\N{GRINNING FACE}")[:-1]][-1] == ""
    assert REPLACEMENT in stream.flush()
    assert stream.flush() == ""


def test_the_template_writes_the_conversation(tokenizer: Tokenizer):
    ids = tokenizer.encode_chat([{"role": "user", "content": "the shark"}])
    assert ids == tokenizer.encode("<|start|>user\nthe shark<|end|>\n<|start|>assistant\n")
    assert tokenizer.decode(ids) == "user\nthe shark\nassistant\n"
    begun = tokenizer.encode_chat([{"role": "user", "content": "the shark"}], "follows")
    assert begun == tokenizer.encode("<|start|>user\nthe shark<|end|>\n<|start|>assistant\nfollows")


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__.__base__.__subclasses__()[0].__init__.__globals__ }}",
        "{% set _ = messages.append(1) %}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ undefined.attribute }}",
        "{{ 1 / 0 }}",
        "{{ raise_exception('roles must alternate') }}",
        "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
        "{% for i in range(10000000) %}{% endfor %}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_a_hostile_or_failing_template_is_an_error(copy: Path, template: str):
    with pytest.raises(TemplateError, match="chat template"):
        with_template(copy, template).encode_chat([{"role": "user", "content": "x"}])


def test_a_template_that_does_not_parse_is_an_error(copy: Path):
    with pytest.raises(TemplateError, match="cannot be read"):
        with_template(copy, "{% for %}")


def test_templates_can_use_what_other_software_offers_them(copy: Path):
    template = (
        "{%- for m in messages %}\n    {%- if loop.index > 1 %}{% break %}{% endif %}\n{{ m | tojson }}{% endfor %}"
        "{{ strftime_now('%Y') | length }}{{ bos_token }}"
    )
    tokenizer = with_template(copy, template)
    ids = tokenizer.encode_chat([{"role": "user", "content": "é<"}, {"role": "user", "content": "no"}])
    assert tokenizer.decode(ids) == '{"role": "user", "content": "é<"}4'


def test_without_a_template_the_error_says_what_to_do(copy: Path):
    manifest = json.loads((copy / "pilotfish.json").read_text())
    manifest["tokenizer"]["chat_template"] = None
    (copy / "pilotfish.json").write_text(json.dumps(manifest))
    with pytest.raises(TemplateError, match="--raw"):
        Tokenizer(load_bundle(copy)).encode_chat([])


def test_begin_of_text_is_put_in_front_once(copy: Path):
    manifest = json.loads((copy / "pilotfish.json").read_text())
    manifest["tokenizer"] |= {"bos_token": "<|start|>", "add_bos": True}
    (copy / "pilotfish.json").write_text(json.dumps(manifest))
    tokenizer = Tokenizer(load_bundle(copy))
    ids = tokenizer.encode("the shark")
    assert tokenizer.encode("<|start|>the shark") == ids
    assert ids[0] == tokenizer.encode_chat([{"role": "user", "content": ""}])[0]
    assert tokenizer.encode_chat([{"role": "user", "content": ""}])[1] != ids[0]


def test_a_malformed_tokenizer_is_an_error(copy: Path):
    (copy / "tokenizer.json").write_text("{}" + " " * ((copy / "tokenizer.json").stat().st_size - 2))
    with pytest.raises(BundleError, match=r"tokenizer\.json is not a tokenizer"):
        Tokenizer(load_bundle(copy))
