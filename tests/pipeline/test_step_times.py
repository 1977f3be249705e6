"""What is made of measured steps: a curve that never falls, knows its age, and drifts with the machine."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from voxgate.pipeline.step_times import FRESH_S, StepTimes


def times_of(*steps: tuple[int, float], count: int = 10, now_s: float = 0.0) -> StepTimes:
    """`count` steps of each (batch, seconds)."""
    times = StepTimes()
    for batch, seconds in steps:
        measure(times, batch, seconds, now_s, count)
    return times


def measure(times: StepTimes, batch: int, seconds: float, now_s: float, count: int = 10) -> None:
    for _ in range(count):
        times.record(batch, seconds, now_s)


def test_nothing_is_known_before_anything_was_measured() -> None:
    assert StepTimes().curve(0.0).at(1) is None
    assert StepTimes().summaries() == []


def test_between_measured_batches_it_goes_straight_and_beyond_them_on_at_the_slope() -> None:
    curve = times_of((2, 0.010), (4, 0.014)).curve(0.0)
    assert [curve.at(batch) for batch in (1, 2, 3, 4, 8)] == pytest.approx([0.010, 0.010, 0.012, 0.014, 0.022])


def test_one_known_batch_says_that_more_take_in_proportion() -> None:
    assert times_of((4, 0.020)).curve(0.0).at(12) == pytest.approx(0.060)


def test_it_is_slow_stretches_that_count_and_not_slow_steps() -> None:
    times = times_of((1, 0.010), count=95)
    measure(times, 1, 0.100, 0.0, count=1)
    assert times.curve(0.0).at(1) == pytest.approx(0.010)
    for _ in range(6):
        measure(times, 1, 0.010, 0.0, count=8)
        measure(times, 1, 0.020, 0.0, count=8)
    assert times.curve(0.0).at(1) == pytest.approx(0.020)
    assert times.summaries()[0].p50_s == pytest.approx(0.015)


def test_an_accident_in_the_calibration_does_not_stand_for_good() -> None:
    times = times_of((1, 0.010))
    measure(times, 1, 0.200, 0.0, count=3)
    times.settle()
    assert times.curve(1e6).at(1) == pytest.approx(0.010)


@given(st.lists(st.tuples(st.integers(1, 200), st.floats(0.001, 1.0)), min_size=1, max_size=12))
def test_more_rows_never_take_less_time(steps: list[tuple[int, float]]) -> None:
    curve = times_of(*steps).curve(0.0)
    values = [curve.at(batch) or 0.0 for batch in range(1, 300)]
    assert all(later >= earlier - 1e-12 for earlier, later in itertools.pairwise(values))


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0.001, 0.2)), min_size=1, max_size=8), st.floats(0.001, 0.5))
def test_the_largest_batch_within_a_time_is_the_largest(steps: list[tuple[int, float]], budget_s: float) -> None:
    curve = times_of(*steps).curve(0.0)
    most = curve.most_within(budget_s, 64)
    assert most == sum((curve.at(batch) or 0.0) <= budget_s for batch in range(1, 65))


def test_a_bad_moment_is_forgotten_when_nothing_like_it_is_measured_again() -> None:
    times = times_of((1, 0.010), (8, 0.040))
    times.settle()
    measure(times, 8, 0.200, now_s=30.0, count=64)
    assert times.curve(30.0).at(8) == pytest.approx(0.200)
    # From then on only small batches are let through.
    later_s = 30.0 + FRESH_S + 1
    measure(times, 1, 0.010, now_s=later_s)
    assert times.curve(later_s).at(8) == pytest.approx(0.040)


def test_a_machine_that_became_slower_is_slower_at_batches_it_has_not_met_since() -> None:
    times = times_of((1, 0.010), (4, 0.020), (8, 0.040))
    times.settle()
    measure(times, 4, 0.040, now_s=100.0)
    assert times.curve(100.0).at(8) == pytest.approx(0.080)


def test_single_steps_say_little_of_large_ones() -> None:
    times = times_of((1, 0.010), (8, 0.040))
    times.settle()
    measure(times, 1, 0.020, now_s=100.0)
    assert times.curve(100.0).at(8) == pytest.approx(0.040 * 1.25)


def test_few_new_steps_change_nothing_yet() -> None:
    times = times_of((4, 0.020))
    times.settle()
    measure(times, 4, 0.200, now_s=100.0, count=4)
    assert times.curve(100.0).at(4) == pytest.approx(0.020)
    measure(times, 4, 0.200, now_s=100.0, count=1)
    assert times.curve(100.0).at(4) == pytest.approx(0.200)


def test_without_a_calibration_the_last_figures_stand() -> None:
    times = times_of((4, 0.020))
    assert times.curve(1e6).at(4) == pytest.approx(0.020)


def test_a_batch_met_first_in_a_bad_moment_is_forgotten_after_it() -> None:
    times = times_of((1, 0.010), (8, 0.040))
    times.settle()
    measure(times, 4, 0.300, now_s=50.0)
    assert times.curve(50.0).at(4) == pytest.approx(0.170), "the mean with the larger batch that took less"
    assert times.curve(50.0 + FRESH_S + 1).at(4) == pytest.approx(0.010 + 0.030 * 3 / 7)


def test_summaries_tell_count_median_and_slow_steps_by_batch() -> None:
    times = times_of((1, 0.010), (5, 0.020), (6, 0.020))
    small, large = times.summaries()
    assert (small.batch, small.steps, small.p50_s) == (1, 10, 0.010)
    assert (large.steps, large.p90_s) == (20, 0.020)
    assert large.batch in (5, 6)
