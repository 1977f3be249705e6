"""How long steps take, for engines that wait for each and for those that order ahead."""

from __future__ import annotations

import pytest
from voxgate.pipeline.talker.step_clock import StepClock

FIRST, SECOND, THIRD = object(), object(), object()


def test_after_a_rest_a_step_counts_from_its_order() -> None:
    clock = StepClock()
    clock.order(FIRST, 10.0)
    assert clock.outcome(FIRST, 10.5) == pytest.approx(0.5)
    clock.rest()
    clock.order(SECOND, 20.0)
    assert clock.outcome(SECOND, 20.2) == pytest.approx(0.2)


def test_without_a_rest_what_lies_between_two_steps_counts_too() -> None:
    clock = StepClock()
    clock.order(FIRST, 10.0)
    clock.outcome(FIRST, 10.5)
    clock.order(SECOND, 10.75)
    assert clock.outcome(SECOND, 11.0) == pytest.approx(0.5)


def test_a_step_ordered_ahead_counts_from_the_outcome_before_it() -> None:
    clock = StepClock()
    clock.order(FIRST, 10.0)
    clock.order(SECOND, 10.1)
    assert clock.outcome(FIRST, 10.5) == pytest.approx(0.5)
    # Everything that was there is ordered: the engine reports that it has nothing to order.
    clock.rest()
    assert clock.outcome(SECOND, 10.9) == pytest.approx(0.4)


def test_orders_without_an_outcome_are_passed_over() -> None:
    clock = StepClock()
    clock.order(FIRST, 10.0)
    clock.order(SECOND, 11.0)
    assert clock.outcome(SECOND, 11.25) == pytest.approx(0.25)
    clock.order(THIRD, 11.25)
    assert clock.outcome(THIRD, 11.5) == pytest.approx(0.25)
