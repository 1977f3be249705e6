"""What is told of a step, who goes first when there is too little time, and how late it is ordered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from voxgate.pipeline.ipc.records import HEARTBEAT_MARKER, RecordFlag, unpack_records
from voxgate.pipeline.ipc.slot_tables import Field
from voxgate.pipeline.talker.vllm import scheduler as scheduling
from voxgate.pipeline.talker.vllm.scheduler import JustInTimeScheduling
from voxgate.pipeline.talker.vllm.step_timing import MARGIN_S

from .plain_scheduler import PREFIX, SHAPE, Bench, FakeRequest, Order, PlainScheduler


def outcome(bench: Bench, *tokens: int) -> list[int]:
    """Flags and fields of what is reported of a step with so many tokens of each generation."""
    order = SimpleNamespace(num_scheduled_tokens={f"{n}": count for n, count in enumerate(tokens)})
    assert bench.scheduler.update_from_output(order, None) is bench.scheduler.outputs
    bench.scheduler.finish_requests([HEARTBEAT_MARKER], "aborted")
    record: list[int] = unpack_records(bench.report(), 16)[0].tolist()
    return record


def vllm_outputs(*ends: bool) -> SimpleNamespace:
    """vLLM's message of a step of so many requests, and which of them it ended."""
    outputs = [
        SimpleNamespace(request_id=f"{n}", new_token_ids=[n], finish_reason="stop" if end else None)
        for n, end in enumerate(ends)
    ]
    return SimpleNamespace(outputs=outputs, finished_requests=None, scheduler_stats=None)


def test_the_gateway_is_told_of_ends_alone_and_of_all_their_tokens(bench: Bench) -> None:
    bench.scheduler.requests = {f"{n}": SimpleNamespace(num_output_tokens=10 + n) for n in range(3)}
    bench.scheduler.outputs = {0: vllm_outputs(False, False, True), 1: vllm_outputs(False)}
    outcome(bench, 1, 1, 1)
    (told,) = bench.scheduler.outputs[0].outputs
    assert (told.request_id, len(told.new_token_ids)) == ("2", 12)
    # A step that ended nobody is no message at all.
    assert list(bench.scheduler.outputs) == [0]


def test_steps_that_make_frames_are_reported_with_their_time(bench: Bench) -> None:
    batch, micros, _, flags = outcome(bench, 1, 1, 1)
    assert (batch, flags) == (3, RecordFlag.STEP)
    assert 0 <= micros < 10**7


@pytest.mark.parametrize("tokens", [(), (1, 9), (12,)])
def test_steps_that_read_a_prompt_or_nothing_are_not(bench: Bench, tokens: tuple[int, ...]) -> None:
    assert outcome(bench, *tokens)[3] == RecordFlag.HEARTBEAT, "the mark behind it is answered first"


def short_of_time(bench: Bench, largest: int) -> None:
    bench.scheduler._largest_batch = lambda _: largest
    bench.scheduler._max_batch = largest


def listeners(bench: Bench, **leads: int) -> list[FakeRequest]:
    """One running generation for each name, in slots 0, 1, ..., so many frames ahead of its listener."""
    bench.tables.control[:, Field.CREDIT] = 100
    requests = []
    for slot, (name, lead) in enumerate(leads.items()):
        bench.tables.control[slot, Field.HEARD] = 20 - lead
        requests.append(FakeRequest(name, slot, PREFIX + 20))
    bench.run(*requests)
    return requests


def test_short_of_time_the_closest_to_running_dry_go_first(bench: Bench) -> None:
    listeners(bench, calm=20, dry=0, uneasy=3, fine=9)
    short_of_time(bench, 2)
    assert bench.scheduler.schedule() == ["dry", "uneasy"]
    assert sorted(bench.running()) == ["calm", "dry", "fine", "uneasy"]


def test_with_time_enough_all_go_as_they_stand(bench: Bench) -> None:
    listeners(bench, calm=20, dry=0, uneasy=3, fine=9)
    assert bench.scheduler.schedule() == ["calm", "dry", "uneasy", "fine"]


def test_short_of_time_nobody_starves(bench: Bench) -> None:
    """All are heard in real time while two of four fit a step: they take turns."""
    requests = listeners(bench, a=5, b=5, c=5, d=5)
    short_of_time(bench, 2)
    for _ in range(8):
        for name in bench.scheduler.schedule():
            next(request for request in requests if request.name == name).num_computed_tokens += 1
    assert [request.num_computed_tokens - PREFIX - 20 for request in requests] == [4, 4, 4, 4]


def test_short_of_time_a_prompt_under_way_is_not_left_behind(bench: Bench) -> None:
    _, new = listeners(bench, calm=4, new=0)
    new.num_computed_tokens = 3
    short_of_time(bench, 1)
    assert bench.scheduler.schedule() == ["new"]


def test_the_time_of_a_step_decides_how_many_fit(bench: Bench) -> None:
    scheduler = bench.scheduler
    assert scheduler._largest_batch(10.0) == SHAPE.slots, "nothing is known yet"
    for batch, seconds in ((1, 0.050), (3, 0.090)):
        for _ in range(10):
            scheduler._times.record(batch, seconds, 20.0)
    assert scheduler._largest_batch(20.0) == 2


class OrderingPlainScheduler(PlainScheduler):
    def get_grammar_bitmask(self, scheduler_output: Any) -> None:
        """There is none."""


class LatePlainScheduler(JustInTimeScheduling, OrderingPlainScheduler):
    pass


def test_the_next_step_is_ordered_late_and_who_came_meanwhile_is_in_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of 10 ms, each prepared in 1 ms."""
    clock = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds
        scheduler.waiting = [FakeRequest("new", 3, 0)]

    monkeypatch.setattr(scheduling.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(scheduling.time, "sleep", sleep)
    scheduler = LatePlainScheduler(SimpleNamespace(additional_config=bench.config.as_additional_config()))
    scheduler.running = [FakeRequest("a", 0)]

    def launch() -> Order:
        order: Order = scheduler.schedule()
        clock[0] += 0.001
        scheduler.get_grammar_bitmask(order)
        return order

    for _ in range(5):
        order = launch()
        clock[0] += 0.010
        scheduler.update_from_output(order, None)
    assert not slept
    launch()
    assert scheduler.has_requests()
    assert slept == [pytest.approx(0.010 - 0.001 - MARGIN_S)]
    assert scheduler.has_requests(), "it has waited"
    assert len(slept) == 1
    assert launch() == ["a", "new"]
    scheduler._reports.close()
