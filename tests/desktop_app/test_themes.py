from __future__ import annotations

import re
from dataclasses import fields

import pytest

from pilotfish.desktop_app.themes import DARK, INKS, LIGHT, READABLE, VISIBLE, contrast, used_pairs


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("pair", used_pairs(), ids="-on-".join)
def test_text_can_be_read(colours, pair):
    ink, ground = (getattr(colours, name) for name in pair)
    assert contrast(ink, ground) >= READABLE


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_each_colour_is_one_and_the_themes_are_what_they_say(colours):
    names = [field.name for field in fields(colours) if field.name != "is_dark"]
    assert all(re.fullmatch(r"#[0-9a-f]{6}", getattr(colours, name)) for name in names)
    assert (contrast(colours.window, "#000000") < VISIBLE) is colours.is_dark
    assert len({getattr(colours, name) for name in INKS}) == len(INKS)


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    assert contrast("#123456", "#fedcba") == contrast("#fedcba", "#123456")
    assert contrast("#abcdef", "#abcdef") == 1
