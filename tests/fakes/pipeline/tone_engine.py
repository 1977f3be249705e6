"""An engine without a model for worker processes: the first code of a frame is its text token, its audio is a tone.

Slot tables, reports, slot leases and the codec's sockets are the real ones.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from fakes.waiting import DEADLINE_S
from voxgate.codecs.pcm import FRAME_SAMPLES, SAMPLE_RATE_HZ
from voxgate.pipeline.codec.worker_loop import FinishedBatch, run_worker_loop
from voxgate.pipeline.errors import AtCapacity, EngineLost, EngineNotReady
from voxgate.pipeline.interface import EngineState
from voxgate.pipeline.ipc.codec_wire import CodecWorkerOptions, Job
from voxgate.pipeline.ipc.engine_messages import Attach
from voxgate.pipeline.ipc.records import HEADER, RecordFlag, pack_pcm, pack_release, unpack_records
from voxgate.pipeline.ipc.report_channel import ReportReceiver, ReportSender
from voxgate.pipeline.ipc.slot_tables import Field, SlotTables, TableShape
from voxgate.pipeline.ipc.wakeup import WakeupListener
from voxgate.pipeline.step_times import StepSummary
from voxgate.pipeline.talker.slot_lease import SlotLease, TalkerSlotLease
from voxgate.pipeline.talker.slot_owners import SlotOwner
from voxgate.pipeline.utterance.speech import UtteranceSpeech
from voxgate.pipeline.voice_model import PreparedUtterance, SynthesizerOptions, VoiceModel

GROUPS, CODEBOOK = 16, 512
TAIL = 2
WAKEUP_OWNER = -1
"""Takes the place of an owner's number in the address of the wake-up socket."""
JOB_FRAMES = 128


def tones() -> np.ndarray:
    """float32 [CODEBOOK, 1920]: the audio of each code."""
    n = np.arange(FRAME_SAMPLES) / SAMPLE_RATE_HZ
    return (0.4 * np.sin(2 * np.pi * (150 + 4 * np.arange(CODEBOOK)[:, None]) * n)).astype(np.float32)


class ToneCodec:
    """Serves codec jobs in a thread of this process, with the worker loop of the codec."""

    max_in_flight = 1

    def __init__(self, slots: int, job_s: float = 0.0) -> None:
        self.tones = tones()
        self._job_s = job_s
        self.decoder = SimpleNamespace(
            codebook_size=CODEBOOK, codebooks=GROUPS, frame_samples=FRAME_SAMPLES, context_frames=2
        )
        self._ours, theirs = socket.socketpair()
        self.options = CodecWorkerOptions(
            checkpoint_dir="",
            slots=slots,
            codec_mode="stateful",
            left_context=0,
            threads=1,
            max_rows=slots,
            max_frames=JOB_FRAMES,
            socket_fd=-1,
            parent_pid=os.getpid(),
            address=f"voxgate-tone-{uuid.uuid4().hex}",
            shared=True,
        )
        self.jobs = 0
        self._kept: set[bytes] = set()
        self._thread = threading.Thread(target=run_worker_loop, args=(theirs, self, self.options), daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ours.recv(1 << 16)  # the greeting: the worker listens now
        self._drain = threading.Thread(target=self._read, daemon=True)
        self._drain.start()

    def _read(self) -> None:
        while self._ours.recv(1 << 16):
            pass

    def close(self) -> None:
        self._ours.shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE_S)

    def keep(self, slot: int, key: bytes) -> None:  # noqa: ARG002 - tones have no state
        self._kept.add(key)

    def restore(self, slot: int, key: bytes) -> bool:  # noqa: ARG002 - as above
        return key in self._kept

    def yields(self, _: float) -> bool:
        return False

    def launch(self, job: Job) -> FinishedBatch:
        self.jobs += 1
        return FinishedBatch(self.tones[job.codes[:, :, 0]].reshape(len(job.slots), -1), self._job_s)


