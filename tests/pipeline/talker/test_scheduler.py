"""Who may take a step, how the rest is held, and how the engine confirms that a slot is free."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from voxgate.pipeline.talker import scheduler as scheduling
from voxgate.pipeline.talker.frames import PULSE_MARK, FrameFlag, release_mark, unpack
from voxgate.pipeline.talker.late_order import MARGIN_S
from voxgate.pipeline.talker.scheduler import _Holding, _Late, _may_step
from voxgate.pipeline.talker.tables import Field, SlotTables, TableShape
from voxgate.pipeline.talker.wiring import Wiring

PREFIX = 9
SHAPE = TableShape(slots=4, prefix=16, text=16, frames=16, groups=16, hidden=8, warm=2)


def row(*, tokens: int, closed: bool, credit: int, lead: int = 0) -> list[int]:
    values = [0] * len(Field)
    values[Field.TEXT_LEAD] = lead
    values[Field.PREFIX_LEN], values[Field.TEXT_LEN] = PREFIX, tokens
    values[Field.CLOSED], values[Field.CREDIT] = int(closed), credit
    return values


def may_step(computed: int, values: list[int]) -> bool:
    return bool(_may_step(np.array([computed]), np.array([values]))[0])


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


@dataclass
class FakeRequest:
    name: str
    slot: int
    num_computed_tokens: int = PREFIX

    @property
    def prompt_token_ids(self) -> list[int]:
        return [self.slot] * (PREFIX + 1)


class Order(list[str]):
    """What vLLM's scheduler returns, as far as it is looked at."""

    @property
    def num_scheduled_tokens(self) -> dict[str, int]:
        return dict.fromkeys(self, 1)

    @property
    def total_num_scheduled_tokens(self) -> int:
        return len(self)


@dataclass
class PlainScheduler:
    """What vLLM's scheduler is to the one under test: it runs whatever it finds in `running`."""

    vllm_config: Any
    running: list[FakeRequest] = field(default_factory=list)
    waiting: list[FakeRequest] = field(default_factory=list)
    finished: bool = False
    scheduled: list[str] = field(default_factory=list)
    ended: list[Any] = field(default_factory=list)
    broken: bool = False
    requests: dict[str, Any] = field(default_factory=dict)
    outputs: dict[int, Any] = field(default_factory=dict)

    def schedule(self) -> Order:
        if self.broken:
            raise RuntimeError("no blocks")
        self.running = self.running + self.waiting
        self.waiting = []
        return Order(request.name for request in self.running)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:  # noqa: ARG002 - as vLLM's
        return self.outputs

    def has_requests(self) -> bool:
        return bool(self.running or self.waiting or self.finished)

    def has_finished_requests(self) -> bool:
        return self.finished

    def get_num_unfinished_requests(self) -> int:
        return len(self.running) + len(self.waiting)

    def add_request(self, request: Any) -> None:
        pass

    def finish_requests(self, request_ids: Any, finished_status: Any) -> str:
        self.ended.append((request_ids, finished_status))
        return "done"


class HeldPlainScheduler(_Holding, PlainScheduler):
    pass


class Bench:
    def __init__(self) -> None:
        self.tables, path = SlotTables.create(SHAPE)
        address = f"voxgate-test-{uuid.uuid4().hex}"
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.door.settimeout(5)
        self.door.bind(f"\0{address}")
        self.door.listen()
        self.told: socket.socket | None = None
        self.wiring = wiring = Wiring("nowhere", path, (address,), os.getpid(), SHAPE)
        self.scheduler = HeldPlainScheduler(SimpleNamespace(additional_config=wiring.as_config()))
        for slot in range(SHAPE.slots):
            self.tables.control[slot] = row(tokens=5, closed=True, credit=5)

    def report(self) -> bytes:
        """The next thing that it tells the gateway."""
        if self.told is None:
            self.told, _ = self.door.accept()
            self.told.settimeout(5)
        return self.told.recv(1 << 16)

    def close(self) -> None:
        self.scheduler._reports.close()
        for sock in (self.told, self.door):
            if sock is not None:
                sock.close()

    def hold(self, *slots: int) -> None:
        self.tables.control[list(slots), Field.CREDIT] = 0

    def run(self, *requests: FakeRequest) -> None:
        self.scheduler.running = list(requests)

    def running(self) -> list[str]:
        return [request.name for request in self.scheduler.running]


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


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


def test_a_release_mark_is_answered_after_the_aborts_before_it(bench: Bench) -> None:
    assert bench.scheduler.finish_requests(["17", release_mark(2, 17)], "aborted") == "done"
    assert bench.scheduler.ended == [(["17", release_mark(2, 17)], "aborted")]
    (record,) = unpack(bench.report(), 16)
    assert record.tolist() == [2, 17, 0, FrameFlag.RELEASED]


def test_every_mark_is_answered(bench: Bench) -> None:
    bench.scheduler.finish_requests([release_mark(2, 17), release_mark(0, 18)], "aborted")
    assert [unpack(bench.report(), 16)[0, 1] for _ in range(2)] == [17, 18]


def told(bench: Bench) -> list[list[int]]:
    """What it has told the gateway up to now, without codes."""
    bench.scheduler.finish_requests([PULSE_MARK], "aborted")
    records: list[list[int]] = []
    while not records or records[-1][3] != FrameFlag.PULSE:
        records += unpack(bench.report(), 16).tolist()
    return [record for record in records[:-1] if record[3] & (FrameFlag.RELEASED | FrameFlag.WARM)]


