"""When silence means that an engine hangs."""

from __future__ import annotations

from voxgate.pipeline.ipc.watchdog import HeartbeatWatchdog


def test_silence_before_a_question_means_nothing() -> None:
    assert not HeartbeatWatchdog(5).hangs(1e6, 0.0)


def test_an_engine_that_answers_is_asked_again() -> None:
    watchdog = HeartbeatWatchdog(5)
    for second in range(0, 100, 2):
        assert not watchdog.hangs(second, 0.0)
        assert watchdog.asks(second)
        watchdog.heard()
        assert not watchdog.asks(second + 1), "it was just heard"


def test_an_open_question_is_not_asked_twice_and_counts_from_when_it_was_asked() -> None:
    watchdog = HeartbeatWatchdog(5)
    assert watchdog.asks(10.0)
    assert not any(watchdog.asks(10.0 + second) for second in range(1, 5))
    assert not watchdog.hangs(14.9, 0.0)
    assert watchdog.hangs(15.0, 0.0)


def test_anything_it_says_is_an_answer() -> None:
    watchdog = HeartbeatWatchdog(5)
    watchdog.asks(10.0)
    watchdog.heard()
    assert not watchdog.hangs(100.0, 0.0)


def test_who_has_not_looked_for_long_gives_it_the_time_anew() -> None:
    watchdog = HeartbeatWatchdog(5)
    assert not watchdog.hangs(1.0, 0.0)
    watchdog.asks(1.0)
    assert not watchdog.hangs(60.0, 0.0)
    assert not watchdog.hangs(64.9, 0.0)
    assert watchdog.hangs(65.0, 0.0)


def test_an_engine_with_much_to_do_is_waited_for() -> None:
    watchdog = HeartbeatWatchdog(5)
    watchdog.asks(0.0)
    assert not watchdog.hangs(24.0, 20.0)
    assert watchdog.hangs(25.0, 20.0)
