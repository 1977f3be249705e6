"""The latency curve made from measured steps, and the timer of the steps in flight."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from voxgate.pipeline.step_times import FRESH_S, StepTimer, StepTimes


def times_of(*steps: tuple[int, float], count: int = 10, now_s: float = 0.0) -> StepTimes:
    """Records `count` steps of each (batch, seconds)."""
    times = StepTimes()
    for batch, seconds in steps:
        measure(times, batch, seconds, now_s, count)
    return times


def measure(times: StepTimes, batch: int, seconds: float, now_s: float, count: int = 10) -> None:
    for _ in range(count):
        times.record(batch, seconds, now_s)


def test_curve_is_unknown_before_the_first_measurement() -> None:
    assert StepTimes().curve(0.0).at(1) is None
    assert StepTimes().summaries() == []


def test_curve_is_linear_between_batches_and_continues_at_their_slope() -> None:
    curve = times_of((2, 0.010), (4, 0.014)).curve(0.0)
    assert [curve.at(batch) for batch in (1, 2, 3, 4, 8)] == pytest.approx([0.010, 0.010, 0.012, 0.014, 0.022])


def test_curve_is_proportional_beyond_the_only_known_batch() -> None:
    assert times_of((4, 0.020)).curve(0.0).at(12) == pytest.approx(0.060)


def test_curve_follows_slow_stretches_rather_than_single_slow_steps() -> None:
    times = times_of((8, 0.060), count=200)
    measure(times, 8, 0.600, 0.0, count=1)
    assert times.curve(0.0).at(8) == pytest.approx(0.060)
    for _ in range(6):
        measure(times, 8, 0.060, 0.0, count=10)
        measure(times, 8, 0.120, 0.0, count=5)
    assert times.curve(0.0).at(8) == pytest.approx(0.120)
    assert times.summaries()[0].p50_s == pytest.approx(0.060)


def test_slow_steps_that_quick_ones_make_up_for_are_no_slow_stretch() -> None:
    """Beside a codec's batch a step of hundreds of rows takes twice as long, the one behind it half."""
    times = StepTimes()
    for number in range(250):
        measure(times, 400, 0.030 if number % 5 == 0 else 0.015, 0.0, count=1)
    assert times.curve(0.0).at(400) == pytest.approx(0.018, rel=0.03)


def test_baseline_ignores_outliers_of_the_calibration() -> None:
    times = times_of((1, 0.010))
    measure(times, 1, 0.200, 0.0, count=3)
    times.commit_baseline()
    assert times.curve(1e6).at(1) == pytest.approx(0.010)


@given(st.lists(st.tuples(st.integers(1, 200), st.floats(0.001, 1.0)), min_size=1, max_size=12))
def test_curve_never_falls(steps: list[tuple[int, float]]) -> None:
    curve = times_of(*steps).curve(0.0)
    values = [curve.at(batch) or 0.0 for batch in range(1, 300)]
    assert all(later >= earlier - 1e-12 for earlier, later in itertools.pairwise(values))


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0.001, 0.2)), min_size=1, max_size=8), st.floats(0.001, 0.5))
def test_largest_batch_within_a_time_equals_exhaustive_search(steps: list[tuple[int, float]], budget_s: float) -> None:
    curve = times_of(*steps).curve(0.0)
    largest = curve.largest_batch_within(budget_s, 64)
    assert largest == sum((curve.at(batch) or 0.0) <= budget_s for batch in range(1, 65))


def test_slow_samples_expire_and_the_baseline_returns() -> None:
    times = times_of((1, 0.010), (8, 0.040))
    times.commit_baseline()
    measure(times, 8, 0.200, now_s=30.0, count=64)
    assert times.curve(30.0).at(8) == pytest.approx(0.200)
    # From here on only small batches are run.
    later_s = 30.0 + FRESH_S + 1
    measure(times, 1, 0.010, now_s=later_s)
    assert times.curve(later_s).at(8) == pytest.approx(0.040)


def test_slower_machine_scales_the_baseline_of_other_batches() -> None:
    times = times_of((1, 0.010), (4, 0.020), (8, 0.040))
    times.commit_baseline()
    measure(times, 4, 0.040, now_s=100.0)
    assert times.curve(100.0).at(8) == pytest.approx(0.080)


def test_small_batch_scales_large_ones_in_proportion_only() -> None:
    times = times_of((1, 0.010), (8, 0.040))
    times.commit_baseline()
    measure(times, 1, 0.020, now_s=100.0)
    assert times.curve(100.0).at(8) == pytest.approx(0.040 * 1.25)


