from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.desktop_app.codec import encoded
from pilotfish.desktop_app.errors import DesktopError
from pilotfish.desktop_app.places import chats_path, data_dir, load_record_path, settings_path
from pilotfish.desktop_app.reply_options import ReplyOptions
from pilotfish.desktop_app.settings import (
    LoadOptions,
    Preset,
    Settings,
    _salvaged,
    load_settings,
    save_settings,
)
from pilotfish.runtime.errors import OptionError

CHANGED = Settings(
    reply=ReplyOptions(temperature=0.1, seed=7, max_tokens=None, draft="suffix", stop=("a", "b")),
    system_prompt="Sprich Deutsch. 日本語 ✓", speculates=False, presets=(Preset("é", "x", ReplyOptions(top_k=3)),),
    loading=LoadOptions("cuda", "cpu", 512, 3, exact=False), theme="dark", zoom=1.25, tints=True,
    shows_sidebar=False, shows_panel=False,
)  # fmt: skip


def test_what_is_saved_is_loaded(tmp_path: Path):
    assert all(getattr(CHANGED, each.name) != getattr(Settings(), each.name) for each in fields(Settings))
    path = tmp_path / "new" / "settings.json"
    assert load_settings(path) == (Settings(), ())
    save_settings(CHANGED, path)
    assert load_settings(path) == (CHANGED, ())
    save_settings(Settings(), path)
    assert load_settings(path) == (Settings(), ())
    assert [each.name for each in path.parent.iterdir()] == ["settings.json"]


def test_of_a_partly_wrong_file_the_rest_is_taken_and_a_copy_kept(tmp_path: Path):
    path = tmp_path / "settings.json"
    values = encoded(CHANGED)
    values["zoom"] = 99
    values["tints"] = "yes"
    values["reply"]["temperature"] = -1
    values["reply"]["top_p"] = None
    values["loading"] = []
    values["presets"] += [{"system_prompt": "nameless"}, 3, {"name": "é"}, {"name": "ok", "reply": {"top_k": "x"}}]
    path.write_text(json.dumps(values))
    settings, faults = load_settings(path)
    assert settings == replace(
        CHANGED, zoom=1.0, tints=False, loading=LoadOptions(), presets=(*CHANGED.presets, Preset("ok")),
        reply=replace(CHANGED.reply, temperature=0.7),
    )  # fmt: skip
    told = "\n".join(faults)
    for words in ("zoom is 99", "settings.tints is not true or false", "temperature is -1", "settings.reply.top_p",
                  "settings.loading is not an object", "presets[1] has no name", "presets[2]", "presets[3]",
                  "presets[4].reply.top_k"):  # fmt: skip
        assert words in told
    save_settings(settings, path)
    assert json.loads((tmp_path / "settings.damaged-1.json").read_text()) == values
    assert load_settings(path) == (settings, ())
    save_settings(settings, path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"[" * 100_000])
def test_a_damaged_file_gives_the_defaults_and_is_never_lost(tmp_path: Path, data: bytes):
    path = tmp_path / "settings.json"
    for number in (1, 2):
        path.write_bytes(data)
        settings, faults = load_settings(path)
        assert settings == Settings()
        assert len(faults) == 1
        save_settings(CHANGED, path)
        assert (tmp_path / f"settings.damaged-{number}.json").read_bytes() == data
        assert load_settings(path) == (CHANGED, ())


def test_keys_of_a_later_release_survive(tmp_path: Path):
    path = tmp_path / "settings.json"
    values = encoded(CHANGED)
    values["voice"] = {"speed": 2}
    values["reply"]["mirostat"] = 5
    values["presets"][0]["colour"] = "red"
    path.write_text(json.dumps(values))
    settings, faults = load_settings(path)
    assert (settings, faults) == (CHANGED, ())
    save_settings(replace(settings, zoom=1.5, presets=(Preset("first"), *settings.presets)), path)
    after = json.loads(path.read_text(encoding="utf-8"))
    assert after["voice"] == {"speed": 2}
    assert after["reply"]["mirostat"] == 5
    assert [each.get("colour") for each in after["presets"]] == [None, "red"]
    assert after["zoom"] == 1.5


def test_a_file_that_cannot_be_read_or_written_is_told(tmp_path: Path):
    (tmp_path / "settings.json").mkdir()
    settings, faults = load_settings(tmp_path / "settings.json")
    assert settings == Settings()
    assert "cannot be read" in faults[0]
    (tmp_path / "file").write_text("")
    with pytest.raises(DesktopError, match="cannot be written"):
        save_settings(Settings(), tmp_path / "file" / "settings.json")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "settings.json"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(st.sampled_from([field.name for field in fields(Settings)]) | st.text(max_size=3), each)
    ),
    max_leaves=8,
)
KEYS = st.sampled_from([field.name for field in (*fields(Settings), *fields(ReplyOptions), *fields(LoadOptions))])


@given(st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON)))
def test_whatever_the_file_holds_the_settings_are_valid(values):
    settings, _ = _salvaged(json.dumps(values).encode())
    assert replace(settings) == settings
    settings.reply_options.generation_options()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Settings(theme="sepia"), "theme is 'sepia'; choose one of"),
        (lambda: Settings(zoom=0.1), "zoom is 0.1"),
        (lambda: Settings(presets=(Preset("a"), Preset("a"))), "two presets are named 'a'"),
        (lambda: Preset(" "), "no name"),
        (lambda: LoadOptions(device="tpu"), "unknown device 'tpu'"),
        (lambda: LoadOptions(num_threads=0), "num_threads is 0"),
        (lambda: LoadOptions(context_length=0), "context_length is 0"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(OptionError, match=words):
        make()


def test_the_switch_leaves_the_drafter_as_it_is():
    settings = Settings(reply=ReplyOptions(draft="suffix"))
    assert settings.reply_options.draft == "suffix"
    off = replace(settings, speculates=False)
    assert off.reply_options == replace(settings.reply, draft="off")
    assert replace(off, speculates=True) == settings
    assert off.needs_reload(LoadOptions(num_threads=2))
    assert not off.needs_reload(off.loading)


def test_the_places_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PILOTFISH_DATA", str(tmp_path))
    assert {path.parent for path in (settings_path(), chats_path(), load_record_path())} == {tmp_path}
    monkeypatch.delenv("PILOTFISH_DATA")
    assert data_dir().is_absolute()
