"""Pauses between restarts."""

from __future__ import annotations

from voxgate.gateway.restarts import LONG_LIFE_S, LONGEST_PAUSE_S, Restarts


def test_the_first_restart_comes_at_once_and_later_ones_wait() -> None:
    restarts = Restarts()
    restarts.ready(0.0)
    assert [restarts.lost(10.0 + n) for n in range(5)] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert [restarts.lost(100.0) for _ in range(50)][-1] == LONGEST_PAUSE_S


def test_an_engine_that_comes_up_and_dies_at_once_is_not_started_faster_for_it() -> None:
    restarts, now_s, pauses = Restarts(), 0.0, []
    for _ in range(12):
        restarts.ready(now_s)
        now_s += 10.0
        pauses.append(restarts.lost(now_s))
        now_s += pauses[-1]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S


def test_a_long_life_is_a_new_beginning() -> None:
    restarts = Restarts()
    restarts.ready(0.0)
    restarts.lost(1.0)
    restarts.ready(2.0)
    assert restarts.lost(3.0) == 0.5
    restarts.ready(4.0)
    assert restarts.lost(4.0 + LONG_LIFE_S) == 0.0
    assert restarts.count == 1