def test_steps_of_hundreds_of_rows_leave_those_of_all_slots_at_their_baseline() -> None:
    times = times_of((1, 0.003), (400, 0.012), (1792, 0.050), count=16)
    times.commit_baseline()
    measure(times, 400, 0.012, now_s=100.0)
    assert times.curve(100.0).at(1792) == pytest.approx(0.050)


def test_few_large_steps_while_utterances_begin_are_no_baseline() -> None:
    times = times_of((1, 0.003), (1792, 0.050), count=16)
    measure(times, 1000, 0.100, 0.0, count=15)
    times.commit_baseline()
    assert times.curve(100.0).at(1792) == pytest.approx(0.050)


def test_few_large_steps_of_a_bad_moment_are_not_used() -> None:
    """On an H200 with 1,470 utterances at once, six steps of 800 rows, where others had 400, would halve them."""
    times = times_of((1, 0.003), (400, 0.018), count=16)
    times.commit_baseline()
    measure(times, 800, 0.049, 0.0, count=15)
    assert times.curve(0.0).at(1600) == pytest.approx(0.003 + 0.015 * 1599 / 399)
    measure(times, 800, 0.049, 0.0, count=1)
    assert times.curve(0.0).at(800) == pytest.approx(0.049)


def test_few_fresh_samples_do_not_replace_the_baseline() -> None:
    times = times_of((4, 0.020))
    times.commit_baseline()
    measure(times, 4, 0.200, now_s=100.0, count=4)
    assert times.curve(100.0).at(4) == pytest.approx(0.020)
    measure(times, 4, 0.200, now_s=100.0, count=1)
    assert times.curve(100.0).at(4) == pytest.approx(0.200)


def test_without_baseline_the_last_samples_are_used() -> None:
    times = times_of((4, 0.020))
    assert times.curve(1e6).at(4) == pytest.approx(0.020)


def test_bucket_without_baseline_expires_with_its_samples() -> None:
    times = times_of((1, 0.010), (8, 0.040))
    times.commit_baseline()
    measure(times, 4, 0.300, now_s=50.0)
    assert times.curve(50.0).at(4) == pytest.approx(0.170), "pooled with the larger batch, which took less"
    assert times.curve(50.0 + FRESH_S + 1).at(4) == pytest.approx(0.010 + 0.030 * 3 / 7)


def test_summaries_hold_count_median_and_90th_percentile_by_batch() -> None:
    times = times_of((1, 0.010), (5, 0.020), (6, 0.020))
    small, large = times.summaries()
    assert (small.batch, small.steps, small.p50_s) == (1, 10, 0.010)
    assert (large.steps, large.p90_s) == (20, 0.020)
    assert large.batch in (5, 6)


FIRST, SECOND, THIRD = object(), object(), object()


def test_step_after_idle_counts_from_its_order() -> None:
    timer: StepTimer[str] = StepTimer()
    timer.ordered(FIRST, 10.0)
    assert timer.finished(FIRST, 10.5) == pytest.approx(0.5)
    timer.idle()
    timer.ordered(SECOND, 20.0)
    assert timer.finished(SECOND, 20.2) == pytest.approx(0.2)


def test_preparation_after_idle_does_not_count() -> None:
    """It overlaps the step before it where steps follow one another: a loaded engine must not seem slower for it."""
    timer: StepTimer[str] = StepTimer()
    timer.ordered(FIRST, 10.0, "shape")
    timer.launched(10.1)
    assert timer.finished(FIRST, 10.5) == pytest.approx(0.4)
    timer.idle()
    timer.ordered(SECOND, 20.0, "shape")
    timer.launched(20.05)
    timer.ordered(THIRD, 20.1, "shape")
    timer.launched(20.15)
    assert timer.finished(SECOND, 20.2) == pytest.approx(0.15)
    assert timer.finished(THIRD, 20.6) == pytest.approx(0.4)


def test_preparation_counts_after_idle_where_it_takes_longer_than_the_device() -> None:
    """As where steps follow one another, of which each is prepared while the one before it runs."""
    timer: StepTimer[str] = StepTimer()
    timer.ordered(FIRST, 10.0, "shape")
    timer.launched(10.4)
    assert timer.finished(FIRST, 10.5) == pytest.approx(0.4)
    timer.idle()
    timer.ordered(SECOND, 10.45, "shape")
    timer.launched(10.75)
    assert timer.finished(SECOND, 10.8) == pytest.approx(0.3)


def test_time_between_two_steps_counts_unless_idle() -> None:
    timer: StepTimer[str] = StepTimer()
    timer.ordered(FIRST, 10.0)
    timer.finished(FIRST, 10.5)
    timer.ordered(SECOND, 10.75)
    assert timer.finished(SECOND, 11.0) == pytest.approx(0.5)