def test_a_slot_is_not_given_back_while_a_step_may_read_it(bench: Bench) -> None:
    """A generation is cut off in its first step, with another ordered behind it: whoever had its slot by then would get
    a first frame that was made of its predecessor's prompt."""
    bench.run(FakeRequest("17", 2))
    orders = [bench.scheduler.schedule(), bench.scheduler.schedule()]
    bench.run()
    bench.scheduler.finish_requests(["17", release_mark(2, 17)], "aborted")
    assert not told(bench)
    for order, expected in zip(orders, ([], [[2, 17, 0, FrameFlag.RELEASED]]), strict=True):
        bench.scheduler.update_from_output(stepped(*order), None)
        assert told(bench) == expected
    bench.scheduler.schedule()
    bench.scheduler.finish_requests([release_mark(1, 18)], "aborted")
    assert not told(bench), "it waits for later steps as well"


@pytest.mark.parametrize("names", [["17"], "17", None, [], [""]])
def test_ordinary_aborts_are_not_answered(bench: Bench, names: Any) -> None:
    bench.scheduler.finish_requests(names, "aborted")
    # The next message is the answer to what follows.
    bench.scheduler.finish_requests(release_mark(1, 1), "aborted")
    assert unpack(bench.report(), 16)[0, :2].tolist() == [1, 1]


# What is measured, and who goes first when there is too little time


def outcome(bench: Bench, *tokens: int) -> list[int]:
    """Flags and fields of what is reported of a step with so many tokens of each generation."""
    order = SimpleNamespace(num_scheduled_tokens={f"{n}": count for n, count in enumerate(tokens)})
    assert bench.scheduler.update_from_output(order, None) is bench.scheduler.outputs
    bench.scheduler.finish_requests([PULSE_MARK], "aborted")
    record: list[int] = unpack(bench.report(), 16)[0].tolist()
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
    assert (batch, flags) == (3, FrameFlag.STEP)
    assert 0 <= micros < 10**7


@pytest.mark.parametrize("tokens", [(), (1, 9), (12,)])
def test_steps_that_read_a_prompt_or_nothing_are_not(bench: Bench, tokens: tuple[int, ...]) -> None:
    assert outcome(bench, *tokens)[3] == FrameFlag.PULSE, "the mark behind it is answered first"


def test_a_mark_asks_for_a_sign_of_life(bench: Bench) -> None:
    bench.scheduler.finish_requests(["17", PULSE_MARK], "aborted")
    assert unpack(bench.report(), 16)[0, 3] == FrameFlag.PULSE


def short_of_time(bench: Bench, largest: int) -> None:
    bench.scheduler._largest_batch = lambda _: largest
    bench.scheduler._largest = largest


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


class LatePlainScheduler(_Late, OrderingPlainScheduler):
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
    scheduler = LatePlainScheduler(SimpleNamespace(additional_config=bench.wiring.as_config()))
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


# Prompts that are read before they are needed


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


def stepped(*names: str) -> SimpleNamespace:
    return SimpleNamespace(num_scheduled_tokens=dict.fromkeys(names, 2))


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
    (record,) = unpack(bench.report(), 16)
    assert record.tolist() == [SHAPE.slots, 0, 0, FrameFlag.WARM]
    assert not bench.scheduler.has_requests()


def test_its_heir_goes_on_in_his_own_slot(bench: Bench) -> None:
    request = read_prompt(bench, SHAPE.slots + 1)
    bench.report()
    bench.hold(2)
    bench.tables.control[SHAPE.slots + 1, Field.HEIR] = 2 + 1
    assert not bench.scheduler.has_requests(), "he has no credit"
    bench.tables.control[2, Field.CREDIT] = 1
    assert bench.scheduler.schedule() == [request.name]
    assert set(request.prompt_token_ids + request._all_token_ids + request._output_token_ids) == {2}
    bench.scheduler.update_from_output(stepped(request.name), None)
    (record,) = unpack(bench.report(), 16)
    assert record.tolist() == [SHAPE.slots + 1, 0, 0, FrameFlag.WARM], "nobody needs the row any more"
    bench.tables.control[SHAPE.slots + 1, Field.HEIR] = 0
    assert bench.scheduler.has_requests(), "he goes by his slot"


def test_the_order_says_whose_first_frame_it_makes(bench: Bench) -> None:
    """Two requests: one whose heir makes its first frame in the next step, and one whose heir made it in the last."""
    requests = [read_prompt(bench, SHAPE.slots + number) for number in range(2)]
    scheduler = bench.scheduler
    scheduler.requests = {request.name: request for request in requests}
    for request, heir, codec in zip(requests, (2, 3), (5, 6), strict=True):
        bench.tables.control[request.prompt_token_ids[0], Field.HEIR] = heir + 1
        bench.tables.control[heir, Field.CODEC] = codec + 1
    scheduler.running = [*requests]
    scheduler.has_requests()
    # As vLLM leaves them when it has ordered the step.
    requests[0].num_computed_tokens, requests[1].num_computed_tokens = PREFIX + 1, PREFIX + 2
    stepping = dict.fromkeys(scheduler.requests, 1)
    assert scheduler._first_frames(stepping) == [(2, 5)]
    assert scheduler._first_frames({requests[1].name: 1}) == []
    bench.tables.control[2, Field.CODEC] = 0
    assert scheduler._first_frames(stepping) == []


@pytest.mark.parametrize("looked", [True, False])
def test_an_heir_who_leaves_before_his_first_step_frees_the_row(bench: Bench, looked: bool) -> None:
    request = read_prompt(bench, SHAPE.slots)
    bench.report()
    bench.tables.control[SHAPE.slots, Field.HEIR] = 1 + 1
    if looked:
        assert bench.scheduler.has_requests()
    bench.scheduler.finish_requests([request.name], "aborted")
    (record,) = unpack(bench.report(), 16)
    assert record.tolist() == [SHAPE.slots, 0, 0, FrameFlag.WARM]
    assert not bench.scheduler._prompts
    assert not bench.scheduler._inherited
