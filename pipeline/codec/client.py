"""Decodes streams in shared batches, over one channel to a codec worker."""
# TODO-DOC A job under way: whose frames it has, and where its sound goes.
# TODO-DOC Streams decoded in shared batches, on one channel to a codec worker: what is planned, and what came of it.
# TODO-DOC The event loop plans the batches and only moves bytes; all arithmetic is in the worker.

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from voxgate.codecs.pcm import FRAME_MS, Pcm

from ..errors import AtCapacity, EngineError, EngineLost, EngineNotReady, GenerationFailed
from ..ipc.codec_wire import ANSWER_HEADER, AnswerKind, CodecDescription, Codes, Job
from ..ipc.pcm_buffers import SharedPcmBuffers
from ..ipc.watchdog import HeartbeatWatchdog
from ..step_times import StepTimes
from .planner import frames_to_decode, plan
from .stream import CodecStream

SLOWEST_JOBS = 4
"""What is slow does not hang: two jobs may lie before the one that is waited for, and each take longer than ever."""


@dataclass(frozen=True, slots=True)
class InFlightJob:
    """`frames`: of each stream; `place`: of the shared memory that its sound goes to, None for a job of nothing."""

    streams: tuple[CodecStream, ...]
    frames: int
    place: int | None = None

    def deliver(self, sound: Pcm) -> None:
        """`sound`: float32 [streams, samples]. A row that holds what is no number fails its stream alone."""
        sane = np.isfinite(sound).all()
        for stream, row in zip(self.streams, sound, strict=True):
            if sane or np.isfinite(row).all():
                stream.deliver(row, self.frames)
            else:
                # A stream's history holds on to what is no number; other streams have their own.
                stream.fail(GenerationFailed("the codec could not decode the speech"))

    def fail(self, error: EngineError) -> None:
        """End all its streams."""
        for stream in self.streams:
            stream.fail(error)


JOBS_IN_FLIGHT = 2
"""So that the worker finds the next one waiting when it has answered."""
FIRST_IN_FLIGHT = 3
"""With a job of streams that nothing has been heard of yet: they need not wait for those under way."""


