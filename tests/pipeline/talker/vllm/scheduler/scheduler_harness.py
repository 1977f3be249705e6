"""The scheduler under test over a fake of vLLM's, with slot tables and a receiver of its reports."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from voxgate.pipeline.ipc.records import HEARTBEAT_MARKER, RecordFlag, unpack_records
from voxgate.pipeline.ipc.slot_tables import CONTROL_COLUMNS, Field, SlotTables, TableShape
from voxgate.pipeline.talker.vllm.config import EngineConfig, EngineOptions
from voxgate.pipeline.talker.vllm.scheduler.credit import CreditScheduling

PREFIX = 9
SHAPE = TableShape(slots=4, prefix=16, text=16, frames=16, groups=16, hidden=8, prefilled_prompts=2)


def row(*, tokens: int, closed: bool, credit: int, lead: int = 0) -> list[int]:
    values = [0] * CONTROL_COLUMNS
    values[Field.TEXT_LEAD] = lead
    values[Field.PREFIX_LEN], values[Field.TEXT_LEN] = PREFIX, tokens
    values[Field.CLOSED], values[Field.CREDIT] = int(closed), credit
    return values


@dataclass
class FakeRequest:
    name: str
    slot: int
    num_computed_tokens: int = PREFIX
    num_tokens: int = PREFIX + 1
    num_preemptions: int = 0

    @property
    def request_id(self) -> str:
        return self.name

    @property
    def prompt_token_ids(self) -> list[int]:
        return [self.slot] * (PREFIX + 1)


class Order(list[str]):
    """The part of vLLM's SchedulerOutput that is read."""

    preempted_req_ids: set[str] | None = None

    @property
    def num_scheduled_tokens(self) -> dict[str, int]:
        return dict.fromkeys(self, 1)

    @property
    def total_num_scheduled_tokens(self) -> int:
        return len(self)


class Queue(list[FakeRequest]):
    """As vLLM's queue of waiting requests."""

    def peek_request(self) -> FakeRequest:
        return self[0]

    def prepend_request(self, request: FakeRequest) -> None:
        self.insert(0, request)

    def remove_requests(self, requests: list[FakeRequest]) -> None:
        self[:] = [each for each in self if each not in requests]


@dataclass
class PlainScheduler:
    """Stands for vLLM's scheduler: schedules everything in `running`, and the waiting requests whose pages are free."""

    vllm_config: Any
    running: list[FakeRequest] = field(default_factory=list)
    waiting: Queue = field(default_factory=Queue)
    block_size: int = 4
    total_pages: int = 1000
    finished: bool = False
    ended: list[Any] = field(default_factory=list)
    broken: bool = False
    known: list[FakeRequest] = field(default_factory=list)
    requests: dict[str, Any] = field(default_factory=dict)
    outputs: dict[int, Any] = field(default_factory=dict)

    def schedule(self) -> Order:
        if self.broken:
            raise RuntimeError("no blocks")
        while self.waiting and self.pages(self.waiting[0].num_tokens) <= self.get_num_free_blocks():
            request = self.waiting.pop(0)
            request.num_computed_tokens = request.num_tokens
            self.running = [*self.running, request]
        return Order(request.name for request in self.running)

    def pages(self, positions: int) -> int:
        return -(-positions // self.block_size)

    @property
    def kv_cache_manager(self) -> SimpleNamespace:
        return SimpleNamespace(block_pool=self)

    def get_num_free_blocks(self) -> int:
        # Also of the requests that the scheduler under test hides from a `schedule` call.
        return self.total_pages - sum(self.pages(request.num_computed_tokens) for request in self.known)

    def _preempt_request(self, request: FakeRequest, _: float) -> None:
        request.num_computed_tokens, request.num_preemptions = 0, request.num_preemptions + 1
        self.waiting.prepend_request(request)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:  # noqa: ARG002 - as vLLM's
        return self.outputs

    def get_grammar_bitmask(self, scheduler_output: Any) -> None:
        """As vLLM's, without a grammar."""

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


class CreditPlainScheduler(CreditScheduling, PlainScheduler):
    pass


class SchedulerHarness:
    def __init__(self) -> None:
        self.tables, path = SlotTables.create(SHAPE)
        address = f"voxgate-test-{uuid.uuid4().hex}"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.settimeout(5)
        self.listener.bind(f"\0{address}")
        self.listener.listen()
        self.connection: socket.socket | None = None
        self.config = EngineConfig("nowhere", EngineOptions(), SHAPE, path, (address,), "", os.getpid())
        self.scheduler = CreditPlainScheduler(SimpleNamespace(additional_config=self.config.as_additional_config()))
        for slot in range(SHAPE.slots):
            self.tables.control[slot] = row(tokens=5, closed=True, credit=5)

    def report(self) -> bytes:
        """The next report."""
        if self.connection is None:
            self.connection, _ = self.listener.accept()
            self.connection.settimeout(5)
        return self.connection.recv(1 << 16)

    def close(self) -> None:
        self.scheduler._reports.close()
        for sock in (self.connection, self.listener):
            if sock is not None:
                sock.close()

    def hold(self, *slots: int) -> None:
        self.tables.control[list(slots), Field.CREDIT] = 0

    def run(self, *requests: FakeRequest) -> None:
        self.scheduler.running = list(requests)
        self.scheduler.known = list(requests)

    def running(self) -> list[str]:
        return [request.name for request in self.scheduler.running]


def run_generations(harness: SchedulerHarness, **leads: int) -> list[FakeRequest]:
    """A running generation per name, in slots 0, 1, ..., with the given number of frames ahead of its listener."""
    harness.tables.control[:, Field.CREDIT] = 100
    requests = []
    for slot, (name, lead) in enumerate(leads.items()):
        harness.tables.control[slot, Field.HEARD] = 20 - lead
        requests.append(FakeRequest(name, slot, PREFIX + 20))
    harness.run(*requests)
    return requests


def reported(harness: SchedulerHarness) -> list[list[int]]:
    """The releases and prefills reported so far, without codes."""
    harness.scheduler.finish_requests([HEARTBEAT_MARKER], "aborted")
    records: list[list[int]] = []
    while not records or records[-1][3] != RecordFlag.HEARTBEAT:
        records += unpack_records(harness.report(), 16).tolist()
    return [record for record in records[:-1] if record[3] & (RecordFlag.RELEASED | RecordFlag.PREFILL)]


def stepped(*names: str) -> SimpleNamespace:
    return SimpleNamespace(num_scheduled_tokens=dict.fromkeys(names, 2))
