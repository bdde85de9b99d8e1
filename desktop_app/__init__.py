"""The desktop chat application: a thin PySide6 window over `pilotfish.runtime`."""
