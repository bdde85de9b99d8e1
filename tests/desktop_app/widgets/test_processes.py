"""The application as a process: killed while a reply streams, and launched twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from pilotfish.desktop_app import cli, places
from pilotfish.desktop_app.errors import DesktopError
from pilotfish.desktop_app.store import Store
from pilotfish.desktop_app.widgets.single_instance import SingleInstance

SUPPORT = Path(__file__).parents[2] / "support"
CHECKPOINT_S = 1.0
MARGIN_S = 1.0  # a timer of a busy machine may come late


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen]:
    monkeypatch.setenv("PILOTFISH_DATA", str(tmp_path / "data"))
    (tmp_path / "pair").mkdir()
    path = os.pathsep.join([*filter(None, sys.path), str(SUPPORT.parent)])
    command = [sys.executable, str(SUPPORT / "run_application.py"), str(tmp_path), str(tmp_path / "pair")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
    yield running
    running.kill()
    running.wait()
    running.stdout.close()


def test_killed_in_mid_stream_it_loses_at_most_the_last_second(process: subprocess.Popen, qapp):
    seen: list[tuple[float, int]] = []
    for line in process.stdout:
        seconds, length = line.split()
        seen.append((float(seconds), int(length)))
        if seen[-1][0] - seen[0][0] > 4:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    seen += [(float(words[0]), int(words[1])) for line in process.stdout if len(words := line.split()) == 2]
    ended_s = seen[-1][0]
    expected = max(length for seconds, length in seen if seconds <= ended_s - CHECKPOINT_S - MARGIN_S)
    instance = SingleInstance(places.lock_path())
    assert instance.acquire()  # the lock of a killed process holds nobody up
    instance.release()
    with Store(places.chats_path()) as store:
        (entry,) = store.chats()
        question, reply = store.load(entry.id).path
    assert question.text == "a question that must not be lost"
    assert reply.state == "interrupted"
    assert expected > 100
    assert len(reply.text) >= expected
    assert " ".join(f"word{number}" for number in range(200_000)).startswith(reply.text)


def test_a_second_launch_shows_the_window_of_the_first(process: subprocess.Popen, tmp_path: Path):
    process.stdout.readline()  # it runs
    second = [sys.executable, *process.args[1:]]
    path = os.pathsep.join([*filter(None, sys.path), str(SUPPORT.parent)])
    ended = subprocess.run(second, timeout=120, env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    assert (ended.returncode, ended.stdout) == (0, b"")
    assert process.poll() is None


def test_the_self_test_of_the_stand_alone_program(bundle_path: Path):
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-m", "pilotfish.desktop_app.standalone", "--self-test"]
    for arguments, words in (([], "the engine's process answers"), ([str(bundle_path)], "the model answers: ")):
        ended = subprocess.run(
            [*command, *arguments], timeout=240, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
        assert (ended.returncode, words in ended.stdout) == (0, True), ended.stderr


def test_one_instance_answers_the_other(tmp_path: Path, qtbot):
    first, second = SingleInstance(tmp_path / "lock"), SingleInstance(tmp_path / "lock")
    shown = []
    first.shown_again.connect(lambda: shown.append(time.monotonic()))
    assert first.acquire()
    assert not second.acquire()
    assert f"process {os.getpid()}" in second.owner
    assert second.show_other()
    qtbot.waitUntil(lambda: len(shown) == 1, timeout=10_000)
    first.release()
    assert second.acquire()
    assert not first.show_other() or shown  # nobody answers for a program that has ended
    second.release()


def test_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    app = typer.Typer()
    cli.register(app)
    app.command("other")(lambda: None)
    result = CliRunner().invoke(app, ["app", "--bundle", str(tmp_path / "missing")])
    assert isinstance(result.exception, DesktopError)
    assert "is no folder" in str(result.exception)
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["app"])
    assert "pip install 'pilotfish[app]'" in str(result.exception)
