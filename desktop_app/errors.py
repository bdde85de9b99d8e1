"""What the desktop application raises on purpose; the window shows each message as it stands.

```
PilotfishError (of the runtime)
└── DesktopError
    ├── FormatError           JSON that is not of the form that was expected
    ├── ConversationError     a tree of messages that cannot be, or a message that is not in it
    ├── StoreError            the database of chats cannot be read or written
    │   └── NewerDatabaseError    it was written by a later release; nothing was touched
    ├── ExchangeError         a file that cannot be imported
    ├── AttachmentError       a file that cannot be sent along
    ├── EngineGoneError       the engine's process does not run
    └── SessionBusyError      a reply is being written already
```
"""

from __future__ import annotations

from pilotfish.runtime.errors import PilotfishError


class DesktopError(PilotfishError):
    """Base of all errors of the desktop application."""


class FormatError(DesktopError):
    """JSON is not of the form that was expected; the message says where and how."""


class ConversationError(DesktopError):
    """A tree of messages cannot be, or a message is not in it."""


class StoreError(DesktopError):
    """The database of chats cannot be read or written."""


class NewerDatabaseError(StoreError):
    """The database was written by a later release; it is left as it is."""


class ExchangeError(DesktopError):
    """A file is no chat that can be imported."""


class AttachmentError(DesktopError):
    """A file cannot be sent along with a message."""


class EngineGoneError(DesktopError):
    """The engine's process does not run; it can be started again."""


class SessionBusyError(DesktopError):
    """A reply is being written already."""
