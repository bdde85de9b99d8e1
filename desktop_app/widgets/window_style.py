"""What the window's own parts need beyond the style sheet of the application."""

from __future__ import annotations

from dataclasses import asdict
from string import Template

from pilotfish.desktop_app.themes import Colours

_SHEET = Template("""
#sidebar { background: $surface; border: none; }
#sidebar QLineEdit { padding: 0 8px; min-height: 30px; }
#sidebar QLineEdit QToolButton { min-height: 0; padding: 0; border: none; }
#sidebar QListWidget { background: transparent; border: none; padding: 0; }
#sidebar QListWidget:focus { border: none; padding: 0; }
#header { background: $window; border: none; }
#header #model { font-weight: 600; }
#speculation { background: $window; border: none; border-bottom: 1px solid $border; }
#banner { background: $raised; border: none; border-bottom: 1px solid $border; }
#content { background: $window; border: none; }
#composer { background: $surface; border: 1px solid $border; border-radius: 14px; }
#composer QPlainTextEdit, #composer QPlainTextEdit:focus { background: transparent; border: none; padding: 0; }
#composer[active="true"] { border: 1px solid $accent; }
#composer #send {
    background: $accent; border: 1px solid $accent; border-radius: 16px; padding: 0;
    min-width: 32px; max-width: 32px; min-height: 32px; max-height: 32px;
}
#composer #send:focus { border: 2px solid $text; }
#composer #send:disabled { background: $raised; border: 1px solid $border; }
#composer #notice { color: $muted; }
#chip { background: $raised; border: 1px solid $border; border-radius: 8px; }
#chip QToolButton { padding: 2px; border-radius: 4px; }
#suggestion { background: $surface; border-radius: 16px; padding: 8px 16px; color: $text; }
#suggestion:hover { background: $selection; }
#suggestion:focus { border: 2px solid $accent; }
""")


def window_sheet(colours: Colours) -> str:
    """The sheet in these colours."""
    return _SHEET.substitute({name: value for name, value in asdict(colours).items() if name != "is_dark"})