class CodecClient:
    """Decodes streams in slots of a worker's. `slots`: how many it may use at once.

    `max_job_frames`: of a batch over all its rows; `job_deadline_s`: how long the worker may be silent with a job.
    `on_death` is called once when the worker dies or hangs by itself, after every stream was failed.
    """

    def __init__(
        self,
        slots: int,
        max_job_frames: int,
        job_deadline_s: float = 5.0,
        on_death: Callable[[EngineLost], None] | None = None,
    ) -> None:
        self.slots, self.max_job_frames = slots, max_job_frames
        self._on_death = on_death
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._sound = SharedPcmBuffers.create(FIRST_IN_FLIGHT, max_job_frames)
        self._places = list(range(FIRST_IN_FLIGHT))
        self._about: CodecDescription | None = None
        self._reading: asyncio.Task[None] | None = None
        self._streams: dict[int, CodecStream] = {}
        self._in_flight: dict[int, InFlightJob] = {}
        self._serial = 0
        self._answered = asyncio.Event()
        self._planning: asyncio.Handle | None = None
        self._looking: asyncio.Handle | None = None
        self._watchdog = HeartbeatWatchdog(job_deadline_s)
        self._due: asyncio.TimerHandle | None = None
        self.times = StepTimes()
        """What its jobs take, by the number of frames over all rows."""

    @property
    def ready(self) -> bool:
        return self._about is not None

    @property
    def books(self) -> int:
        """Codes in a frame; only while it is ready."""
        assert self._about is not None
        return self._about.books

    async def connect(self, address: str) -> None:
        """Join a worker that another process started. Raises as `greeted` does."""
        channel = socket.socket(socket.AF_UNIX)
        channel.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(channel, f"\0{address}")
            self._sound.show(channel)
        except BaseException:
            channel.close()
            raise
        self._reader, self._writer = await asyncio.open_connection(sock=channel)
        await self.greeted()

    async def greeted(self) -> None:
        """Wait for the worker's first word. Raises EngineError; OSError and the like when it is gone."""
        kind, _, _, payload = await self._read_answer()
        if kind is not AnswerKind.READY:
            raise EngineError(f"the codec cannot start: {payload.decode(errors='replace')}")
        self._about = CodecDescription(**json.loads(payload))
        self._reading = asyncio.create_task(self._read(), name="codec answers")

    async def close(self) -> None:
        """Open streams raise EngineLost. Safe to call twice."""
        self._fail_all(EngineLost("the codec was closed"))
        for handle in (self._planning, self._looking):
            if handle is not None:
                handle.cancel()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        if self._writer is not None:
            self._writer.close()  # the worker takes a closed socket for the end

    def open_in(self, slot: int, *, paced: bool = True, context: Codes | None = None) -> CodecStream:
        """A new stream in a slot that is free; `paced` when it is heard as it is decoded, not as fast as it is made.

        `context`: int16 [n, 16] whose audio the stream goes on from, without giving it out. Raises EngineNotReady,
        AtCapacity when the slot is taken, ValueError for a context that is none of this codec's.
        """
        if context is not None:
            context = self._checked(context)
        if self._about is None:
            raise EngineNotReady("the codec is not running")
        if slot in self._streams:
            raise AtCapacity(f"codec slot {slot} is taken")
        stream = self._streams[slot] = CodecStream(
            slot, self._checked, partial(self._changed, slot), self._release,
            paced=paced, context=context, alone=not self.touched(slot),
        )  # fmt: skip  # what it is told, and what it is
        self._changed(slot)
        return stream

    def _checked(self, codes: Codes) -> Codes:
        if self._about is None:
            return codes  # lost: the stream's reader is told
        if codes.ndim != 2 or codes.shape[1] != self._about.books:
            raise ValueError(f"codes must be [n, {self._about.books}], not {list(codes.shape)}")
        if len(codes) and not (int(codes.min()) >= 0 and int(codes.max()) < self._about.codebook_size):
            raise ValueError(f"codes must lie in [0, {self._about.codebook_size})")
        return np.array(codes, dtype=np.int16)

    def _release(self, stream: CodecStream) -> None:
        if self._streams.get(stream.slot) is stream:
            del self._streams[stream.slot]

    async def settled(self, slot: int) -> None:
        """Wait until no job under way touches the slot: from then on another process may use it."""
        while self.touched(slot):
            self._answered.clear()
            await self._answered.wait()

    def touched(self, slot: int) -> bool:
        """Whether a job under way is in that slot, if only for a stream that is no more."""
        return any(stream.slot == slot for job in self._in_flight.values() for stream in job.streams)

    def _changed(self, slot: int) -> None:
        """A stream has more frames, an end, or a listener who is further: time to plan if that makes a chunk ready.

        Those of the others are as they were.
        """
        stream = self._streams.get(slot)
        if self._planning is None and stream is not None and stream.pending:
            view = stream.view(asyncio.get_running_loop().time())
            if frames_to_decode(view, self.max_job_frames):
                self._plan_soon()
            elif not stream.paced:
                self._look_again()

    def _plan_soon(self) -> None:
        """Plan once this turn of the loop is over: streams pushed to in the same turn share a batch."""
        if self._planning is None and self._about is not None:
            self._planning = asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._planning = None
        now_s = asyncio.get_running_loop().time()
        while self._about is not None and (under_way := len(self._in_flight)) < FIRST_IN_FLIGHT:
            # Most streams wait for frames at any one moment; looking at each would cost more than all the rest.
            pending = [stream for stream in self._streams.values() if stream.pending]
            views = [stream.view(now_s) for stream in pending]
            if under_way >= JOBS_IN_FLIGHT:
                views = [view for view in views if not view.decoded]
            batch = plan(views, max_rows=self.slots, max_frames=self.max_job_frames)
            if batch is None:
                if not all(stream.paced for stream in pending):
                    self._look_again()
                return
            streams = tuple(self._streams[slot] for slot in batch.slots)
            serial = self._next_serial()
            taken = (stream.take(batch.frames, serial, now_s) for stream in streams)
            codes, resets = zip(*taken, strict=True)
            place = self._places.pop()
            job = Job(serial, batch.slots, resets, np.stack(codes), place)
            self._submit(job, InFlightJob(streams, batch.frames, place))

    def _look_again(self) -> None:
        """No listener's progress tells that it is time for those who are not heard as they are decoded."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(FRAME_MS / 1000, self._look)

    def _look(self) -> None:
        self._looking = None
        self._plan_soon()

    def _next_serial(self) -> int:
        self._serial = (self._serial + 1) & 0xFFFF_FFFF
        return self._serial

    def _submit(self, job: Job, about: InFlightJob) -> None:
        assert self._writer is not None
        self._watchdog.on_request(asyncio.get_running_loop().time())
        self._in_flight[job.serial] = about
        self._writer.write(job.pack())
        if self._due is None:
            self._expect_answer()

    def _expect_answer(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.call_at(self._watchdog.due_s(self._slowest_s(loop.time())), self._look_for_answer)

    def _slowest_s(self, now_s: float) -> float:
        """What the jobs before an answer can take, in seconds."""
        return SLOWEST_JOBS * (self.times.curve(now_s).at(self.max_job_frames) or 0.0)

    def _look_for_answer(self) -> None:
        assert self._due is not None
        planned_s, self._due = self._due.when(), None
        if not self._in_flight:
            return
        now_s = asyncio.get_running_loop().time()
        if self._watchdog.expired(now_s, planned_s, self._slowest_s(now_s)):
            self._lose("the codec worker hangs")
        else:
            self._expect_answer()

    async def _read(self) -> None:
        """Deliver answers until the worker is gone."""
        try:
            while True:
                self._accept(*await self._read_answer())
        except (asyncio.IncompleteReadError, OSError):
            self._lose("the codec worker died")
        except (KeyError, ValueError) as error:
            self._lose(f"the codec worker answered what was not asked: {error!r}")

    def _lose(self, reason: str) -> None:
        """The worker failed by itself: tell every stream, then the owner; only the first reason counts."""
        if self._about is None:
            return
        lost = EngineLost(reason)
        self._fail_all(lost)
        if self._on_death is not None:
            self._on_death(lost)

    def _accept(self, kind: AnswerKind, serial: int, seconds: float, payload: bytes) -> None:
        now_s = asyncio.get_running_loop().time()
        if kind is AnswerKind.TOOK:
            self.times.record(serial, seconds, now_s)
            return
        job = self._in_flight.pop(serial)
        self._watchdog.on_message(now_s, pending=bool(self._in_flight))
        self._answered.set()
        sound: Pcm | None = None
        if job.place is not None:
            if kind is AnswerKind.PCM:
                assert self._about is not None
                sound = self._sound.read(job.place, len(job.streams), job.frames * self._about.frame_samples)
                self.times.record(len(job.streams) * job.frames, seconds, now_s)
            self._places.append(job.place)
        # The worker first: what is done with its answer takes milliseconds where many listen.
        if self._planning is not None:
            self._planning.cancel()
        self._dispatch()
        if sound is not None:
            job.deliver(sound)
        elif kind is AnswerKind.FAILED:
            job.fail(GenerationFailed(f"the codec could not decode: {payload.decode(errors='replace')}"))

    async def _read_answer(self) -> tuple[AnswerKind, int, float, bytes]:
        kind, serial, micros, length = ANSWER_HEADER.unpack(await self._reader.readexactly(ANSWER_HEADER.size))
        return AnswerKind(kind), serial, micros * 1e-6, await self._reader.readexactly(length)

    def _fail_all(self, error: EngineLost) -> None:
        self._about = None
        self._in_flight.clear()
        self._answered.set()
        if self._due is not None:
            self._due.cancel()
            self._due = None
        for stream in self._streams.values():
            stream.fail(error)
