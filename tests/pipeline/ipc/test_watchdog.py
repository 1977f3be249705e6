"""When silence means that a process hangs."""

from __future__ import annotations

import math

from voxgate.pipeline.ipc.watchdog import MAX_LOOK_DELAY_S, HeartbeatWatchdog


def expired(watchdog: HeartbeatWatchdog, now_s: float, slowest_s: float = 0.0) -> bool:
    """A look that takes place when it was planned."""
    return watchdog.expired(now_s, now_s, slowest_s)


def test_silence_without_request_never_expires() -> None:
    watchdog = HeartbeatWatchdog(5)
    assert watchdog.due_s() == math.inf
    assert not expired(watchdog, 1e6)


def test_unanswered_request_expires_at_limit() -> None:
    watchdog = HeartbeatWatchdog(5)
    watchdog.on_request(10.0)
    assert watchdog.due_s() == 15.0
    assert not expired(watchdog, 14.9)
    assert expired(watchdog, 15.0)


def test_further_requests_do_not_restart_clock() -> None:
    watchdog = HeartbeatWatchdog(5)
    watchdog.on_request(10.0)
    watchdog.on_request(14.0)
    assert expired(watchdog, 15.0)


def test_any_message_answers_request() -> None:
    watchdog = HeartbeatWatchdog(5)
    watchdog.on_request(10.0)
    watchdog.on_message(11.0)
    assert not expired(watchdog, 100.0)


def test_message_with_pending_requests_restarts_clock() -> None:
    watchdog = HeartbeatWatchdog(5)
    watchdog.on_request(100.0)
    watchdog.on_message(103.0, pending=True)
    assert not expired(watchdog, 105.0)
    assert watchdog.due_s() == 108.0
    assert expired(watchdog, 108.0)


def test_work_before_answer_extends_limit() -> None:
    watchdog = HeartbeatWatchdog(5)
    watchdog.on_request(0.0)
    assert watchdog.due_s(20.0) == 25.0
    assert not expired(watchdog, 24.0, 20.0)
    assert expired(watchdog, 25.0, 20.0)


def test_delayed_look_restarts_clock() -> None:
    watchdog = HeartbeatWatchdog(5)
    watchdog.on_request(100.0)
    late_s = 105.0 + 2 * MAX_LOOK_DELAY_S
    assert not watchdog.expired(late_s, 105.0)
    assert watchdog.due_s() == late_s + 5.0
    assert expired(watchdog, late_s + 5.0)


def test_time_by_which_a_look_comes_late_is_not_counted() -> None:
    """The watching process was busy for almost as long as the limit; the answer may be in its socket."""
    watchdog = HeartbeatWatchdog(5, max_look_delay_s=5)
    watchdog.on_request(0.0)
    assert not watchdog.expired(5.1, 0.25)
    assert watchdog.due_s() == 5.0 + 4.85
    assert expired(watchdog, 9.85)


def test_hang_is_found_though_each_look_comes_late() -> None:
    watchdog = HeartbeatWatchdog(5, max_look_delay_s=5)
    watchdog.on_request(0.0)
    now_s, looks = 0.0, 0
    while not watchdog.expired(now_s + 2.25, now_s + 0.25):
        now_s, looks = now_s + 2.25, looks + 1
    assert looks == 19


def test_probe_is_due_after_interval_without_message_and_only_once() -> None:
    watchdog = HeartbeatWatchdog(5)
    assert watchdog.probe_due(0.0, 1.0)
    watchdog.on_request(0.0)
    assert not watchdog.probe_due(4.0, 1.0)
    watchdog.on_message(4.5)
    assert not watchdog.probe_due(5.0, 1.0)
    assert watchdog.probe_due(5.5, 1.0)