def test_step_ordered_ahead_counts_from_the_end_of_the_one_before() -> None:
    timer: StepTimer[str] = StepTimer()
    timer.ordered(FIRST, 10.0)
    timer.ordered(SECOND, 10.1)
    assert timer.finished(FIRST, 10.5) == pytest.approx(0.5)
    # The engine ordered all it has, and reports idle while the second step runs.
    timer.idle()
    assert timer.finished(SECOND, 10.9) == pytest.approx(0.4)


def test_order_that_never_finishes_is_dropped() -> None:
    timer: StepTimer[str] = StepTimer()
    timer.ordered(FIRST, 10.0)
    timer.ordered(SECOND, 11.0)
    assert timer.finished(SECOND, 11.25) == pytest.approx(0.25)
    timer.ordered(THIRD, 11.25)
    assert timer.finished(THIRD, 11.5) == pytest.approx(0.25)


def test_unknown_step_has_no_duration() -> None:
    timer: StepTimer[str] = StepTimer()
    timer.launched(1.0)
    assert timer.finished(FIRST, 1.0) == 0.0
    assert timer.expected_end_s() is None
    assert timer.preparation_s() == 0.0


def test_only_steps_with_a_shape_are_in_flight() -> None:
    timer: StepTimer[str] = StepTimer()
    timer.ordered(FIRST, 1.0, "a")
    timer.ordered(SECOND, 1.0)
    assert timer.in_flight == 1
    timer.launched(1.5)
    timer.finished(FIRST, 2.0)
    assert timer.in_flight == 0
    assert timer.preparation_s() == pytest.approx(0.5), "the step of no shape was not launched"


def test_expected_end_follows_the_quickest_of_the_newest_steps_of_a_shape() -> None:
    timer: StepTimer[str] = StepTimer(min_samples=2)

    def expected_s(shape: str, *durations_s: float) -> float | None:
        """The expected duration of a step launched after steps of these durations as the device measured them."""
        for device_s in durations_s:
            timer.ordered(FIRST, 1.0, shape)
            timer.launched(1.0)
            timer.finished(FIRST, 1.0, device_s)
        timer.ordered(SECOND, 2.0, shape)
        timer.launched(2.0)
        end_s = timer.expected_end_s()
        timer.finished(THIRD, 1.0)  # drops the step
        return None if end_s is None else end_s - 2.0

    assert expected_s("a", 0.004) is None
    assert expected_s("a", 0.002, 0.003) == pytest.approx(0.002)
    assert expected_s("b") is None
    assert expected_s("a", *[0.005] * 8) == pytest.approx(0.005)


def test_step_launched_early_begins_when_the_device_is_free() -> None:
    timer: StepTimer[str] = StepTimer()
    timer.ordered(FIRST, 1.0, "a")
    timer.launched(1.1)
    timer.ordered(SECOND, 1.2, "a")
    timer.launched(1.3)
    timer.finished(FIRST, 2.1)
    assert timer.expected_end_s() == pytest.approx(2.1 + 1.0)


def test_step_that_was_over_before_it_was_seen_ends_when_the_device_completed_it() -> None:
    timer: StepTimer[str] = StepTimer()
    for at_s in range(10, 40, 10):
        timer.ordered(FIRST, at_s, "a")
        timer.launched(at_s + 1)
        # Seen when it was expected, and a little later.
        seen_s = max(at_s + 4.5, timer.expected_end_s() or 0.0)
        assert timer.finished(FIRST, seen_s, ended_s=at_s + 4) == pytest.approx(3 if at_s == 10 else 10)
        timer.ordered(SECOND, at_s + 5, "a")
        timer.launched(at_s + 5)
        assert timer.expected_end_s() == pytest.approx(at_s + 5 + 3)
        timer.ordered(THIRD, at_s + 5)
        timer.finished(THIRD, at_s + 4)  # drops the step


@pytest.mark.parametrize("ended_s", [0.0, 11.0, 12.5, 14.5])
def test_end_that_is_of_another_step_is_ignored(ended_s: float) -> None:
    timer: StepTimer[str] = StepTimer()
    timer.ordered(FIRST, 10, "a")
    timer.launched(11.0)
    timer.ordered(SECOND, 11, "a")
    timer.launched(12.0)
    timer.finished(FIRST, 13.0)
    timer.finished(SECOND, 14.0, ended_s=ended_s)
    timer.ordered(THIRD, 20, "a")
    timer.launched(20.0)
    assert timer.expected_end_s() == pytest.approx(21.0), "the device was free at 13.0"
