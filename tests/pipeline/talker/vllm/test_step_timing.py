"""How long steps take, for engines that wait for each and for those that order ahead."""
# TODO-DOC How long the order of the next step can wait.

from __future__ import annotations

import pytest
from voxgate.pipeline.talker.vllm.step_timing import MARGIN_S, MAX_WAIT_S, JustInTimeEstimator, StepTimer

FIRST, SECOND, THIRD = object(), object(), object()


def test_after_a_rest_a_step_counts_from_its_order() -> None:
    clock = StepTimer()
    clock.order(FIRST, 10.0)
    assert clock.outcome(FIRST, 10.5) == pytest.approx(0.5)
    clock.rest()
    clock.order(SECOND, 20.0)
    assert clock.outcome(SECOND, 20.2) == pytest.approx(0.2)


def test_without_a_rest_what_lies_between_two_steps_counts_too() -> None:
    clock = StepTimer()
    clock.order(FIRST, 10.0)
    clock.outcome(FIRST, 10.5)
    clock.order(SECOND, 10.75)
    assert clock.outcome(SECOND, 11.0) == pytest.approx(0.5)


def test_a_step_ordered_ahead_counts_from_the_outcome_before_it() -> None:
    clock = StepTimer()
    clock.order(FIRST, 10.0)
    clock.order(SECOND, 10.1)
    assert clock.outcome(FIRST, 10.5) == pytest.approx(0.5)
    # Everything that was there is ordered: the engine reports that it has nothing to order.
    clock.rest()
    assert clock.outcome(SECOND, 10.9) == pytest.approx(0.4)


def test_orders_without_an_outcome_are_passed_over() -> None:
    clock = StepTimer()
    clock.order(FIRST, 10.0)
    clock.order(SECOND, 11.0)
    assert clock.outcome(SECOND, 11.25) == pytest.approx(0.25)
    clock.order(THIRD, 11.25)
    assert clock.outcome(THIRD, 11.5) == pytest.approx(0.25)


def steps(times: JustInTimeEstimator, count: int, took_s: float, *, rows: int = 3, now_s: float = 0.0) -> float:
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
    times = JustInTimeEstimator()
    began_s = steps(times, 8, 0.005)
    # 5 ms a step, 1 ms to prepare the next.
    assert times.wait_s(began_s) == pytest.approx(0.004 - MARGIN_S)
    assert times.wait_s(began_s + 0.003) == pytest.approx(0.001 - MARGIN_S)
    assert times.wait_s(began_s + 0.004) == 0


def test_nothing_is_waited_for_while_nothing_is_under_way_or_two_steps_are() -> None:
    times = JustInTimeEstimator()
    assert times.wait_s(0.0) == 0
    began_s = steps(times, 8, 0.005)
    times.ordered(3, 3, began_s)
    assert times.wait_s(began_s) == 0
    times.over(began_s + 0.005)
    times.over(began_s + 0.010)
    assert times.wait_s(began_s + 0.010) == 0


def test_steps_of_a_size_that_is_not_known_are_not_waited_for() -> None:
    times = JustInTimeEstimator()
    began_s = steps(times, 8, 0.005)
    times.over(began_s + 0.005)
    times.ordered(3, 40, began_s + 0.005)
    times.launched(began_s + 0.006)
    assert times.wait_s(began_s + 0.006) == 0, "frames beside a prompt"
    assert JustInTimeEstimator().wait_s(0.0) == 0


def test_the_quickest_of_the_last_steps_and_most_preparations_count() -> None:
    times = JustInTimeEstimator()
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
    times = JustInTimeEstimator()
    began_s = steps(times, 8, 0.005)
    times.over(began_s + 0.005)
    times.ordered(3, 3, began_s + 0.006)
    assert times.wait_s(began_s + 0.006) == 0


def test_a_wait_has_a_bound() -> None:
    times = JustInTimeEstimator()
    began_s = steps(times, 8, 0.5)
    assert times.wait_s(began_s) == MAX_WAIT_S


def test_outcomes_without_a_step_are_passed_over() -> None:
    times = JustInTimeEstimator()
    times.over(1.0)
    times.launched(1.0)
    assert times.wait_s(1.0) == 0
