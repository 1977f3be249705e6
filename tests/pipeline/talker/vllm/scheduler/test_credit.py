"""Which generations may take a step, and how the others are held."""

from __future__ import annotations

import numpy as np
import pytest
from voxgate.pipeline.ipc.slot_tables import Field
from voxgate.pipeline.talker.vllm.scheduler.credit import may_step as may_step_each

from .scheduler_harness import PREFIX, FakeRequest, SchedulerHarness, row


def may_step(computed: int, values: list[int]) -> bool:
    return bool(may_step_each(np.array([computed]), np.array([values]))[0])


STEPS = [
    # computed, tokens, closed, credit, may step
    (0, 1, False, 0, True),  # the prompt is read without credit
    (PREFIX - 1, 1, False, 0, True),
    (PREFIX, 1, False, 0, False),
    (PREFIX, 1, False, 1, True),
    (PREFIX, 0, False, 9, False),  # no text to say
    (PREFIX, 0, True, 9, True),
    (PREFIX + 3, 3, False, 9, False),  # all text was read, more may come
    (PREFIX + 3, 4, False, 9, True),
    (PREFIX + 3, 3, True, 9, True),  # closed: end of text and padding are read
    (PREFIX + 7, 3, True, 9, True),
    (PREFIX + 8, 3, True, 9, True),
    (PREFIX + 9, 3, True, 9, False),  # no credit, whatever the text
    (PREFIX + 9, 12, False, 9, False),
    (PREFIX + 9, 12, False, 10, True),
]


@pytest.mark.parametrize(("computed", "tokens", "closed", "credit", "expected"), STEPS)
def test_step_needs_text_and_credit(computed: int, tokens: int, closed: bool, credit: int, expected: bool) -> None:
    assert may_step(computed, row(tokens=tokens, closed=closed, credit=credit)) is expected


@pytest.mark.parametrize(
    ("frame", "lead", "tokens", "expected"),
    [
        (0, 2, 2, False),
        (0, 2, 3, True),
        (4, 2, 6, False),
        (4, 2, 7, True),
        (0, -2, 0, True),  # the prompt's own text is still being read
        (2, -2, 0, False),
        (2, -2, 1, True),
    ],
)
def test_text_is_needed_as_far_as_it_leads_speech(frame: int, lead: int, tokens: int, expected: bool) -> None:
    assert may_step(PREFIX + frame, row(tokens=tokens, closed=False, credit=9, lead=lead)) is expected
    assert may_step(PREFIX + frame, row(tokens=tokens, closed=True, credit=9, lead=lead))


def test_generations_that_may_step_are_scheduled(harness: SchedulerHarness) -> None:
    harness.run(FakeRequest("a", 0), FakeRequest("b", 1))
    assert harness.scheduler.schedule() == ["a", "b"]
    assert harness.running() == ["a", "b"]


def test_held_generations_are_left_out_and_stay_running(harness: SchedulerHarness) -> None:
    harness.run(FakeRequest("a", 0), FakeRequest("b", 1), FakeRequest("c", 2))
    harness.hold(1)
    assert harness.scheduler.schedule() == ["a", "c"]
    assert sorted(harness.running()) == ["a", "b", "c"]


def test_new_generations_are_admitted_along_with_held_ones(harness: SchedulerHarness) -> None:
    harness.run(FakeRequest("a", 0))
    harness.scheduler.waiting.append(FakeRequest("new", 3, 0))
    harness.hold(0)
    assert harness.scheduler.schedule() == ["new"]
    assert sorted(harness.running()) == ["a", "new"]


def test_held_generation_steps_again_with_credit(harness: SchedulerHarness) -> None:
    harness.run(FakeRequest("a", 0))
    harness.hold(0)
    assert harness.scheduler.schedule() == []
    harness.tables.control[0, Field.CREDIT] = 1
    assert harness.scheduler.schedule() == ["a"]


def test_held_generations_stay_running_when_schedule_raises(harness: SchedulerHarness) -> None:
    harness.run(FakeRequest("a", 0), FakeRequest("b", 1))
    harness.hold(1)
    harness.scheduler.broken = True
    with pytest.raises(RuntimeError, match="no blocks"):
        harness.scheduler.schedule()
    assert sorted(harness.running()) == ["a", "b"]


def test_engine_sleeps_when_all_are_held(harness: SchedulerHarness) -> None:
    harness.run(FakeRequest("a", 0), FakeRequest("b", 1))
    harness.hold(0, 1)
    assert not harness.scheduler.has_requests()
    harness.tables.control[1, Field.CREDIT] = 1
    assert harness.scheduler.has_requests()


def test_step_is_looked_for_once_until_it_is_scheduled_or_a_request_ends(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, looks = harness.scheduler, []
    look = scheduler._state
    monkeypatch.setattr(scheduler, "_state", lambda requests: looks.append(len(requests)) or look(requests))
    harness.run(FakeRequest("a", 0))
    assert scheduler.has_requests()
    assert scheduler.has_requests()
    assert looks == [1]
    harness.hold(0)
    scheduler.finish_requests(["b"], None)
    assert not scheduler.has_requests()
    harness.tables.control[0, Field.CREDIT] = 5
    assert scheduler.has_requests(), "a step that was not found is looked for again"
    scheduler.schedule()
    harness.hold(0)
    assert not scheduler.has_requests()


@pytest.mark.parametrize("at", [0, 99])
def test_one_of_many_requests_keeps_engine_awake(harness: SchedulerHarness, at: int) -> None:
    harness.hold(0)
    harness.run(*(FakeRequest(f"{number}", number == at) for number in range(100)))
    assert harness.scheduler.has_requests()
    harness.hold(1)
    harness.scheduler.finish_requests([], None)
    assert not harness.scheduler.has_requests()


def test_engine_sleeps_without_requests(harness: SchedulerHarness) -> None:
    assert not harness.scheduler.has_requests()


def test_waiting_and_finished_requests_keep_engine_awake(harness: SchedulerHarness) -> None:
    harness.run(FakeRequest("a", 0))
    harness.hold(0)
    harness.scheduler.waiting.append(FakeRequest("new", 1, 0))
    assert harness.scheduler.has_requests()
    harness.scheduler.waiting.clear()
    harness.scheduler.finished = True
    assert harness.scheduler.has_requests()
