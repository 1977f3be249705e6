"""Marks among the aborts: that a slot is free, that the engine lives."""

from __future__ import annotations

from typing import Any

import pytest
from voxgate.pipeline.ipc.records import HEARTBEAT_MARKER, RecordFlag, release_marker, unpack_records

from .plain_scheduler import Bench, FakeRequest, stepped, told


def test_a_release_mark_is_answered_after_the_aborts_before_it(bench: Bench) -> None:
    assert bench.scheduler.finish_requests(["17", release_marker(2, 17)], "aborted") == "done"
    assert bench.scheduler.ended == [(["17", release_marker(2, 17)], "aborted")]
    (record,) = unpack_records(bench.report(), 16)
    assert record.tolist() == [2, 17, 0, RecordFlag.RELEASED]


def test_every_mark_is_answered(bench: Bench) -> None:
    bench.scheduler.finish_requests([release_marker(2, 17), release_marker(0, 18)], "aborted")
    assert [unpack_records(bench.report(), 16)[0, 1] for _ in range(2)] == [17, 18]


def test_a_slot_is_not_given_back_while_a_step_may_read_it(bench: Bench) -> None:
    """A generation is cut off in its first step, with another ordered behind it: whoever had its slot by then would get
    a first frame that was made of its predecessor's prompt."""
    bench.run(FakeRequest("17", 2))
    orders = [bench.scheduler.schedule(), bench.scheduler.schedule()]
    bench.run()
    bench.scheduler.finish_requests(["17", release_marker(2, 17)], "aborted")
    assert not told(bench)
    for order, expected in zip(orders, ([], [[2, 17, 0, RecordFlag.RELEASED]]), strict=True):
        bench.scheduler.update_from_output(stepped(*order), None)
        assert told(bench) == expected
    bench.scheduler.schedule()
    bench.scheduler.finish_requests([release_marker(1, 18)], "aborted")
    assert not told(bench), "it waits for later steps as well"


@pytest.mark.parametrize("names", [["17"], "17", None, [], [""]])
def test_ordinary_aborts_are_not_answered(bench: Bench, names: Any) -> None:
    bench.scheduler.finish_requests(names, "aborted")
    # The next message is the answer to what follows.
    bench.scheduler.finish_requests(release_marker(1, 1), "aborted")
    assert unpack_records(bench.report(), 16)[0, :2].tolist() == [1, 1]


def test_a_mark_asks_for_a_sign_of_life(bench: Bench) -> None:
    bench.scheduler.finish_requests(["17", HEARTBEAT_MARKER], "aborted")
    assert unpack_records(bench.report(), 16)[0, 3] == RecordFlag.HEARTBEAT
