"""What pongs prove."""

from __future__ import annotations

import math

from voxgate.gateway.reading import PROBE_S, Reading


def test_a_client_that_was_sent_nothing_is_not_silent() -> None:
    assert Reading().silent_since_s() == math.inf


def test_one_ping_is_under_way_at_a_time_and_a_second_between_two() -> None:
    reading = Reading()
    assert [reading.ask(100.0 + tenth / 10) for tenth in range(30)].count(True) == 1
    reading.answered()
    assert not reading.ask(100.5)
    assert reading.ask(100.0 + PROBE_S)


def test_silence_counts_from_the_ping_that_has_no_answer() -> None:
    reading = Reading()
    reading.ask(100.0)
    reading.answered()
    assert reading.silent_since_s() == math.inf
    reading.ask(101.0)
    assert reading.silent_since_s() == 101.0
    reading.answered()
    assert reading.silent_since_s() == math.inf


def test_an_answer_that_was_not_asked_for_changes_nothing() -> None:
    reading = Reading()
    reading.answered()
    assert reading.silent_since_s() == math.inf
    assert reading.ask(0.0)
