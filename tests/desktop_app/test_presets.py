from __future__ import annotations

from dataclasses import replace

import pytest

from pilotfish.desktop_app import setting_fields
from pilotfish.desktop_app.errors import DesktopError
from pilotfish.desktop_app.presets import preset_in_use, renamed, saved_as, with_preset, without_preset
from pilotfish.desktop_app.reply_options import ReplyOptions
from pilotfish.desktop_app.setting_fields import CONTEXT_LENGTH, MAX_TOKENS, SEED, TEMPERATURE, TOP_K, NumberField
from pilotfish.desktop_app.settings import FIRST_PRESETS, Settings
from pilotfish.runtime.errors import OptionError


def test_the_preset_in_use_is_that_of_the_values():
    settings = Settings()
    assert preset_in_use(settings) == FIRST_PRESETS[0]
    settings = with_preset(settings, "Code")
    assert (settings.system_prompt, settings.reply) == (FIRST_PRESETS[3].system_prompt, FIRST_PRESETS[3].reply)
    assert preset_in_use(settings).name == "Code"
    assert preset_in_use(replace(settings, reply=ReplyOptions(top_k=7))) is None


def test_presets_are_added_replaced_renamed_and_deleted():
    settings = saved_as(replace(Settings(), system_prompt="x"), " mine ")
    assert preset_in_use(settings).name == "mine"
    settings = saved_as(replace(settings, system_prompt="y"), "mine")
    assert [each.name for each in settings.presets].count("mine") == 1
    settings = renamed(settings, "mine", "yours")
    assert preset_in_use(settings).name == "yours"
    with pytest.raises(OptionError, match="two presets are named 'Code'"):
        renamed(settings, "yours", "Code")
    with pytest.raises(OptionError, match="no name"):
        saved_as(settings, "  ")
    settings = without_preset(settings, "yours")
    assert settings.presets == FIRST_PRESETS
    assert settings.system_prompt == "y"
    for call in (with_preset, without_preset):
        with pytest.raises(DesktopError, match="no preset 'yours'"):
            call(settings, "yours")


@pytest.mark.parametrize("field", [each for each in vars(setting_fields).values() if isinstance(each, NumberField)])
def test_what_a_field_shows_makes_the_same_settings(field):
    assert field.changed(Settings(), field.shown(Settings())) == Settings()
    with pytest.raises(OptionError, match=f"{field.name} is 'many'; write a"):
        field.changed(Settings(), "many")
    with pytest.raises(OptionError, match=field.name):
        field.changed(Settings(), "-5")


def test_fields_take_numbers_as_people_write_them():
    assert TEMPERATURE.changed(Settings(), " 0,25 ").reply.temperature == 0.25
    assert TEMPERATURE.shown(TEMPERATURE.changed(Settings(), "0.1")) == "0.1"
    assert MAX_TOKENS.changed(Settings(), "").reply.max_tokens is None
    assert CONTEXT_LENGTH.changed(Settings(), "٤٠٩٦").loading.context_length == 4096
    big = SEED.changed(Settings(), str(2**63))
    assert SEED.shown(big) == str(2**63)
    for text in ("", "1.5"):
        with pytest.raises(OptionError, match="top_k"):
            TOP_K.changed(Settings(), text)
    with pytest.raises(OptionError, match="temperature"):
        TEMPERATURE.changed(Settings(), "nan")
