"""Prefill requests and their hand-over to successors."""

from __future__ import annotations

import pytest
from voxgate.pipeline.ipc.records import RecordFlag, unpack_records
from voxgate.pipeline.ipc.slot_tables import Field

from .scheduler_harness import PREFIX, SHAPE, SchedulerHarness, row, stepped


class PrefillRequest:
    """Computes PREFIX positions of a row's prompt."""

    def __init__(self, name: str, row: int) -> None:
        self.name = self.request_id = name
        self.prompt_token_ids = [row] * PREFIX
        self._all_token_ids = self.prompt_token_ids.copy()
        self._output_token_ids: list[int] = []
        self.num_computed_tokens = self.num_preemptions = 0

    @property
    def num_tokens(self) -> int:
        return len(self._all_token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self._output_token_ids)

    def finish(self) -> None:
        """The step that computed the prompt is over."""
        self.num_computed_tokens = PREFIX
        self._output_token_ids.append(self.prompt_token_ids[0])
        self._all_token_ids.append(self.prompt_token_ids[0])


def prefill(harness: SchedulerHarness, row_number: int) -> PrefillRequest:
    """A request that has computed the prompt of a pool row and is held."""
    harness.tables.control[row_number] = row(tokens=0, closed=False, credit=0)
    request = PrefillRequest(f"prefill{row_number}", row_number)
    harness.scheduler.add_request(request)
    harness.scheduler.running = [request]
    assert harness.scheduler.has_requests()
    request.finish()
    harness.scheduler.requests = {request.name: request}
    harness.scheduler.update_from_output(stepped(request.name), None)
    return request


def test_prefill_needs_no_text_and_is_held_afterwards(harness: SchedulerHarness) -> None:
    prefill(harness, SHAPE.slots)
    (record,) = unpack_records(harness.report(), 16)
    assert record.tolist() == [SHAPE.slots, 0, 0, RecordFlag.PREFILL]
    assert not harness.scheduler.has_requests()


def test_successor_continues_request_in_its_own_slot(harness: SchedulerHarness) -> None:
    request = prefill(harness, SHAPE.slots + 1)
    harness.report()
    harness.hold(2)
    harness.tables.control[SHAPE.slots + 1, Field.SUCCESSOR] = 2 + 1
    assert not harness.scheduler.has_requests(), "it has no credit"
    harness.tables.control[2, Field.CREDIT] = 1
    assert harness.scheduler.schedule() == [request.name]
    assert set(request.prompt_token_ids + request._all_token_ids + request._output_token_ids) == {2}
    harness.scheduler.update_from_output(stepped(request.name), None)
    (record,) = unpack_records(harness.report(), 16)
    assert record.tolist() == [SHAPE.slots + 1, 0, 0, RecordFlag.PREFILL], "the row is free again"
    harness.tables.control[SHAPE.slots + 1, Field.SUCCESSOR] = 0
    assert harness.scheduler.has_requests(), "it has the token ids of its slot"


def test_scheduler_output_lists_first_frames(harness: SchedulerHarness) -> None:
    """Two successors: one makes its first frame in the next step, the other made it in the last."""
    requests = [prefill(harness, SHAPE.slots + number) for number in range(2)]
    scheduler = harness.scheduler
    scheduler.requests = {request.name: request for request in requests}
    for request, successor, codec in zip(requests, (2, 3), (5, 6), strict=True):
        harness.tables.control[request.prompt_token_ids[0], Field.SUCCESSOR] = successor + 1
        harness.tables.control[successor, Field.CODEC_SLOT] = codec + 1
    scheduler.running = [*requests]
    scheduler.has_requests()
    # As vLLM leaves them when it has ordered the step.
    requests[0].num_computed_tokens, requests[1].num_computed_tokens = PREFIX + 1, PREFIX + 2
    stepping = dict.fromkeys(scheduler.requests, 1)
    assert scheduler._first_frames(stepping) == [(2, 5, True)]
    assert scheduler._first_frames({requests[1].name: 1}) == []
    harness.tables.control[2, Field.CODEC_SLOT] = 0
    assert scheduler._first_frames(stepping) == []


def test_first_frame_of_a_request_with_its_own_prompt_is_listed_once(harness: SchedulerHarness) -> None:
    """As of a cloned voice, whose prompt no other request has; its codec stream continues from a restored state."""
    request, scheduler = PrefillRequest("7", 2), harness.scheduler
    harness.tables.control[2] = row(tokens=1, closed=True, credit=9)
    harness.tables.control[2, Field.CODEC_SLOT] = -5
    scheduler.add_request(request)
    scheduler.requests = {"7": request}
    request.num_computed_tokens = PREFIX
    assert scheduler._first_frames({"7": PREFIX}) == [], "a part of its prompt"
    request.num_computed_tokens = PREFIX + 1
    assert scheduler._first_frames({}) == []
    assert scheduler._first_frames({"7": 1}) == [(2, 4, False)]
    assert scheduler._first_frames({"7": 1}) == []


def test_aborted_request_is_forgotten(harness: SchedulerHarness) -> None:
    scheduler = harness.scheduler
    scheduler.add_request(PrefillRequest("7", 2))
    scheduler.finish_requests(["7"], None)
    assert not scheduler._beginning


@pytest.mark.parametrize("looked", [True, False])
def test_aborted_successor_frees_row_before_its_first_step(harness: SchedulerHarness, looked: bool) -> None:
    request = prefill(harness, SHAPE.slots)
    harness.report()
    harness.tables.control[SHAPE.slots, Field.SUCCESSOR] = 1 + 1
    if looked:
        assert harness.scheduler.has_requests()
    harness.scheduler.finish_requests([request.name], "aborted")
    (record,) = unpack_records(harness.report(), 16)
    assert record.tolist() == [SHAPE.slots, 0, 0, RecordFlag.PREFILL]
    assert not harness.scheduler._prefill_rows
    assert not harness.scheduler._handed_over
