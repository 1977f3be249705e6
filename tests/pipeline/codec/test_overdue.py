from __future__ import annotations

from voxgate.pipeline.codec.overdue import HELD_UP_S, SLOWEST_JOBS, Overdue


def test_a_worker_that_says_nothing_until_its_answer_is_due_hangs() -> None:
    overdue = Overdue(5.0)
    overdue.heard(100.0)
    assert overdue.due_s(0.0) == 105.0
    assert overdue.hangs(105.0)


def test_one_that_has_answered_meanwhile_does_not_and_is_due_later() -> None:
    overdue = Overdue(5.0)
    overdue.heard(100.0)
    overdue.due_s(0.0)
    overdue.heard(103.0)
    assert not overdue.hangs(105.0)
    assert overdue.due_s(0.0) == 108.0


def test_slow_jobs_are_given_time() -> None:
    overdue = Overdue(5.0)
    overdue.heard(100.0)
    assert overdue.due_s(2.0) == 105.0 + SLOWEST_JOBS * 2.0


def test_who_looks_late_may_not_have_read_the_answer_and_looks_again() -> None:
    overdue = Overdue(5.0)
    overdue.heard(100.0)
    overdue.due_s(0.0)
    late_s = 105.0 + 2 * HELD_UP_S
    assert not overdue.hangs(late_s)
    assert overdue.due_s(0.0) == late_s + 5.0
    assert overdue.hangs(late_s + 5.0)
