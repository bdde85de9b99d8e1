"""Events from another thread arrive in Qt's, in order, and none after the end."""

from __future__ import annotations

import threading

from pilotfish.desktop_app.widgets.bridge import Bridge


def test_events_arrive_in_the_thread_of_the_window_and_in_order(qtbot):
    bridge, seen = Bridge(), []
    bridge.arrived.connect(lambda event: seen.append((event, threading.current_thread())))

    def deliver() -> None:
        for number in range(2000):
            bridge.deliver(number)

    thread = threading.Thread(target=deliver)
    thread.start()
    thread.join()
    assert seen == []  # nothing happens outside the event loop
    qtbot.waitUntil(lambda: len(seen) == 2000, timeout=30_000)
    assert [event for event, _ in seen] == list(range(2000))
    assert {where for _, where in seen} == {threading.main_thread()}


def test_nothing_arrives_after_close_not_even_what_was_on_its_way(qtbot):
    bridge, seen = Bridge(), []
    bridge.arrived.connect(seen.append)
    bridge.deliver("on its way")
    bridge.close()
    bridge.close()
    bridge.deliver("too late")
    qtbot.wait(20)
    assert seen == []
