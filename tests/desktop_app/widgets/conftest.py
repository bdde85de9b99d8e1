from __future__ import annotations

import os

# Before the first import of Qt: the tests run where there is no screen.
os.environ["QT_QPA_PLATFORM"] = "offscreen"
