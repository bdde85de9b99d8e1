"""The event loop comes round while a fast and long reply streams, and while a bundle loads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.application import Application, GapMeter
from support.fake_engine import fake_command

PARAGRAPH = "Some *words* and `code` in a paragraph of usual length, which goes on for a while, and then it ends.\n\n"
LONG_REPLY = (PARAGRAPH * 8 + "```python\ndef f(x):\n    return x + 1\n```\n\n- one\n- two\n\n") * 115
GAP_S = 0.05  # what a user may begin to feel


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PILOTFISH_DATA", str(tmp_path / "data"))
    (tmp_path / "pair").mkdir()
    return tmp_path / "pair"


@pytest.fixture
def meter(qapp) -> Iterator[GapMeter]:
    meter = GapMeter()
    yield meter
    meter.stop()


def report(name: str, meter: GapMeter) -> None:
    for what, times in (("gaps", meter.gaps), ("work in a gap", meter.work)):
        late, middle = times[len(times) // 100], times[len(times) // 2]
        print(f"\n{name}, {what}: longest {1e3 * times[0]:.0f} ms, one in a hundred over {1e3 * late:.0f} ms, "
              f"median {1e3 * middle:.1f} ms")  # fmt: skip


def test_while_two_thousand_tokens_a_second_stream(bundle: Path, tmp_path: Path, meter: GapMeter):
    assert len(LONG_REPLY) > 100_000
    app = Application(fake_command(LONG_REPLY, tmp_path, tokens_per_s=2000))
    app.control.settings.apply(unlimited(app.control.settings.settings))
    app.launch(bundle)
    meter.start()
    reply = app.ask("go on")
    meter.stop()
    app.close()
    assert reply.text == LONG_REPLY
    report("streaming", meter)
    check(meter)


def test_while_a_bundle_loads(smollm2_bundle: Path, bundle: Path, meter: GapMeter):
    app = Application(None)
    app.control.launch(None)
    app.wait(lambda: app.desk.engine.phase == "empty")
    meter.start()
    app.control.engine.load(smollm2_bundle)
    app.wait(lambda: app.desk.engine.phase == "ready")
    meter.stop()
    app.close()
    report("loading", meter)
    check(meter)


def check(meter: GapMeter) -> None:
    """By what was computed, since the machine that runs the tests is shared; that makes work slower, too."""
    assert meter.gaps[len(meter.gaps) // 2] < GAP_S
    assert meter.work[len(meter.work) // 100] < GAP_S
    assert meter.work[0] < 4 * GAP_S


def unlimited(settings):
    return replace(settings, reply=replace(settings.reply, max_tokens=None))
