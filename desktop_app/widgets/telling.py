"""What was raised on purpose, shown to the user as it stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pilotfish.desktop_app.widgets.banner import Banner
from pilotfish.runtime.errors import PilotfishError


@contextmanager
def telling(banner: Banner) -> Iterator[None]:
    """Shows a `PilotfishError` of the block in the banner; the rest of the block is left out."""
    try:
        yield
    except PilotfishError as error:
        banner.say(as_sentence(str(error)), "error")


def as_sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
