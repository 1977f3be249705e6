"""Prompts that are read before they are needed."""

from __future__ import annotations

import pytest
from voxgate.pipeline.ipc.records import RecordFlag, unpack_records
from voxgate.pipeline.ipc.slot_tables import Field

from .plain_scheduler import PREFIX, SHAPE, Bench, row, stepped


class PromptRequest:
    """Reads a row's prompt, PREFIX positions of it."""

    def __init__(self, name: str, row: int) -> None:
        self.name = self.request_id = name
        self.prompt_token_ids = [row] * PREFIX
        self._all_token_ids = self.prompt_token_ids.copy()
        self._output_token_ids: list[int] = []
        self.num_computed_tokens = 0

    @property
    def num_output_tokens(self) -> int:
        return len(self._output_token_ids)

    def read(self) -> None:
        """The step that has read it is over."""
        self.num_computed_tokens = PREFIX
        self._output_token_ids.append(self.prompt_token_ids[0])
        self._all_token_ids.append(self.prompt_token_ids[0])


def read_prompt(bench: Bench, row_number: int) -> PromptRequest:
    """A request that has read the prompt of a row for prompts, and rests."""
    bench.tables.control[row_number] = row(tokens=0, closed=False, credit=0)
    request = PromptRequest(f"warm{row_number}", row_number)
    bench.scheduler.add_request(request)
    bench.scheduler.running = [request]
    assert bench.scheduler.has_requests()
    request.read()
    bench.scheduler.requests = {request.name: request}
    bench.scheduler.update_from_output(stepped(request.name), None)
    return request


def test_a_prompt_is_read_without_text_and_then_rests(bench: Bench) -> None:
    read_prompt(bench, SHAPE.slots)
    (record,) = unpack_records(bench.report(), 16)
    assert record.tolist() == [SHAPE.slots, 0, 0, RecordFlag.PREFILL]
    assert not bench.scheduler.has_requests()


def test_its_heir_goes_on_in_his_own_slot(bench: Bench) -> None:
    request = read_prompt(bench, SHAPE.slots + 1)
    bench.report()
    bench.hold(2)
    bench.tables.control[SHAPE.slots + 1, Field.SUCCESSOR] = 2 + 1
    assert not bench.scheduler.has_requests(), "he has no credit"
    bench.tables.control[2, Field.CREDIT] = 1
    assert bench.scheduler.schedule() == [request.name]
    assert set(request.prompt_token_ids + request._all_token_ids + request._output_token_ids) == {2}
    bench.scheduler.update_from_output(stepped(request.name), None)
    (record,) = unpack_records(bench.report(), 16)
    assert record.tolist() == [SHAPE.slots + 1, 0, 0, RecordFlag.PREFILL], "nobody needs the row any more"
    bench.tables.control[SHAPE.slots + 1, Field.SUCCESSOR] = 0
    assert bench.scheduler.has_requests(), "he goes by his slot"


def test_the_order_says_whose_first_frame_it_makes(bench: Bench) -> None:
    """Two requests: one whose heir makes its first frame in the next step, and one whose heir made it in the last."""
    requests = [read_prompt(bench, SHAPE.slots + number) for number in range(2)]
    scheduler = bench.scheduler
    scheduler.requests = {request.name: request for request in requests}
    for request, heir, codec in zip(requests, (2, 3), (5, 6), strict=True):
        bench.tables.control[request.prompt_token_ids[0], Field.SUCCESSOR] = heir + 1
        bench.tables.control[heir, Field.CODEC_SLOT] = codec + 1
    scheduler.running = [*requests]
    scheduler.has_requests()
    # As vLLM leaves them when it has ordered the step.
    requests[0].num_computed_tokens, requests[1].num_computed_tokens = PREFIX + 1, PREFIX + 2
    stepping = dict.fromkeys(scheduler.requests, 1)
    assert scheduler._first_frames(stepping) == [(2, 5)]
    assert scheduler._first_frames({requests[1].name: 1}) == []
    bench.tables.control[2, Field.CODEC_SLOT] = 0
    assert scheduler._first_frames(stepping) == []


@pytest.mark.parametrize("looked", [True, False])
def test_an_heir_who_leaves_before_his_first_step_frees_the_row(bench: Bench, looked: bool) -> None:
    request = read_prompt(bench, SHAPE.slots)
    bench.report()
    bench.tables.control[SHAPE.slots, Field.SUCCESSOR] = 1 + 1
    if looked:
        assert bench.scheduler.has_requests()
    bench.scheduler.finish_requests([request.name], "aborted")
    (record,) = unpack_records(bench.report(), 16)
    assert record.tolist() == [SHAPE.slots, 0, 0, RecordFlag.PREFILL]
    assert not bench.scheduler._prefill_rows
    assert not bench.scheduler._handed_over
