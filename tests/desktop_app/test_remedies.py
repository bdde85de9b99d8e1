from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilotfish.desktop_app.load_record import LoadRecord
from pilotfish.desktop_app.remedies import death, failure
from pilotfish.runtime import BundleError, ContextOverflowError


@pytest.mark.parametrize(
    ("exit_code", "cause", "remedy"),
    [
        (-9, "was ended by the system, most often because memory had run out (SIGKILL) while loading big.", "smaller"),
        (-11, "crashed (SIGSEGV)", "another model"),
        (-4, "lacks an instruction", "another computer"),
        (-15, "ended from outside", "Start the engine again"),
        (-63, "was ended (63)", "Start the engine again"),
        (0xC0000005, "The engine crashed while loading big.", "another model"),
        (0xC0000017, "memory had run out", "smaller"),
        (0, "ended with exit code 0: the last line", "Start the engine again"),
        (3, "ended with exit code 3: the last line", "Start the engine again"),
    ],
)
def test_every_death_has_a_cause_and_a_remedy(exit_code: int, cause: str, remedy: str):
    died = death(exit_code, "loading big", "first\n the last line \n\n")
    assert cause in died.cause
    assert remedy in died.remedy
    assert died.details == "first\n the last line \n\n"


def test_a_death_of_nothing_in_particular():
    assert death(3, "", "").cause == "The engine ended with exit code 3."


@pytest.mark.parametrize(
    ("error", "fault", "message", "remedy"),
    [
        (BundleError("x is missing; a; export it again"), "bundle", "x is missing; a", "export it again"),
        (ContextOverflowError("too long"), "context", "too long", "start the engine again; if"),
        (MemoryError(), "memory", "not enough memory", "smaller model"),
        (RuntimeError("std::bad_alloc"), "memory", "not enough memory", "smaller model"),
        (BundleError("ONNX Runtime cannot open x: Failed to allocate memory"), "memory", "not enough", "smaller"),
        (ValueError(""), "internal", "ValueError", "update pilotfish"),
    ],
)
def test_every_failure_has_a_message_and_a_remedy(error: Exception, fault: str, message: str, remedy: str):
    failed = failure(4, error)
    assert (failed.request_id, failed.fault) == (4, fault)
    assert message in failed.message
    assert remedy in failed.remedy


def test_a_load_that_ended_with_the_program_is_not_repeated(tmp_path: Path):
    path = tmp_path / "data" / "loads.json"
    record = LoadRecord(path)
    assert record.bundle_for_launch is None
    record.begin("a")
    record.succeed("a")
    record.begin("b")
    assert LoadRecord(path).crashed == ("b",)
    assert LoadRecord(path).bundle_for_launch == "a"
    record = LoadRecord(path)
    record.begin("a")
    record = LoadRecord(path)
    assert (record.crashed, record.bundle_for_launch) == (("b", "a"), None)
    record.begin("b")
    record.fail("b")
    assert LoadRecord(path).crashed == ("b", "a")
    record.begin("b")
    record.succeed("b")
    assert (LoadRecord(path).crashed, LoadRecord(path).bundle_for_launch) == (("a",), "b")


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b'{"loading": 3}', b'{"other": 1}'])
def test_a_record_that_cannot_be_read_is_begun_anew(tmp_path: Path, content: bytes):
    path = tmp_path / "loads.json"
    path.write_bytes(content)
    record = LoadRecord(path)
    assert (record.crashed, record.bundle_for_launch) == ((), None)
    record.begin("a")
    record.succeed("a")
    assert json.loads(path.read_text())["last"] == "a"


def test_a_record_that_cannot_be_written_does_no_harm(tmp_path: Path):
    (tmp_path / "file").write_text("")
    record = LoadRecord(tmp_path / "file" / "loads.json")
    record.begin("a")
    record.succeed("a")
    assert record.bundle_for_launch == "a"
