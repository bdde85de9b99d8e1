"""What can be done with presets. Which one is in use is not stored: it is the one whose values are set."""

from __future__ import annotations

from dataclasses import replace

from pilotfish.desktop_app.errors import DesktopError
from pilotfish.desktop_app.settings import Preset, Settings


def preset_in_use(settings: Settings) -> Preset | None:
    """The first preset that has the values of `settings`."""
    values = (settings.system_prompt, settings.reply)
    return next((each for each in settings.presets if (each.system_prompt, each.reply) == values), None)


def with_preset(settings: Settings, name: str) -> Settings:
    """`settings` with the values of a preset; `DesktopError` if there is none of that name."""
    preset = _preset(settings, name)
    return replace(settings, system_prompt=preset.system_prompt, reply=preset.reply)


def saved_as(settings: Settings, name: str) -> Settings:
    """`settings` with its values kept under `name`, in place of a preset that has it. `OptionError` for no name."""
    new = Preset(name.strip(), settings.system_prompt, settings.reply)
    if any(each.name == new.name for each in settings.presets):
        return replace(settings, presets=tuple(new if each.name == new.name else each for each in settings.presets))
    return replace(settings, presets=(*settings.presets, new))


def renamed(settings: Settings, name: str, new_name: str) -> Settings:
    """`settings` with another name for a preset. `OptionError` if that is empty or taken."""
    new = replace(_preset(settings, name), name=new_name.strip())
    return replace(settings, presets=tuple(new if each.name == name else each for each in settings.presets))


def without_preset(settings: Settings, name: str) -> Settings:
    """`settings` without a preset; the values that are set stay."""
    preset = _preset(settings, name)
    return replace(settings, presets=tuple(each for each in settings.presets if each is not preset))


def _preset(settings: Settings, name: str) -> Preset:
    for each in settings.presets:
        if each.name == name:
            return each
    raise DesktopError(f"there is no preset {name!r}; it may have been deleted")
