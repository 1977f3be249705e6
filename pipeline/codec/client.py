"""Decodes streams in shared batches over one channel to a codec worker.

The event loop plans the batches and moves bytes; all arithmetic is in the worker.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES, Pcm

from ..errors import AtCapacity, EngineError, EngineLost, EngineNotReady, GenerationFailed
from ..ipc.codec_wire import ANSWER_HEADER, AnswerKind, CodecDescription, Codes, Job, JobKind
from ..ipc.pcm_buffers import SharedPcmBuffers
from ..ipc.watchdog import HeartbeatWatchdog
from ..step_times import StepTimes
from .planner import frames_to_decode, plan_batch
from .stream import CodecContext, CodecStream

JOBS_IN_FLIGHT = 2
"""So that the worker finds the next job waiting when it has answered one."""
FIRST_JOBS_IN_FLIGHT = 3
"""With a job of streams without any audio yet, which need not wait for those in flight."""
SLOW_JOBS = 4
"""Job durations that an answer may take before the worker counts as hanging: two jobs may be queued before it, and
each may take longer than any so far."""


@dataclass(frozen=True, slots=True)
class InFlightJob:
    """A job that the worker has not answered: the next `frames` frames of each of `streams`.

    `buffer`: index of the shared buffer for its audio; None for a job without frames. `on_restored`: of a job to
    RESTORE, takes whether there was a state.
    """

    streams: tuple[CodecStream, ...]
    frames: int
    buffer: int | None = None
    on_restored: Callable[[bool], None] | None = None

    def deliver(self, pcm: Pcm) -> None:
        """Gives each stream its row of float32 [streams, samples]; a row that is not finite fails its stream alone.

        A stream's state keeps a value that is not finite; the other streams have their own state.
        """
        all_finite = np.isfinite(pcm).all()
        for stream, row in zip(self.streams, pcm, strict=True):
            if all_finite or np.isfinite(row).all():
                stream.deliver(row, self.frames)
            else:
                stream.fail(GenerationFailed("the codec could not decode the speech"))

    def fail(self, error: EngineError) -> None:
        """Fails all its streams."""
        for stream in self.streams:
            stream.fail(error)


class CodecClient:
    """Decodes streams in slots of a codec worker that another process started. Not thread-safe.

    `on_death` is called once when the worker dies or hangs by itself, after every stream was failed.
    """

    def __init__(
        self,
        slots: int,
        max_job_frames: int,
        job_deadline_s: float = 5.0,
        on_death: Callable[[EngineLost], None] | None = None,
    ) -> None:
        """`slots`: most streams in one job. `max_job_frames`: most frames of a job over all its rows.

        `job_deadline_s`: longest silence of the worker while a job is in flight, unless jobs take long.
        """
        self.slots, self.max_job_frames = slots, max_job_frames
        self.times = StepTimes()
        """Durations of jobs by their frames over all rows."""
        self._on_death = on_death
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._description: CodecDescription | None = None
        """None before the worker is ready and after it is lost."""
        self._buffers = SharedPcmBuffers.create(FIRST_JOBS_IN_FLIGHT, max_job_frames)
        self._free_buffers = list(range(FIRST_JOBS_IN_FLIGHT))
        self._streams: dict[int, CodecStream] = {}
        self._in_flight: dict[int, InFlightJob] = {}
        self._serial = 0
        self._answered = asyncio.Event()
        self._planning: asyncio.Handle | None = None
        self._replan_timer: asyncio.Handle | None = None
        self._watchdog = HeartbeatWatchdog(job_deadline_s)
        self._answer_timer: asyncio.Handle | None = None

    @property
    def ready(self) -> bool:
        """Whether the worker has greeted and was not lost since."""
        return self._description is not None

    @property
    def codebooks(self) -> int:
        """Codes per frame; only while it is ready."""
        assert self._description is not None
        return self._description.codebooks

    async def connect(self, address: str) -> None:
        """Connects to a worker that another process started. Raises what `read_greeting` raises."""
        channel = socket.socket(socket.AF_UNIX)
        channel.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(channel, f"\0{address}")
            self._buffers.send_to(channel)
        except BaseException:
            channel.close()
            raise
        self._reader, self._writer = await asyncio.open_connection(sock=channel)
        await self.read_greeting()

    async def read_greeting(self) -> None:
        """Waits until the worker is ready.

        Raises EngineError when it cannot start, OSError or asyncio.IncompleteReadError when it is gone.
        """
        kind, _, _, payload = await self._read_answer()
        if kind is not AnswerKind.READY:
            raise EngineError(f"the codec cannot start: {payload.decode(errors='replace')}")
        self._description = CodecDescription(**json.loads(payload))
        self._reading = asyncio.create_task(self._read(), name="codec answers")

    async def close(self) -> None:
        """Disconnects; open streams raise EngineLost. Safe to call twice."""
        self._fail_all(EngineLost("the codec was closed"))
        for handle in (self._planning, self._replan_timer):
            if handle is not None:
                handle.cancel()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        if self._writer is not None:
            self._writer.close()  # at which the worker ends, if it is this process's

    def open_in(self, slot: int, *, paced: bool = True, context: CodecContext | None = None) -> CodecStream:
        """Opens a stream in a free slot; `paced` when its audio is heard as it is decoded.

        `context`: frames that the stream continues. Raises EngineNotReady, AtCapacity when the slot is taken,
        ValueError for a context of another codec.
        """
        if self._description is None:
            raise EngineNotReady("the codec is not running")
        if slot in self._streams:
            raise AtCapacity(f"codec slot {slot} is taken")
        stateful = self._description.codec_mode == "stateful"
        stream = self._streams[slot] = CodecStream(
            slot,
            self._checked,
            partial(self._on_stream_changed, slot),
            self._release,
            paced=paced,
            context=context,
            context_frames=self._description.context_frames,
            external_first_frame=stateful and not self.is_busy(slot),
        )
        if context is not None and len(context.shared):
            self._restore(stream, context.key)
        self._on_stream_changed(slot)
        return stream

    def _restore(self, stream: CodecStream, key: bytes) -> None:
        """Requests the state behind the stream's shared frames; it is kept under `key` if the codec has none yet."""

        def keep() -> None:
            if self._description is not None:
                self._submit_on_state(JobKind.KEEP, key, InFlightJob((stream,), 0))

        def begin(restored: bool) -> None:
            stream.begin_behind_shared(restored, keep)

        self._submit_on_state(JobKind.RESTORE, key, InFlightJob((stream,), 0, on_restored=begin))

    def _submit_on_state(self, kind: JobKind, key: bytes, in_flight: InFlightJob) -> None:
        slot = in_flight.streams[0].slot
        self._submit(Job.on_state(kind, self._next_serial(), slot, key, self.codebooks), in_flight)

    def is_busy(self, slot: int) -> bool:
        """Whether a job in flight has a row in the slot, even for a stream that was closed."""
        return any(stream.slot == slot for job in self._in_flight.values() for stream in job.streams)

    async def wait_until_idle(self, slot: int) -> None:
        """Waits until no job in flight has a row in the slot; another process may use it then."""
        while self.is_busy(slot):
            self._answered.clear()
            await self._answered.wait()

    def _checked(self, codes: Codes) -> Codes:
        if self._description is None:
            return codes  # the worker is lost, and the stream's reader gets the reason
        if codes.ndim != 2 or codes.shape[1] != self._description.codebooks:
            raise ValueError(f"codes must be [n, {self._description.codebooks}], got {list(codes.shape)}")
        # As unsigned numbers, negative codes are too large as well. Before they are narrowed, which would wrap them.
        if len(codes) and codes.astype(np.uint64).max() >= self._description.codebook_size:
            raise ValueError(f"codes must lie in [0, {self._description.codebook_size})")
        return np.array(codes, dtype=np.int16)

    def _release(self, stream: CodecStream) -> None:
        if self._streams.get(stream.slot) is stream:
            del self._streams[stream.slot]

    # Planning

    def _on_stream_changed(self, slot: int) -> None:
        """Plans if this stream has a chunk ready now: it has more frames, has ended, or was heard further."""
        stream = self._streams.get(slot)
        if self._planning is None and stream is not None and stream.pending:
            view = stream.view(asyncio.get_running_loop().time())
            if frames_to_decode(view, self.max_job_frames):
                self._plan_soon()
            elif not stream.paced:
                self._replan_later()

    def _plan_soon(self) -> None:
        """Plans at the end of this turn of the event loop, so that streams pushed to in it share a batch."""
        if self._planning is None and self._description is not None:
            self._planning = asyncio.get_running_loop().call_soon(self._dispatch)

    def _replan_later(self) -> None:
        """Plans again after a frame's time: no playback report wakes streams that are not heard as they are decoded."""
        if self._replan_timer is None:
            self._replan_timer = asyncio.get_running_loop().call_later(FRAME_MS / 1000, self._replan)

    def _replan(self) -> None:
        self._replan_timer = None
        self._plan_soon()

    def _dispatch(self) -> None:
        """Sends jobs until enough are in flight or nothing should be decoded now."""
        self._planning = None
        now_s = asyncio.get_running_loop().time()
        while self._description is not None and self._free_buffers:
            in_flight = FIRST_JOBS_IN_FLIGHT - len(self._free_buffers)
            # At any one moment most streams have nothing pending; a view of each would cost more than the rest.
            pending = [stream for stream in self._streams.values() if stream.pending]
            views = [stream.view(now_s) for stream in pending]
            if in_flight >= JOBS_IN_FLIGHT:
                views = [view for view in views if not view.decoded]
            batch = plan_batch(views, max_rows=self.slots, max_frames=self.max_job_frames)
            if batch is None:
                if not all(stream.paced for stream in pending):
                    self._replan_later()
                return
            streams = tuple(self._streams[slot] for slot in batch.slots)
            serial = self._next_serial()
            taken = (stream.take(batch.frames, serial, now_s) for stream in streams)
            codes, resets = zip(*taken, strict=True)
            buffer = self._free_buffers.pop()
            job = Job(serial, batch.slots, resets, np.stack(codes), buffer, urgent=batch.urgent)
            self._submit(job, InFlightJob(streams, batch.frames, buffer))

    def _next_serial(self) -> int:
        self._serial = (self._serial + 1) & 0xFFFF_FFFF
        return self._serial

    def _submit(self, job: Job, in_flight: InFlightJob) -> None:
        assert self._writer is not None  # callers check that the worker is ready
        self._watchdog.on_request(asyncio.get_running_loop().time())
        self._in_flight[job.serial] = in_flight
        self._writer.write(job.pack())
        if self._answer_timer is None:
            self._expect_answer()

    # Watching the worker

    def _expect_answer(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = self._watchdog.due_s(self._slowest_s(loop.time()))
        self._answer_timer = loop.call_at(due_s, self._check_answer, due_s)

    def _slowest_s(self, now_s: float) -> float:
        """Returns how long the jobs before an answer can take."""
        return SLOW_JOBS * (self.times.curve(now_s).at(self.max_job_frames) or 0.0)

    def _check_answer(self, planned_s: float) -> None:
        self._answer_timer = None
        if not self._in_flight:
            return
        now_s = asyncio.get_running_loop().time()
        if self._watchdog.expired(now_s, planned_s, self._slowest_s(now_s)):
            self._lose("the codec worker hangs")
        else:
            self._expect_answer()

    def _lose(self, reason: str) -> None:
        """Fails every stream and reports the worker's death; only the first reason counts."""
        if self._description is None:
            return
        lost = EngineLost(reason)
        self._fail_all(lost)
        if self._on_death is not None:
            self._on_death(lost)

    def _fail_all(self, error: EngineLost) -> None:
        self._description = None
        self._in_flight.clear()
        self._answered.set()
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None
        for stream in self._streams.values():
            stream.fail(error)

    # Answers

    async def _read(self) -> None:
        """Delivers answers until the worker is gone."""
        try:
            while True:
                self._on_answer(*await self._read_answer())
        except (asyncio.IncompleteReadError, OSError):
            self._lose("the codec worker died")
        except (KeyError, ValueError) as error:
            self._lose(f"the codec worker sent an unexpected answer: {error!r}")

    async def _read_answer(self) -> tuple[AnswerKind, int, float, bytes]:
        kind, serial, micros, length = ANSWER_HEADER.unpack(await self._reader.readexactly(ANSWER_HEADER.size))
        return AnswerKind(kind), serial, micros * 1e-6, await self._reader.readexactly(length)

    def _on_answer(self, kind: AnswerKind, serial: int, seconds: float, payload: bytes) -> None:
        now_s = asyncio.get_running_loop().time()
        if kind is AnswerKind.TOOK:
            self.times.record(serial, seconds, now_s)
            return
        job = self._in_flight.pop(serial)
        self._watchdog.on_message(now_s, pending=bool(self._in_flight))
        self._answered.set()
        if job.on_restored is not None and kind is not AnswerKind.FAILED:
            job.on_restored(kind is AnswerKind.RESTORED)
        pcm: Pcm | None = None
        if job.buffer is not None:
            if kind is AnswerKind.PCM:
                pcm = self._buffers.read(job.buffer, len(job.streams), job.frames * FRAME_SAMPLES)
                self.times.record(len(job.streams) * job.frames, seconds, now_s)
            self._free_buffers.append(job.buffer)
        # The worker gets its next job first: with many listeners, delivering an answer takes milliseconds.
        if self._planning is not None:
            self._planning.cancel()
        self._dispatch()
        if pcm is not None:
            job.deliver(pcm)
        elif kind is AnswerKind.FAILED:
            job.fail(GenerationFailed(f"the codec could not decode: {payload.decode(errors='replace')}"))
