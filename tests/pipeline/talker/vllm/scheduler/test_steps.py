"""Reports of steps, and priority when not all generations fit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from voxgate.pipeline.ipc.records import HEARTBEAT_MARKER, RecordFlag, unpack_records
from voxgate.pipeline.ipc.slot_tables import Field

from .scheduler_harness import PREFIX, SHAPE, SchedulerHarness, run_generations


def outcome(harness: SchedulerHarness, *tokens: int) -> list[int]:
    """The first record reported of a step with the given number of tokens per generation."""
    order = SimpleNamespace(num_scheduled_tokens={f"{n}": count for n, count in enumerate(tokens)})
    assert harness.scheduler.update_from_output(order, None) is harness.scheduler.outputs
    harness.scheduler.finish_requests([HEARTBEAT_MARKER], "aborted")
    record: list[int] = unpack_records(harness.report(), 16)[0].tolist()
    return record


def vllm_outputs(*ends: bool) -> SimpleNamespace:
    """vLLM's outputs of a step with one request per argument, which says whether the request ended."""
    outputs = [
        SimpleNamespace(request_id=f"{n}", new_token_ids=[n], finish_reason="stop" if end else None)
        for n, end in enumerate(ends)
    ]
    return SimpleNamespace(outputs=outputs, finished_requests=None, scheduler_stats=None)


def test_outputs_keep_ended_requests_with_all_their_tokens(harness: SchedulerHarness) -> None:
    harness.scheduler.requests = {f"{n}": SimpleNamespace(num_output_tokens=10 + n) for n in range(3)}
    harness.scheduler.outputs = {0: vllm_outputs(False, False, True), 1: vllm_outputs(False)}
    outcome(harness, 1, 1, 1)
    (output,) = harness.scheduler.outputs[0].outputs
    assert (output.request_id, len(output.new_token_ids)) == ("2", 12)
    # A step that ended no request sends nothing.
    assert list(harness.scheduler.outputs) == [0]


def test_steps_of_frames_are_reported_with_duration(harness: SchedulerHarness) -> None:
    batch, micros, _, flags = outcome(harness, 1, 1, 1)
    assert (batch, flags) == (3, RecordFlag.STEP)
    assert 0 <= micros < 10**7


@pytest.mark.parametrize("tokens", [(), (1, 9), (12,)])
def test_steps_with_prompts_or_without_rows_are_not_reported(
    harness: SchedulerHarness, tokens: tuple[int, ...]
) -> None:
    assert outcome(harness, *tokens)[3] == RecordFlag.HEARTBEAT, "the marker sent after it is answered first"


def limit_batch(harness: SchedulerHarness, largest: int) -> None:
    harness.scheduler._largest_batch = lambda _: largest
    harness.scheduler._max_batch = largest


def test_most_urgent_generations_go_first_when_not_all_fit(harness: SchedulerHarness) -> None:
    run_generations(harness, relaxed=20, urgent=0, pressed=3, fine=9)
    limit_batch(harness, 2)
    assert harness.scheduler.schedule() == ["urgent", "pressed"]
    assert sorted(harness.running()) == ["fine", "pressed", "relaxed", "urgent"]


def test_all_generations_step_in_order_when_all_fit(harness: SchedulerHarness) -> None:
    run_generations(harness, relaxed=20, urgent=0, pressed=3, fine=9)
    assert harness.scheduler.schedule() == ["relaxed", "urgent", "pressed", "fine"]


def test_generations_take_turns_when_not_all_fit(harness: SchedulerHarness) -> None:
    """Four generations of equal urgency, of which two fit into a step."""
    requests = run_generations(harness, a=5, b=5, c=5, d=5)
    limit_batch(harness, 2)
    for _ in range(8):
        for name in harness.scheduler.schedule():
            next(request for request in requests if request.name == name).num_computed_tokens += 1
    assert [request.num_computed_tokens - PREFIX - 20 for request in requests] == [4, 4, 4, 4]


@pytest.mark.parametrize("largest", [1, 2, 3])
def test_all_generations_step_when_their_listeners_have_heard_everything(
    harness: SchedulerHarness, largest: int
) -> None:
    """The machine is slower than the speech: whatever a step makes is due before the next."""
    requests = run_generations(harness, a=0, b=0, c=0, d=0)
    limit_batch(harness, largest)
    for _ in range(12):
        for name in harness.scheduler.schedule():
            request = next(request for request in requests if request.name == name)
            request.num_computed_tokens += 1
            harness.tables.control[request.slot, Field.HEARD] += 1
    assert [request.num_computed_tokens - PREFIX - 20 for request in requests] == [3 * largest] * 4


def test_prompt_in_progress_is_most_urgent(harness: SchedulerHarness) -> None:
    _, new = run_generations(harness, relaxed=4, new=0)
    new.num_computed_tokens = 3
    limit_batch(harness, 1)
    assert harness.scheduler.schedule() == ["new"]


def test_step_duration_limits_batch(harness: SchedulerHarness) -> None:
    scheduler = harness.scheduler
    assert scheduler._largest_batch(10.0) == SHAPE.slots, "nothing was measured yet"
    for batch, seconds in ((1, 0.050), (3, 0.090)):
        for _ in range(10):
            scheduler._times.record(batch, seconds, 20.0)
    assert scheduler._largest_batch(20.0) == 2
