"""Everything pilotfish raises on purpose. The message says what was wrong, with the values, and what to do next.

```
PilotfishError
├── BundleError            a bundle that is missing, damaged, or of another format version
├── CheckpointError        a source model that cannot be read, or of an unsupported kind
│   └── UnsupportedModelError   one that is sound, but computes what the builder of its family does not
├── PairingError           a draft that cannot draft for its target
├── ParityError            an exported graph that is too far from its source, or not consistent with itself
├── ContextOverflowError   a prompt that does not fit the context
├── TemplateError          a chat template that fails or tries to escape its sandbox
├── OptionError            an option whose value is out of range or unknown
├── GrammarError           a grammar that is faulty, or that the output cannot follow any further
├── DeviceError            an execution provider or device that is not there
├── DownloadError          a file that cannot be fetched, or whose checksum is wrong
├── CacheFileError         a file of saved caches that is missing, damaged, or not of this engine
├── StorageError           a folder that cannot be written, or a full disk
└── Cancelled              loading was cancelled; a generation says so by its finish reason instead
```

The commands end with exit code 2 on any of these. Stop, end of text and the token limit are not errors: they are
the `finish_reason` of a result.
"""

from __future__ import annotations


class PilotfishError(Exception):
    """Base of all errors that pilotfish raises on purpose."""


class BundleError(PilotfishError):
    """A bundle is missing, damaged, or of a format version this release does not read."""


class CheckpointError(PilotfishError):
    """A source model cannot be read, or is of a kind that export does not support."""


class UnsupportedModelError(CheckpointError):
    """A source model is sound, but computes something that no builder does."""


class PairingError(PilotfishError):
    """A draft cannot draft for its target."""


class ParityError(PilotfishError):
    """An exported graph is too far from its source weights, or its passes do not agree with each other."""


class ContextOverflowError(PilotfishError):
    """A prompt does not fit the context length."""


class TemplateError(PilotfishError):
    """A chat template fails, or does what its sandbox forbids."""


class OptionError(PilotfishError):
    """An option's value is out of range or unknown."""


class GrammarError(PilotfishError):
    """A grammar is faulty, or the output cannot follow it any further."""


class DeviceError(PilotfishError):
    """An execution provider, or the device it needs, is not there."""


class DownloadError(PilotfishError):
    """A file cannot be fetched, or is not the file that was asked for."""


class CacheFileError(PilotfishError):
    """A file of saved caches is missing, damaged, or was not saved by an engine like this one."""


class StorageError(PilotfishError):
    """A folder cannot be written, or the disk is full."""


class Cancelled(PilotfishError):  # noqa: N818 - an outcome, not a fault
    """Loading was cancelled, or a forward; of the latter the stream makes the finish reason `cancelled`."""
