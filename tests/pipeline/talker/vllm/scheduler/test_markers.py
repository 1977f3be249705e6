"""Markers among aborts: release of a slot, heartbeat."""

from __future__ import annotations

from typing import Any

import pytest
from voxgate.pipeline.ipc.records import HEARTBEAT_MARKER, RecordFlag, release_marker, unpack_records

from .scheduler_harness import FakeRequest, SchedulerHarness, reported, stepped


def test_release_marker_is_answered_after_preceding_aborts(harness: SchedulerHarness) -> None:
    assert harness.scheduler.finish_requests(["17", release_marker(2, 17)], "aborted") == "done"
    assert harness.scheduler.ended == [(["17", release_marker(2, 17)], "aborted")]
    (record,) = unpack_records(harness.report(), 16)
    assert record.tolist() == [2, 17, 0, RecordFlag.RELEASED]


def test_every_marker_is_answered(harness: SchedulerHarness) -> None:
    harness.scheduler.finish_requests([release_marker(2, 17), release_marker(0, 18)], "aborted")
    assert [unpack_records(harness.report(), 16)[0, 1] for _ in range(2)] == [17, 18]


def test_slot_is_not_released_while_step_in_flight_may_read_it(harness: SchedulerHarness) -> None:
    """Aborts a generation in its first step, with another step scheduled after it: a slot reused earlier would get the
    first frame of its previous prompt."""
    harness.run(FakeRequest("17", 2))
    orders = [harness.scheduler.schedule(), harness.scheduler.schedule()]
    harness.run()
    harness.scheduler.finish_requests(["17", release_marker(2, 17)], "aborted")
    assert not reported(harness)
    for order, expected in zip(orders, ([], [[2, 17, 0, RecordFlag.RELEASED]]), strict=True):
        harness.scheduler.update_from_output(stepped(*order), None)
        assert reported(harness) == expected
    harness.scheduler.schedule()
    harness.scheduler.finish_requests([release_marker(1, 18)], "aborted")
    assert not reported(harness), "later steps are awaited as well"


@pytest.mark.parametrize("names", [["17"], "17", None, [], [""]])
def test_ordinary_aborts_are_not_answered(harness: SchedulerHarness, names: Any) -> None:
    harness.scheduler.finish_requests(names, "aborted")
    # The next message is the answer to what follows.
    harness.scheduler.finish_requests(release_marker(1, 1), "aborted")
    assert unpack_records(harness.report(), 16)[0, :2].tolist() == [1, 1]


def test_heartbeat_marker_is_answered(harness: SchedulerHarness) -> None:
    harness.scheduler.finish_requests(["17", HEARTBEAT_MARKER], "aborted")
    assert unpack_records(harness.report(), 16)[0, 3] == RecordFlag.HEARTBEAT
