"""The codec service as the pipeline sees it: streams to push codes into, decoded together in a process.

The gateway's event loop plans the batches and only moves bytes; all arithmetic is in the worker. Two jobs are
kept under way, so that the worker finds the next one waiting when it has answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import uuid
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import AtCapacity, EngineError, EngineLost, EngineNotReady, GenerationFailed
from ..step_times import StepTimes
from .options import WorkerOptions
from .planner import plan
from .stream import CodecStream
from .wire import ANSWER_HEADER, Announcement, AnswerKind, Codes, Job

JOBS_IN_FLIGHT = 2
MAX_JOB_FRAMES = 8
"""Frames of a batch over all its rows: some 40 ms of work on one core, so that a new stream is soon heard."""
MAX_GPU_JOB_FRAMES = 128
"""On a GPU: a few milliseconds."""


@dataclass(frozen=True, slots=True)
class _InFlight:
    streams: tuple[CodecStream, ...]
    frames: int


class CodecService:
    """Decodes up to `slots` streams at once in one worker: a process, or on a GPU a thread of the talker's process.

    `mode`: "stateful" (exact) or "overlap" with `left_context` frames re-decoded before each chunk.
    `threads`: of the worker's arithmetic. With `device` "cuda" it begins when whoever got the `invitation` serves it.
    `on_death` is called once when the worker dies or hangs by itself, after every stream was failed.
    """

    def __init__(
        self,
        checkpoint_dir: Path,
        *,
        slots: int,
        mode: str = "stateful",
        left_context: int = 72,
        threads: int = 1,
        device: str = "cpu",
        max_job_frames: int | None = None,
        start_deadline_s: float = 60.0,
        job_deadline_s: float = 5.0,
        close_deadline_s: float = 2.0,
        on_death: Callable[[EngineLost], None] | None = None,
    ) -> None:
        if mode not in ("stateful", "overlap"):
            raise ValueError(f"unknown codec mode {mode!r}")
        if device != "cpu" and mode != "stateful":
            raise ValueError("on a GPU the codec decodes with state only")
        self.checkpoint_dir, self.slots, self.mode = checkpoint_dir, slots, mode
        self.left_context, self.threads, self.device = left_context, threads, device
        self.max_job_frames = max_job_frames or (MAX_JOB_FRAMES if device == "cpu" else MAX_GPU_JOB_FRAMES)
        self._start_deadline_s, self._job_deadline_s = start_deadline_s, job_deadline_s
        self._close_deadline_s = close_deadline_s
        self._on_death = on_death
        self._process: Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._address = f"voxgate-codec-{uuid.uuid4().hex}"
        self._about: Announcement | None = None
        self._reading: asyncio.Task[None] | None = None
        self._streams: dict[int, CodecStream] = {}
        self._free = list(range(slots - 1, -1, -1))
        self._in_flight: dict[int, _InFlight] = {}
        self._serial = 0
        self._planning: asyncio.Handle | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self.times = StepTimes()
        """What its jobs take, by the number of frames over all rows."""

    @property
    def pid(self) -> int | None:
        """The worker's process id while it is there."""
        return self._process.pid if self._process and self._process.returncode is None else None

    @property
    def ready(self) -> bool:
        return self._about is not None

    async def start(self) -> None:
        """Start the worker; returns when it is loaded and warm.

        Raises EngineError with the reason, leaving no process behind; so does cancelling.
        """
        if self._writer is not None:
            raise RuntimeError("the codec service was started already")
        try:
            async with asyncio.timeout(self._start_deadline_s):
                await self._launch()
                kind, _, _, payload = await self._read_answer()
        except TimeoutError:
            await self.close()
            raise EngineError(f"the codec was not ready within {self._start_deadline_s:g} s") from None
        except (asyncio.IncompleteReadError, OSError) as error:
            await self.close()
            raise EngineError("the codec worker ended while it was starting") from error
        except asyncio.CancelledError:
            await self.close()
            raise
        if kind is not AnswerKind.READY:
            await self.close()
            raise EngineError(f"the codec cannot start: {payload.decode(errors='replace')}")
        self._about = Announcement(**json.loads(payload))
        self._reading = asyncio.create_task(self._read(), name="codec answers")

    async def close(self) -> None:
        """End the worker, by force if need be; open streams raise EngineLost. Safe to call twice."""
        self._fail_all(EngineLost("the codec was closed"))
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        await self._end_process()

    def open(self, *, paced: bool = True, context: Codes | None = None) -> CodecStream:
        """A new stream in a free slot; `paced` when it is heard as it is decoded, not as fast as it is made.

        `context`: int16 [n, 16] whose audio the stream goes on from, without giving it out. Raises AtCapacity,
        EngineNotReady, ValueError for a context that is none of this codec's.
        """
        if context is not None:
            context = self._checked(context)
        if self._about is None:
            raise EngineNotReady("the codec is not running")
        if not self._free:
            raise AtCapacity(f"all {self.slots} codec slots are taken")
        slot = self._free.pop()
        stream = CodecStream(slot, self._checked, self._plan_soon, self._release, paced=paced, context=context)
        self._streams[slot] = stream
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
            self._free.append(stream.slot)

    def _plan_soon(self) -> None:
        """Plan once this turn of the loop is over: streams pushed to in the same turn share a batch."""
        if self._planning is None and self._about is not None:
            self._planning = asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._planning = None
        now_s = asyncio.get_running_loop().time()
        while self._about is not None and len(self._in_flight) < JOBS_IN_FLIGHT:
            # Most streams wait for frames at any one moment; looking at each would cost more than all the rest.
            views = (stream.view(now_s) for stream in self._streams.values() if stream.pending)
            batch = plan(views, max_rows=self.slots, max_frames=self.max_job_frames)
            if batch is None:
                return
            streams = tuple(self._streams[slot] for slot in batch.slots)
            self._serial = (self._serial + 1) & 0xFFFF_FFFF
            taken = (stream.take(batch.frames, self._serial, now_s) for stream in streams)
            codes, resets = zip(*taken, strict=True)
            self._in_flight[self._serial] = _InFlight(streams, batch.frames)
            assert self._writer is not None
            self._writer.write(Job(self._serial, batch.slots, resets, np.stack(codes)).pack())
            if self._overdue is None:
                self._expect_answer()

    def _expect_answer(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
        self._overdue = None
        if self._in_flight:
            loop = asyncio.get_running_loop()
            # What is slow does not hang: two jobs may lie before the one that is waited for.
            slowest_s = self.times.curve(loop.time()).at(self.max_job_frames) or 0.0
            deadline_s = self._job_deadline_s + 4 * slowest_s
            self._overdue = loop.call_later(deadline_s, self._lose, "the codec worker hangs")

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
        self._kill()
        if self._on_death is not None:
            self._on_death(lost)

    def _accept(self, kind: AnswerKind, serial: int, seconds: float, payload: bytes) -> None:
        job = self._in_flight.pop(serial)
        if kind is AnswerKind.PCM:
            self.times.record(len(job.streams) * job.frames, seconds, asyncio.get_running_loop().time())
            pcm = np.frombuffer(payload, dtype="<f4").reshape(len(job.streams), -1)
            for stream, row in zip(job.streams, pcm, strict=True):
                if np.isfinite(row).all():
                    stream.deliver(row, job.frames)
                else:
                    # A stream's history holds on to what is no number; other streams have their own.
                    stream.fail(GenerationFailed("the codec could not decode the speech"))
        else:
            for stream in job.streams:
                stream.fail(GenerationFailed(f"the codec could not decode: {payload.decode(errors='replace')}"))
        self._expect_answer()
        self._plan_soon()

    async def _read_answer(self) -> tuple[AnswerKind, int, float, bytes]:
        kind, serial, micros, length = ANSWER_HEADER.unpack(await self._reader.readexactly(ANSWER_HEADER.size))
        return AnswerKind(kind), serial, micros * 1e-6, await self._reader.readexactly(length)

    def _fail_all(self, error: EngineLost) -> None:
        self._about = None
        self._in_flight.clear()
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        for stream in self._streams.values():
            stream.fail(error)

    @property
    def invitation(self) -> str | None:
        """What a process that holds the GPU needs to serve this codec (`beside.py`), as JSON; None on a CPU."""
        return None if self.device == "cpu" else self._options().to_json()

    def _options(self, socket_fd: int = -1) -> WorkerOptions:
        return WorkerOptions(
            checkpoint_dir=str(self.checkpoint_dir),
            slots=self.slots,
            mode="stateful" if self.mode == "stateful" else "overlap",
            left_context=self.left_context,
            threads=self.threads,
            max_rows=self.slots,
            max_frames=self.max_job_frames,
            socket_fd=socket_fd,
            parent_pid=os.getpid(),
            device=self.device,
            address=self._address,
        )

    async def _launch(self) -> None:
        if self.device != "cpu":
            with socket.socket(socket.AF_UNIX) as door:
                door.setblocking(False)
                door.bind(f"\0{self._address}")
                door.listen(1)
                ours, _ = await asyncio.get_running_loop().sock_accept(door)
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
            return
        ours, theirs = socket.socketpair()
        with theirs:
            options = self._options(theirs.fileno())
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"{__package__}.worker",
                options.to_json(),
                stdin=DEVNULL,
                pass_fds=(theirs.fileno(),),
            )

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _end_process(self) -> None:
        if self._writer is not None:
            self._writer.close()  # the worker ends at the closed socket
        if self._process is None:
            return
        try:
            async with asyncio.timeout(self._close_deadline_s):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            self._kill()
        await self._process.wait()
