"""The style sheet of the transcript; it goes over that of the application."""

from __future__ import annotations

from string import Template

from pilotfish.desktop_app.widgets.look import Look

_SHEET = Template("""
QScrollArea, QScrollArea:focus { border: none; background: $window; }
Canvas { background: $window; }
QFrame[role="bubble"] { background: $raised; border: none; border-radius: ${p14}px; }
QFrame[role="code"] { background: $code; border: 1px solid $border; border-radius: ${p8}px; }
QTextBrowser[role="text"], QTextBrowser[role="text"]:focus {
    background: transparent; color: $text; border: none; padding: 0; border-radius: 0;
    selection-background-color: $selection; selection-color: $text;
}
QLabel[role="small"] { color: $muted; background: transparent; }
QLabel[role="error"] { color: $error; background: transparent; }
QLabel[role="warning"] { color: $warning; background: transparent; }
QLabel[role="chip"] {
    color: $text; background: $surface; border: 1px solid $border; border-radius: ${p8}px; padding: ${p4}px ${p8}px;
}
QToolButton[role="action"] {
    color: $muted; background: transparent; border: 1px solid transparent; border-radius: ${p6}px;
    padding: ${p2}px ${p6}px; min-height: 0;
}
QToolButton[role="action"]:hover { color: $text; background: $raised; }
QToolButton[role="action"]:focus { color: $text; border: 1px solid $accent; }
QToolButton[role="jump"] {
    color: $text; background: $raised; border: 1px solid $border; border-radius: ${p14}px; padding: ${p6}px ${p14}px;
}
QToolButton[role="jump"]:hover, QToolButton[role="jump"]:focus { border: 1px solid $accent; }
""")


def transcript_sheet(look: Look) -> str:
    """The sheet in these colours and sizes."""
    colours = look.colours
    sizes = {f"p{size}": round(size * look.zoom) for size in (2, 4, 6, 8, 14)}
    return _SHEET.substitute(
        sizes, window=colours.window, raised=colours.raised, code=colours.code, border=colours.border,
        text=colours.text, muted=colours.muted, error=colours.error, warning=colours.warning, surface=colours.surface,
        accent=colours.accent, selection=colours.selection,
    )  # fmt: skip
