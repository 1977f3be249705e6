"""Who may take a step, and how the rest is held."""

from __future__ import annotations

import numpy as np
import pytest
from voxgate.pipeline.ipc.slot_tables import Field
from voxgate.pipeline.talker.vllm.scheduler import may_step as may_step_each

from .plain_scheduler import PREFIX, Bench, FakeRequest, row


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
def test_a_step_needs_text_and_credit(computed: int, tokens: int, closed: bool, credit: int, expected: bool) -> None:
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
def test_text_is_needed_as_far_as_it_is_ahead_of_the_speech(frame: int, lead: int, tokens: int, expected: bool) -> None:
    assert may_step(PREFIX + frame, row(tokens=tokens, closed=False, credit=9, lead=lead)) is expected
    assert may_step(PREFIX + frame, row(tokens=tokens, closed=True, credit=9, lead=lead))


def test_generations_that_may_step_are_scheduled_as_ever(bench: Bench) -> None:
    bench.run(FakeRequest("a", 0), FakeRequest("b", 1))
    assert bench.scheduler.schedule() == ["a", "b"]
    assert bench.running() == ["a", "b"]


def test_held_generations_are_left_out_and_keep_their_place(bench: Bench) -> None:
    bench.run(FakeRequest("a", 0), FakeRequest("b", 1), FakeRequest("c", 2))
    bench.hold(1)
    assert bench.scheduler.schedule() == ["a", "c"]
    assert sorted(bench.running()) == ["a", "b", "c"]


def test_new_generations_are_admitted_beside_held_ones(bench: Bench) -> None:
    bench.run(FakeRequest("a", 0))
    bench.scheduler.waiting = [FakeRequest("new", 3, 0)]
    bench.hold(0)
    assert bench.scheduler.schedule() == ["new"]
    assert sorted(bench.running()) == ["a", "new"]


def test_a_held_generation_steps_again_once_it_has_credit(bench: Bench) -> None:
    bench.run(FakeRequest("a", 0))
    bench.hold(0)
    assert bench.scheduler.schedule() == []
    bench.tables.control[0, Field.CREDIT] = 1
    assert bench.scheduler.schedule() == ["a"]


def test_held_generations_survive_a_failure_of_the_step(bench: Bench) -> None:
    bench.run(FakeRequest("a", 0), FakeRequest("b", 1))
    bench.hold(1)
    bench.scheduler.broken = True
    with pytest.raises(RuntimeError, match="no blocks"):
        bench.scheduler.schedule()
    assert sorted(bench.running()) == ["a", "b"]


def test_the_engine_sleeps_when_all_are_held(bench: Bench) -> None:
    bench.run(FakeRequest("a", 0), FakeRequest("b", 1))
    bench.hold(0, 1)
    assert not bench.scheduler.has_requests()
    bench.tables.control[1, Field.CREDIT] = 1
    assert bench.scheduler.has_requests()


def test_the_engine_sleeps_when_there_are_none(bench: Bench) -> None:
    assert not bench.scheduler.has_requests()


def test_the_engine_wakes_for_those_waiting_and_those_finished(bench: Bench) -> None:
    bench.run(FakeRequest("a", 0))
    bench.hold(0)
    bench.scheduler.waiting = [FakeRequest("new", 1, 0)]
    assert bench.scheduler.has_requests()
    bench.scheduler.waiting = []
    bench.scheduler.finished = True
    assert bench.scheduler.has_requests()
