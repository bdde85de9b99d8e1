"""The colours of the window in light and dark, and how well one can be read on another."""

from __future__ import annotations

from dataclasses import dataclass

READABLE = 4.5  # what WCAG 2.2 (1.4.3) asks of text on its ground
VISIBLE = 3.0  # and of what is no text, such as a line of a plot or a focus ring (1.4.11)


@dataclass(frozen=True, slots=True)
class Colours:
    """Colours as "#rrggbb".

    Grounds: `window` behind everything, `surface` of fields and lists, `raised` of buttons, `code` of code blocks,
    `selection` of what is selected or under the pointer, `accent` of the one thing to do (its text is `on_accent`).
    Inks for each of those grounds: `text`, `muted`, `accent` (not on itself), `error`, `warning`, `good`. `border`
    parts areas and carries no meaning. `by_model`, `by_lookup` and `by_target` are grounds behind `text` or `muted`
    that tell who wrote a token; lines of plots take inks.
    """

    window: str
    surface: str
    raised: str
    text: str
    muted: str
    accent: str
    on_accent: str
    border: str
    code: str
    selection: str
    error: str
    warning: str
    good: str
    by_model: str
    by_lookup: str
    by_target: str
    is_dark: bool


LIGHT = Colours(
    window="#f5f6f8", surface="#ffffff", raised="#e9ecf1",
    text="#1b2330", muted="#525d6f", accent="#1a6174", on_accent="#ffffff",
    border="#cfd5de", code="#f0f2f5", selection="#cde6ec",
    error="#b3261e", warning="#855000", good="#1f6b3a",
    by_model="#d5ebdc", by_lookup="#fbe6c3", by_target="#dde6fa",
    is_dark=False,
)  # fmt: skip

DARK = Colours(
    window="#15181d", surface="#1c2027", raised="#282d37",
    text="#e6e9ee", muted="#a3adbd", accent="#62c3d6", on_accent="#0c1f24",
    border="#3a414e", code="#171b21", selection="#1b434f",
    error="#ff8f85", warning="#f0b45c", good="#7ccf97",
    by_model="#1f4230", by_lookup="#4d3a17", by_target="#2a3a5e",
    is_dark=True,
)  # fmt: skip

INKS = ("text", "muted", "accent", "error", "warning", "good")
GROUNDS = ("window", "surface", "raised", "code", "selection")
ORIGINS = ("by_model", "by_lookup", "by_target")


def used_pairs() -> tuple[tuple[str, str], ...]:
    """The (ink, ground) pairs that the window may show text in, by the names of the fields."""
    plain = [(ink, ground) for ink in INKS for ground in GROUNDS]
    tinted = [(ink, ground) for ink in ("text", "muted") for ground in ORIGINS]
    return (*plain, *tinted, ("on_accent", "accent"))


def contrast(a: str, b: str) -> float:
    """The contrast ratio of two colours, 1 to 21, in any order (WCAG 2.2, "contrast ratio")."""
    darker, lighter = sorted((_luminance(a), _luminance(b)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """The relative luminance, 0 to 1 (WCAG 2.2)."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
