"""Text files that are sent along with a message: read with limits, refused with a reason."""

from __future__ import annotations

from pathlib import Path

from pilotfish.desktop_app.conversation import Attachment, as_unicode
from pilotfish.desktop_app.errors import AttachmentError

MAX_BYTES = 4 << 20  # about a million tokens, which no model here takes
LARGE_PASTE = 20_000  # characters; what is longer hides the message in its own text


def read_attachment(path: Path) -> Attachment:
    """The file as text, in UTF-8, or in UTF-16 if it says so; `AttachmentError` says why it cannot be attached."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise AttachmentError(f"{path.name} cannot be read ({error.strerror}); choose another file") from error
    if len(content) > MAX_BYTES:
        raise AttachmentError(f"{path.name} is over {MAX_BYTES >> 20} MB; attach the part of it that matters")
    return Attachment(path.name, _decoded(path.name, content))


def pasted_attachment(text: str, taken_names: frozenset[str] = frozenset()) -> Attachment:
    """A large pasted text as an attachment, under a name that is not taken."""
    names = (f"pasted text{'' if number == 1 else f' {number}'}.txt" for number in range(1, len(taken_names) + 2))
    return Attachment(next(name for name in names if name not in taken_names), as_unicode(text))


def size_in_words(attachment: Attachment) -> str:
    """Such as "812 characters" or "1.2 million characters"."""
    number = len(attachment.text)
    return f"{number / 1e6:.1f} million characters" if number >= 1_000_000 else f"{number:,} characters"


def _decoded(name: str, content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    elif b"\0" in content:
        raise AttachmentError(f"{name} is not a text file; only text can be attached")
    else:
        encoding = "utf-8-sig"
    try:
        return content.decode(encoding).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise AttachmentError(
            f"{name} is not text in {encoding.removesuffix('-sig').upper()} (byte {error.start:,}); "
            "save it as UTF-8 and attach it again"
        ) from error
