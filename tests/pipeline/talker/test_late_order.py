"""How long the order of the next step can wait."""

from __future__ import annotations

import pytest
from voxgate.pipeline.talker.late_order import MARGIN_S, MOST_S, OrderTimes


def steps(times: OrderTimes, count: int, took_s: float, *, rows: int = 3, now_s: float = 0.0) -> float:
    """So many steps, one ordered a millisecond after the one before it began and launched a millisecond later."""
    times.ordered(rows, rows, now_s)
    times.launched(now_s + 0.001)
    began_s = now_s + 0.001
    for _ in range(count):
        times.ordered(rows, rows, began_s + 0.001)
        times.launched(began_s + 0.002)
        began_s += took_s
        times.over(began_s)
    return began_s


def test_the_order_waits_until_it_is_just_in_time() -> None:
    times = OrderTimes()
    began_s = steps(times, 8, 0.005)
    # 5 ms a step, 1 ms to prepare the next.
    assert times.wait_s(began_s) == pytest.approx(0.004 - MARGIN_S)
    assert times.wait_s(began_s + 0.003) == pytest.approx(0.001 - MARGIN_S)
    assert times.wait_s(began_s + 0.004) == 0


def test_nothing_is_waited_for_while_nothing_is_under_way_or_two_steps_are() -> None:
    times = OrderTimes()
    assert times.wait_s(0.0) == 0
    began_s = steps(times, 8, 0.005)
    times.ordered(3, 3, began_s)
    assert times.wait_s(began_s) == 0
    times.over(began_s + 0.005)
    times.over(began_s + 0.010)
    assert times.wait_s(began_s + 0.010) == 0


def test_steps_of_a_size_that_is_not_known_are_not_waited_for() -> None:
    times = OrderTimes()
    began_s = steps(times, 8, 0.005)
    times.over(began_s + 0.005)
    times.ordered(3, 40, began_s + 0.005)
    times.launched(began_s + 0.006)
    assert times.wait_s(began_s + 0.006) == 0, "frames beside a prompt"
    assert OrderTimes().wait_s(0.0) == 0


def test_the_quickest_of_the_last_steps_and_most_preparations_count() -> None:
    times = OrderTimes()
    began_s = steps(times, 8, 0.009)
    times.over(began_s + 0.004)
    began_s += 0.004
    # One long preparation does not change what is allowed for; several do.
    times.ordered(3, 3, began_s)
    times.launched(began_s + 0.003)
    assert times.wait_s(began_s + 0.003) == pytest.approx(0.004 - 0.001 - MARGIN_S)
    for _ in range(4):
        times.over(began_s + 0.007)
        began_s += 0.007
        times.ordered(3, 3, began_s)
        times.launched(began_s + 0.003)
    assert times.wait_s(began_s + 0.003) == pytest.approx(0.004 - 0.003 - MARGIN_S)


def test_a_preparation_that_has_not_ended_tells_nothing() -> None:
    times = OrderTimes()
    began_s = steps(times, 8, 0.005)
    times.over(began_s + 0.005)
    times.ordered(3, 3, began_s + 0.006)
    assert times.wait_s(began_s + 0.006) == 0


def test_a_wait_has_a_bound() -> None:
    times = OrderTimes()
    began_s = steps(times, 8, 0.5)
    assert times.wait_s(began_s) == MOST_S


def test_outcomes_without_a_step_are_passed_over() -> None:
    times = OrderTimes()
    times.over(1.0)
    times.launched(1.0)
    assert times.wait_s(1.0) == 0
