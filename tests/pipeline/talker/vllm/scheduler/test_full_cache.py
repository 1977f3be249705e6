"""A full cache: held generations give up their pages, and nothing waits for ever."""

from __future__ import annotations

from voxgate.pipeline.ipc.slot_tables import Field

from .scheduler_harness import PREFIX, FakeRequest, SchedulerHarness

FRAMES = 3


def speaking(name: str, slot: int) -> FakeRequest:
    """A generation with `FRAMES` frames: three pages of four positions."""
    positions = PREFIX + FRAMES
    return FakeRequest(name, slot, positions, positions + 1)


def test_nothing_is_preempted_while_pages_are_free(harness: SchedulerHarness) -> None:
    harness.hold(0)
    harness.run(speaking("held", 0), speaking("due", 1))
    order = harness.scheduler.schedule()
    assert order == ["due"]
    assert not order.preempted_req_ids
    assert set(harness.running()) == {"held", "due"}


def test_held_generation_gives_its_pages_to_one_that_is_due(harness: SchedulerHarness) -> None:
    harness.hold(0)
    harness.run(speaking("held", 0), speaking("due", 1))
    harness.scheduler.total_pages = 6
    order = harness.scheduler.schedule()
    assert order == ["due"]
    assert order.preempted_req_ids == {"held"}
    assert harness.running() == ["due"]
    assert [request.name for request in harness.scheduler.waiting] == ["held"]


def test_generation_with_the_most_audio_ahead_is_preempted_first(harness: SchedulerHarness) -> None:
    harness.hold(0, 1)
    harness.tables.control[0, Field.HEARD] = FRAMES
    harness.run(speaking("about to run dry", 0), speaking("far ahead", 1), speaking("due", 2))
    harness.scheduler.total_pages = 9
    assert harness.scheduler.schedule().preempted_req_ids == {"far ahead"}


def test_waiting_generation_gets_the_pages_of_held_ones(harness: SchedulerHarness) -> None:
    """Otherwise an engine whose memory is held by generations without credit would never speak again."""
    harness.hold(0, 1)
    harness.run(speaking("first", 0), speaking("second", 1))
    new = FakeRequest("new", 2, 0)
    harness.scheduler.waiting.append(new)
    harness.scheduler.known.append(new)
    harness.scheduler.total_pages = 6
    assert harness.scheduler.schedule() == ["new"]


def test_preempted_generation_waits_until_it_may_step(harness: SchedulerHarness) -> None:
    harness.hold(0)
    harness.run(speaking("held", 0), speaking("due", 1))
    harness.scheduler.total_pages = 6
    harness.scheduler.schedule()
    harness.scheduler.total_pages = 1000
    assert harness.scheduler.schedule() == ["due"]
    assert [request.name for request in harness.scheduler.waiting] == ["held"]
    harness.tables.control[0, Field.CREDIT] = FRAMES + 1
    assert harness.scheduler.schedule() == ["due", "held"]


def test_engine_sleeps_while_preempted_generations_may_not_step(harness: SchedulerHarness) -> None:
    harness.hold(0)
    harness.run(speaking("held", 0), speaking("due", 1))
    harness.scheduler.total_pages = 6
    harness.scheduler.schedule()
    harness.hold(1)
    assert not harness.scheduler.has_requests()
    harness.tables.control[0, Field.CREDIT] = FRAMES + 1
    assert harness.scheduler.has_requests()


def test_preempted_generations_return_in_the_order_of_their_urgency(harness: SchedulerHarness) -> None:
    harness.tables.control[1, Field.HEARD] = FRAMES
    first, second = speaking("ahead", 0), speaking("running dry", 1)
    for request in (second, first):
        harness.scheduler._preempt_request(request, 0.0)
    harness.scheduler.known = [first, second]
    assert harness.scheduler.schedule() == ["running dry", "ahead"]
