"""The talker's engine: opens generations in its slots and delivers the reports of its process to their owners."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from ..checkpoint.checkpoint import TalkerCheckpoint
from ..errors import AtCapacity, EngineError, EngineLost
from ..ipc.records import RecordFlag, epoch_after, release_marker
from ..ipc.report_channel import ReportReceiver
from ..ipc.slot_tables import Field, SlotTables, TableShape
from ..ipc.wakeup import WakeupSender
from ..step_times import StepTimes
from .generation import Generation
from .prompt import MAX_TEXT_TOKENS, SLOW_FRAMES_PER_TOKEN, max_prompt_positions
from .prompt_pool import PrefilledPromptPool
from .slot_lease import TalkerSlotLease
from .slot_owners import SlotOwner, SlotOwners
from .start_progress import StartProgress
from .vllm.config import EngineConfig, EngineOptions
from .vllm.gpu_memory import GpuMemoryPlan, plan_for
from .vllm.launch import start_vllm
from .vllm.process import EngineProcess

log = logging.getLogger(__name__)

T = TypeVar("T")

_ROUNDING_POSITIONS = 256
"""Positions added to a slot's share of the CPU cache: vLLM allocates whole pages."""


class TalkerEngine:
    """Owns the engine's process, its slots and their tables.

    `start` it, `open` or `lease` slots, `close` it. Everything but `start`, `ask_worker` and `close` is synchronous
    and belongs to the event loop.
    """

    def __init__(self, checkpoint: TalkerCheckpoint, options: EngineOptions) -> None:
        self.checkpoint = checkpoint
        text = min(MAX_TEXT_TOKENS, options.max_frames // SLOW_FRAMES_PER_TOKEN)
        self.shape = TableShape(
            slots=options.slots,
            prefix=max_prompt_positions(checkpoint) + text,
            text=text,
            frames=options.max_frames,
            groups=checkpoint.groups,
            hidden=checkpoint.talker.hidden,
            prefilled_prompts=options.prefilled_prompts,
        )
        self.options = replace(options, kv_cache_bytes=options.kv_cache_bytes or self._kv_cache_bytes(options.device))
        self.times = StepTimes()
        """Durations of steps by the number of generations in them."""
        self.tables_path = ""
        """Where other processes attach the tables, once the engine is started."""
        self._free = list(reversed(range(options.slots)))
        self._epoch = 0
        self._owners: SlotOwners[Generation | TalkerSlotLease] = SlotOwners(checkpoint.groups, self._on_engine_record)
        self._process = EngineProcess(self._slowest_s, self._fail)
        self._tables: SlotTables | None = None
        self._prompt_pool: PrefilledPromptPool | None = None
        self._prefills = 0
        self._closing = contextlib.AsyncExitStack()
        self._run_id = uuid.uuid4().hex
        self._wakeup: WakeupSender | None = None

    def reports_address(self, process: int) -> str:
        """The address at which the process of that number receives reports of its generations (`ReportReceiver`)."""
        return f"voxgate-reports-{self._run_id}-{process}"

    @property
    def wakeup_address(self) -> str:
        """The address that processes notify when they have written the tables (`WakeupSender`)."""
        return f"voxgate-wakeup-{self._run_id}"

    def _kv_cache_bytes(self, device: str) -> int | None:
        """On a CPU, what all slots need to be full at once; by default vLLM takes a share of all memory."""
        return self.slot_bytes * (self.shape.rows + 1) if device == "cpu" else None

    def plan_memory(self, slots: int | None) -> GpuMemoryPlan:
        """Divides the GPU's memory that is free now for `slots`, or for as many as fit; blocks for a second.

        Raises EngineError when the engine cannot start in it.
        """
        return plan_for(self.checkpoint, self.options, self.shape.max_positions, slots)

    @property
    def slot_bytes(self) -> int:
        """Memory of a full slot's keys and values on a CPU, in float32."""
        size = self.checkpoint.talker
        position_bytes = 2 * size.layers * size.kv_heads * size.head_dim * 4
        return position_bytes * (self.shape.max_positions + _ROUNDING_POSITIONS)

    @property
    def free_slots(self) -> int:
        return len(self._free)

    @property
    def alive(self) -> bool:
        return self._process.alive

    async def start(self, progress: StartProgress | None = None) -> None:
        """Loads the model; returns when the engine can generate. Raises EngineError, and no process is left then.

        Cancelling it kills the engine's process, too.
        """
        try:
            await self._start(progress or StartProgress())
        except BaseException as error:
            await self.close()
            if isinstance(error, Exception) and not isinstance(error, EngineError):
                raise EngineError(f"the talker's engine did not start: {error}") from error
            raise

    async def _start(self, progress: StartProgress) -> None:
        self._tables, self.tables_path = SlotTables.create(self.shape)
        self._wakeup = WakeupSender(self.wakeup_address)
        self._closing.callback(self._wakeup.close)
        self._closing.callback(ReportReceiver(self.reports_address(0), self._receive).close)
        memory = None if self.options.device == "cpu" else await asyncio.to_thread(self.plan_memory, self.shape.slots)
        config = EngineConfig(
            checkpoint=str(self.checkpoint.folder),
            options=self.options,
            shape=self.shape,
            tables=self.tables_path,
            report_addresses=tuple(map(self.reports_address, range(1 + self.options.attached_processes))),
            wakeup_address=self.wakeup_address,
            owner_pid=os.getpid(),
            memory=memory,
        )
        await self._process.start(lambda: start_vllm(self.checkpoint, config, progress), self.options.start_timeout_s)
        await self._process.serve(self.shape.frames + 2, self.shape.end_token)
        self._prompt_pool = PrefilledPromptPool(
            self._prefill, self._tables, self.shape.slots, self.shape.prefilled_prompts
        )

    async def ask_worker(self, question: Callable[[Any], T]) -> T:
        """Runs `question` in the engine's process, as `EngineProcess.ask_worker`."""
        return await self._process.ask_worker(question)

    async def close(self) -> None:
        """Stops the engine's process; running generations end with EngineLost. Safe to call twice."""
        if self._prompt_pool is not None:
            self._prompt_pool.close()
        self._fail("the engine was stopped")
        await self._process.close()
        await self._closing.aclose()

    # Slots

    def open(self) -> Generation:
        """A generation in a free slot. Raises AtCapacity, EngineLost."""
        tables, slot = self._take_slot()
        self._epoch = epoch_after(self._epoch, 0)
        tables.control[slot] = 0
        generation = Generation(tables, slot, self._epoch, self)
        self._owners.add(generation)
        return generation

    def lease(self) -> TalkerSlotLease:
        """A free slot for another process's generations. Raises AtCapacity, EngineLost."""
        _, slot = self._take_slot()
        lease = TalkerSlotLease(slot, self, self._prompt_pool.reserve() if self._prompt_pool is not None else None)
        self._owners.add(lease)
        return lease

    def _take_slot(self) -> tuple[SlotTables, int]:
        if self._tables is None or not self.alive:
            raise EngineLost("the engine is not running")
        if not self._free:
            raise AtCapacity("every talker slot is in use")
        return self._tables, self._free.pop()

    def free(self, owner: SlotOwner) -> None:
        """As `SlotEngine.free`."""
        if self._owners.remove(owner) and self._tables is not None:
            self._tables.control[owner.slot, Field.EPOCH] = 0
            self._free.append(owner.slot)

    def run(self, slot: int, epoch: int, prompt_len: int) -> asyncio.Task[int]:
        """As `SlotEngine.run`; continues from a prefilled prompt where there is one."""
        if self._prompt_pool is not None and (request := self._prompt_pool.claim(slot)) is not None:
            # At once: this turn of the event loop may still have the rest of the text to read.
            self.keep_awake()
            return request
        return asyncio.create_task(self._process.run(f"{epoch}", slot, prompt_len))

    def take_over(self, row: int) -> asyncio.Task[int] | None:
        """As `LendingEngine.take_over`."""
        return None if self._prompt_pool is None else self._prompt_pool.take_over(row)

    def give_back(self, row: int) -> asyncio.Task[int] | None:
        """As `LendingEngine.give_back`."""
        return None if self._prompt_pool is None else self._prompt_pool.give_back(row)

    def written_epoch(self, slot: int) -> int:
        """As `LendingEngine.written_epoch`."""
        return 0 if self._tables is None else int(self._tables.control[slot, Field.EPOCH])

    def _prefill(self, row: int, positions: int) -> asyncio.Task[int]:
        """Computes the prompt in a row of the pool; the task resolves as that of `run`, for the row's successor."""
        self._prefills += 1
        prefill = asyncio.create_task(self._run_prefill(f"prefill{self._prefills}", row, positions))
        # The task is dropped when no generation claims it.
        prefill.add_done_callback(lambda done: done.cancelled() or done.exception())
        return prefill

    async def _run_prefill(self, name: str, row: int, positions: int) -> int:
        # The token at the prompt's end is no frame.
        return await self._process.run(name, row, positions) - 1

    def wake(self) -> None:
        """As `SlotEngine.wake`: once per turn of the event loop, for all generations."""
        if self._wakeup is not None:
            self._wakeup.notify_soon()

    def expect_utterance(self) -> None:
        """As `Synthesizer.expect_utterance`."""
        if self._tables is not None:
            self._tables.expected_s[0] = time.monotonic()

    def keep_awake(self) -> None:
        """Wakes the engine at once, for tables that are about to be written."""
        if self._wakeup is not None:
            self._wakeup.notify()

    def request_release(self, owner: SlotOwner) -> None:
        """As `SlotEngine.request_release`."""
        self._process.send_marker(release_marker(owner.slot, owner.epoch))

    # The engine's process

    def _slowest_s(self) -> float:
        """How long the step under way can take, in seconds."""
        # A prompt takes as long as a step with one row for each of its positions.
        pending = sum(owner.pending_prompt_positions for owner in self._owners)
        return 2 * (self.times.curve(asyncio.get_running_loop().time()).at(max(pending, 1)) or 0.0)

    def _fail(self, reason: str) -> None:
        for owner in self._owners:
            owner.fail(EngineLost(reason))

    def _receive(self, message: bytes) -> None:
        self._process.on_message()
        try:
            self._owners.deliver(message)
        except Exception:
            log.exception("giving up the engine: malformed report")
            self._process.declare_lost("the talker's engine sent a malformed report")

    def _on_engine_record(self, first: int, second: int, flags: int) -> None:
        if flags & RecordFlag.STEP:
            self.times.record(first, second * 1e-6, asyncio.get_running_loop().time())
        elif flags & RecordFlag.PREFILL and self._prompt_pool is not None:
            self._prompt_pool.on_report(first)
