"""The talker's engine: the slots that generations run in, and whose each of the process's reports is."""
# TODO-DOC Who may have a slot of the engine.

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

from ..checkpoint import TalkerCheckpoint
from ..errors import AtCapacity, EngineError, EngineLost
from ..ipc.records import HEADER, RecordFlag, epoch_after, release_marker, unpack_pcm, unpack_records
from ..ipc.report_channel import ReportReceiver
from ..ipc.slot_tables import Field, SlotTables, TableShape
from ..ipc.wakeup import WakeupSender
from ..step_times import StepTimes
from .generation import Generation
from .prompt import MAX_TEXT_TOKENS, SLOW_FRAMES_PER_TOKEN, max_prompt_positions
from .prompt_pool import PrefilledPromptPool
from .slot_lease import TalkerSlotLease
from .vllm.config import EngineConfig, EngineOptions
from .vllm.launch import load_engine, write_engine_folder
from .vllm.process import EngineProcess

if TYPE_CHECKING:
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.engine.async_llm import AsyncLLM


log = logging.getLogger(__name__)

T = TypeVar("T")


class TalkerEngine:
    """Opens generations in its slots, and hands each the frames that are its own.

    Everything but `start` and `close` is synchronous and belongs to the event loop.
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
        self._free = list(reversed(range(options.slots)))
        self._epoch = 0
        self._live: dict[int, SlotOwner] = {}
        self._process = EngineProcess(self._slowest_s, self._fail)
        self._tables: SlotTables | None = None
        self._prompt_pool: PrefilledPromptPool | None = None
        self._read_requests = 0
        self.times = StepTimes()
        """What its steps take, by the number of generations in them."""
        self._wake_due = False
        self._closing = contextlib.AsyncExitStack()
        self._run_id = uuid.uuid4().hex
        self._wakeup: WakeupSender | None = None
        self.tables_path = ""
        """Where other processes find the tables, once it is started."""

    def reports_address(self, owner: int) -> str:
        """Where the process of that number is to receive the engine's reports of its generations (`ReportReceiver`)."""
        return f"voxgate-frames-{self._run_id}-{owner}"

    @property
    def wakeup_address(self) -> str:
        """Where every process rings that has written the tables (`WakeupSender`)."""
        return f"voxgate-bell-{self._run_id}"

    def _kv_cache_bytes(self, device: str) -> int | None:
        """On a CPU, what every slot needs to be full at once; vLLM would take a share of all memory otherwise."""
        return self.slot_bytes * (self.shape.rows + 1) if device == "cpu" else None

    @property
    def slot_bytes(self) -> int:
        """Memory that a slot's keys and values take on a CPU when it is full."""
        size = self.checkpoint.talker
        per_position = 2 * size.layers * size.kv_heads * size.head_dim * 4
        return per_position * (self.max_positions + 256)

    @property
    def free_slots(self) -> int:
        return len(self._free)

    @property
    def alive(self) -> bool:
        return self._process.alive

    async def start(self) -> None:
        """Load the model and return when it can generate. Raises EngineError; no process is left then.

        Cancelling it stops the engine process too, once vLLM's own start-up call has returned.
        """
        try:
            await self._start()
        except BaseException as error:
            await self.close()
            if isinstance(error, Exception) and not isinstance(error, EngineError):
                raise EngineError(f"the talker's engine did not start: {error}") from error
            raise

    async def _start(self) -> None:
        self._tables, tables_path = SlotTables.create(self.shape)
        self._wakeup = WakeupSender(self.wakeup_address)
        self._closing.callback(self._wakeup.close)
        self._closing.callback(ReportReceiver(self.reports_address(0), self._receive).close)
        self.tables_path = tables_path
        wiring = EngineConfig(
            checkpoint=str(self.checkpoint.folder),
            options=self.options,
            shape=self.shape,
            tables=tables_path,
            report_addresses=tuple(map(self.reports_address, range(1 + self.options.attached_processes))),
            wakeup_address=self.wakeup_address,
            owner_pid=os.getpid(),
        )
        await self._process.start(lambda: self._load(wiring), self.options.start_timeout_s)
        await self._process.serve(self.shape.frames + 2, self.shape.end_token)
        self._prompt_pool = PrefilledPromptPool(self, self._tables, self.shape.slots, self.shape.prefilled_prompts)

    @property
    def max_positions(self) -> int:
        """The longest that a generation can become, prompt and all."""
        return self.shape.prefix + self.shape.frames + 1

    def _load(self, wiring: EngineConfig) -> AsyncLLM:
        # Nobody reads the folder once the model is loaded; kept longer, it would stay behind when we are killed.
        with tempfile.TemporaryDirectory(prefix="voxgate-engine-") as name:
            write_engine_folder(self.checkpoint, self.shape.rows, self.max_positions, Path(name))
            return load_engine(Path(name), wiring, self.options, self.max_positions)

    async def ask_worker(self, question: Callable[[Any], T]) -> T:
        """As `EngineProcess.ask_worker`."""
        return await self._process.ask_worker(question)

    async def close(self) -> None:
        """Stop the engine process; generations under way end with EngineLost. Safe to call twice."""
        if self._prompt_pool is not None:
            self._prompt_pool.close()
        self._fail("the engine was stopped")
        await self._process.close()
        await self._closing.aclose()

    def open(self) -> Generation:
        """Take a free slot. Raises AtCapacity, EngineLost."""
        slot = self._take_slot()
        assert self._tables is not None
        self._epoch = epoch_after(self._epoch, 0)
        self._tables.control[slot] = 0
        generation = self._live[slot] = Generation(self._tables, slot, self._epoch, self)
        return generation

    def lease(self) -> TalkerSlotLease:
        """A free slot for another process's generations, one after another. Raises AtCapacity, EngineLost."""
        slot = self._take_slot()
        seat = self._live[slot] = TalkerSlotLease(slot, self)
        return seat

    def _take_slot(self) -> int:
        if not self.alive:
            raise EngineLost("the engine is not running")
        if not self._free:
            raise AtCapacity("every talker slot is in use")
        return self._free.pop()

    def free(self, tenant: Generation | TalkerSlotLease) -> None:
        """Take a slot back; no step may touch it any more."""
        if self._live.get(tenant.slot) is tenant:
            del self._live[tenant.slot]
            assert self._tables is not None
            self._tables.control[tenant.slot, Field.EPOCH] = 0
            self._free.append(tenant.slot)

    def submit(self, generation: Generation, prompt_len: int) -> asyncio.Task[int]:
        """Run the generation in vLLM to its end; resolves to the number of steps it took. Raises EngineLost."""
        return self.run(generation.slot, generation.epoch, prompt_len)

    def run(self, slot: int, epoch: int, prompt_len: int) -> asyncio.Task[int]:
        """As `submit`, for a generation of any process."""
        if self._prompt_pool is not None and (begun := self._prompt_pool.take(slot)) is not None:
            # At once: the event loop may have the rest of the text to read before its next turn.
            self._wake_now()
            return begun
        return asyncio.create_task(self._process.run(self._process.request(f"{epoch}", slot, prompt_len)))

    def read(self, row: int, positions: int) -> asyncio.Task[int]:
        """Read a prompt before anybody needs it (`warm.py`); resolves as `submit` does for whoever takes it over."""
        self._read_requests += 1
        request = self._process.request(f"warm{self._read_requests}", row, positions)
        reading = asyncio.create_task(self._run_read(request))
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        return reading

    async def _run_read(self, request: EngineCoreRequest) -> int:
        # What it says at the prompt's end is no frame.
        return await self._process.run(request) - 1

    def _slowest_s(self) -> float:
        """What the step under way may take at most."""
        # A long prompt takes the time of a step with as many rows.
        unread = sum(tenant.pending_prompt_positions for tenant in self._live.values())
        return 2 * (self.times.curve(asyncio.get_running_loop().time()).at(max(unread, 1)) or 0.0)

    def _fail(self, reason: str) -> None:
        """The process is gone, or is about to be: tell every generation under way."""
        for tenant in list(self._live.values()):
            tenant.fail(EngineLost(reason))

    def wake(self) -> None:
        """Have the engine look at its held generations again: once per turn of the event loop, for all of them."""
        if not self._wake_due:
            self._wake_due = True
            asyncio.get_running_loop().call_soon(self._wake_now)

    def _wake_now(self) -> None:
        self._wake_due = False
        self.keep_awake()

    def keep_awake(self) -> None:
        """Have the engine be awake: somebody is about to write."""
        if self._wakeup is not None:
            self._wakeup.notify()

    def ask_release(self, tenant: Generation | TalkerSlotLease) -> None:
        """Have the engine confirm that it is done with an aborted generation."""
        self._process.send_marker(release_marker(tenant.slot, tenant.epoch))

    def _receive(self, message: bytes) -> None:
        self._process.on_message()
        now_s = asyncio.get_running_loop().time()
        try:
            if (sound := unpack_pcm(message)) is not None:
                slot, epoch, pcm = sound
                tenant = self._live.get(slot)
                if tenant is not None and tenant.epoch == epoch:
                    tenant.on_audio(pcm)
                return
            for record in unpack_records(message, self.checkpoint.groups):
                self._take(record, now_s)
        except Exception:
            # Nothing that comes this way can be trusted any more.
            log.exception("a report of the talker's engine cannot be read")
            self._process.lose("the talker's engine reports what cannot be read")

    def _take(self, record: NDArray[np.int32], now_s: float) -> None:
        first, second, number, flags = record[:HEADER].tolist()
        if flags & RecordFlag.STEP:
            self.times.record(first, second * 1e-6, now_s)
            return
        if flags & RecordFlag.HEARTBEAT:
            return
        if flags & RecordFlag.PREFILL:
            if self._prompt_pool is not None:
                self._prompt_pool.heard(first)
            return
        tenant = self._live.get(first)
        # Records of an earlier owner of the slot may still be on their way.
        if tenant is None or tenant.epoch != second:
            return
        if flags & RecordFlag.RELEASED:
            tenant.released()
        else:
            tenant.take(number, flags, record[HEADER:])


class SlotOwner(Protocol):
    """Who has a slot: a generation of this process, or a `TalkerSlotLease` lent to another."""

    @property
    def epoch(self) -> int:
        """Of the generation that runs in it."""

    @property
    def pending_prompt_positions(self) -> int:
        """What the engine may have to read before its next frame."""

    def take(self, number: int, flags: int, codes: NDArray[np.int32]) -> None:
        """A record of the engine's."""

    def on_audio(self, pcm: Pcm) -> None:
        """The sound of a first frame that the engine decoded."""

    def released(self) -> None:
        """No step touches the slot on the generation's behalf any more."""

    def fail(self, error: Exception) -> None:
        """The engine is lost."""