class ToneEngine(VoiceModel):
    """The voice of `folder`, used by worker processes through `slots` slots. `step_s`: time of a step, seconds.

    With `decodes_first` the audio of first frames comes with them, as from a GPU.
    """

    def __init__(
        self,
        folder: Path,
        *,
        slots: int = 8,
        step_s: float = 0.001,
        attached_processes: int = 2,
        decodes_first: bool = False,
    ) -> None:
        super().__init__(folder, SynthesizerOptions(slots=slots, attached_processes=attached_processes))
        self.slots = self.capacity = slots
        self.capacity_changes: Mapping[str, int] = {}
        self.step_times: Mapping[str, Sequence[StepSummary]] = {}
        self.frames = 0
        """Number of frames made."""
        self.first_sounds = 0
        """Number of frames that the engine decoded."""
        self.starts = 0
        self._step_s, self._attached_processes, self._decodes_first = step_s, attached_processes, decodes_first
        self._state = EngineState.STARTING
        self._leases: dict[int, TalkerSlotLease] = {}
        self._running: dict[int, asyncio.Future[int]] = {}
        self._made: dict[int, int] = {}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def free_slots(self) -> int:
        return len(self._free)

    @property
    def lent(self) -> int:
        return len(self._leases)

    def expect_utterance(self) -> None: ...

    def _begin(self, prepared: PreparedUtterance, place: object) -> UtteranceSpeech:
        raise NotImplementedError("only workers open speeches")

    async def start(self) -> None:
        self.starts += 1
        self._leases, self._running = {}, {}
        self._run_id = uuid.uuid4().hex
        self._tables, self._path = SlotTables.create(
            TableShape(self.slots, 16 + 256, 256, 1000, GROUPS, self._checkpoint.talker.hidden)
        )
        self._free = list(range(self.slots))
        self._codec_free = list(range(2 * self.slots))
        self._codec = ToneCodec(2 * self.slots)
        await asyncio.to_thread(self._codec.start)
        self._own = ReportReceiver(self._address(0), self._on_report)
        self._reports = ReportSender([self._address(owner) for owner in range(1 + self._attached_processes)], GROUPS)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._step())]
        self._news = asyncio.Event()
        self._wakeup = WakeupListener(self._address(WAKEUP_OWNER))
        loop.add_reader(self._wakeup, self._on_wakeup)
        self._state = EngineState.READY

    async def close(self) -> None:
        self._state = EngineState.DEAD
        tasks, self._tasks = self._tasks, []
        if not tasks:  # not started, or closed already
            return
        for task in tasks:
            task.cancel()
        asyncio.get_running_loop().remove_reader(self._wakeup)
        self._wakeup.close()
        self._own.close()
        self._reports.close()
        if self._codec is not None:
            codec, self._codec = self._codec, None
            await asyncio.to_thread(codec.close)

    def lose(self) -> None:
        """The engine dies: no frame comes any more."""
        self._state = EngineState.DEAD
        for over in self._running.values():
            if not over.done():
                over.set_exception(EngineLost("the engine died"))

    def attachment(self, owner: int, last_epoch: int) -> Attach | None:
        if not self._state.speaks:
            return None
        return Attach(
            owner,
            last_epoch,
            self._path,
            astuple(self._tables.shape),
            self._address(owner),
            self._address(WAKEUP_OWNER),
            self._codec.options.jobs_address,
            2 * self.slots,
            JOB_FRAMES,
        )

    def lease(self) -> SlotLease:
        if not self._state.speaks:
            raise EngineNotReady("it does not run")
        if not self._free:
            raise AtCapacity("every slot is taken")
        # A lease that outlives the engine returns its codec slot to that engine, not to the next one.
        codec_free = self._codec_free
        slot, codec = self._free.pop(), codec_free.pop()
        lease = self._leases[slot] = TalkerSlotLease(slot, self)
        return SlotLease(lease, codec, lambda: codec_free.append(codec))

    # The interface of slot leases

    def run(self, slot: int, epoch: int, prompt_len: int) -> asyncio.Task[int]:  # noqa: ARG002 - as the engine's
        async def request() -> int:
            over = self._running[slot] = asyncio.get_running_loop().create_future()
            past = self._made[slot] = int(self._tables.control[slot, Field.PAST_FRAMES])
            self._news.set()
            try:
                return await over - past
            finally:
                self._running.pop(slot, None)

        return asyncio.create_task(request())

    def wake(self) -> None:
        self._news.set()

    def request_release(self, owner: SlotOwner) -> None:
        self._reports.send(pack_release(owner.slot, owner.epoch))

    def free(self, owner: SlotOwner) -> None:
        if self._leases.get(owner.slot) is owner:
            del self._leases[owner.slot]
            self._tables.control[owner.slot, Field.EPOCH] = 0
            self._free.append(owner.slot)

    # Internals

    def _address(self, owner: int) -> str:
        return f"voxgate-tone-{self._run_id}-{owner}"

    def _on_wakeup(self) -> None:
        if not self._wakeup.read():
            return
        self._news.set()

    def _on_report(self, message: bytes) -> None:
        for slot, epoch, _, flags in unpack_records(message, GROUPS)[:, :HEADER].tolist():
            lease = self._leases.get(slot)
            if flags == RecordFlag.RELEASED and lease is not None and lease.epoch == epoch:
                lease.on_released()

    async def _step(self) -> None:
        """Step all slots that have text and credit, until cancelled."""
        control = self._tables.control
        while True:
            slots = [slot for slot in self._running if not self._running[slot].done()]
            rows = control[slots]
            made = np.array([self._made[slot] for slot in slots], np.int64)
            ready = (made < rows[:, Field.CREDIT]) & ((made < rows[:, Field.TEXT_LEN]) | (rows[:, Field.CLOSED] > 0))
            if self._state.speaks and ready.any():
                self._make(np.array(slots)[ready], rows[ready], made[ready])
                await asyncio.sleep(self._step_s)
            else:
                self._news.clear()
                try:
                    await asyncio.wait_for(self._news.wait(), 1.0)
                except TimeoutError:
                    continue

    def _make(self, slots: np.ndarray, rows: np.ndarray, made: np.ndarray) -> None:
        records = np.zeros((len(slots), HEADER + GROUPS), np.int32)
        closed = rows[:, Field.CLOSED] > 0
        ended = closed & (made >= np.maximum(2, rows[:, Field.TEXT_LEN] + TAIL))
        capped = closed & ~ended & (made >= rows[:, Field.FRAME_CAP])
        records[:, 0], records[:, 1], records[:, 2] = slots, rows[:, Field.EPOCH], made
        records[:, 3] = ended * int(RecordFlag.END) + capped * int(RecordFlag.END | RecordFlag.CAPPED)
        reading = np.minimum(made, rows[:, Field.TEXT_LEN] - 1)
        records[:, HEADER] = self._tables.text[slots, reading] % CODEBOOK
        first = (made == 0) & (rows[:, Field.CODEC_SLOT] != 0) & (records[:, 3] == 0) & self._decodes_first
        records[first, 3] = RecordFlag.DECODED
        self._reports.send(records.tobytes())
        for slot, epoch, _, _, code, *_ in records[first].tolist():
            self.first_sounds += 1
            self._reports.send(pack_pcm(slot, epoch, self._codec.tones[code]))
        self.frames += len(slots)
        for slot, over in zip(slots.tolist(), (ended | capped).tolist(), strict=True):
            self._made[slot] += 1
            if over:
                self._running[slot].set_result(self._made[slot])
