"""Runs the application with a fake engine in a process of its own, for tests that kill it.

`python run_application.py TEXT_FILE_FOLDER BUNDLE` asks one question and then prints "seconds length" of the reply.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ["QT_QPA_PLATFORM"] = "offscreen"

from PySide6.QtCore import QTimer

from pilotfish.desktop_app.widgets import application
from support.fake_engine import fake_command

TEXT = " ".join(f"word{number}" for number in range(200_000))


def main() -> None:
    folder, bundle = Path(sys.argv[1]), Path(sys.argv[2])
    build = application.build

    def watched(*arguments):
        control = build(*arguments)
        timer = QTimer(control, interval=50)

        def tick() -> None:
            session = control.desk.session
            if control.desk.engine.phase == "ready" and not session.conversation.path:
                control.window.composer.editor.setPlainText("a question that must not be lost")
                control.window.composer.submit()
            elif session.is_busy:
                print(time.monotonic(), len(session.conversation.path[-1].text), flush=True)

        timer.timeout.connect(tick)
        timer.start()
        return control

    application.build = watched
    sys.exit(application.run(bundle, fake_command(TEXT, folder, tokens_per_s=500)))


if __name__ == "__main__":
    main()
