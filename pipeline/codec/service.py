"""The codec service as the pipeline sees it: a worker that is started, watched and ended, and the slots in it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import uuid
from asyncio.subprocess import DEVNULL, Process
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from ..errors import AtCapacity, EngineError, EngineLost, EngineNotReady
from ..ipc.codec_wire import CodecWorkerOptions, Codes, Job
from .client import CodecClient, InFlightJob
from .stream import CodecStream

MAX_JOB_FRAMES = 8
"""Frames of a batch over all its rows: some 40 ms of work on one core, so that a new stream is soon heard."""
MAX_GPU_JOB_FRAMES = 128
"""On a GPU: a few milliseconds."""
GPU_BATCH_FRAMES = 256
"""On a GPU, of jobs of several processes together."""
PULSE_S = 1.0
"""With other processes speaking through the worker, it is asked for a sign of life so often."""


class CodecService(CodecClient):
    """Decodes up to `slots` streams at once in one worker: a process, or on a GPU a thread of the talker's process.

    `mode`: "stateful" (exact) or "overlap" with `left_context` frames re-decoded before each chunk.
    `threads`: of the worker's arithmetic. With `device` "cuda" it begins when whoever got the `in_process_options` serves it.
    `shared`: other processes may decode in it too, by way of `jobs_address`, in slots that were lent to them.
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
        shared: bool = False,
        on_death: Callable[[EngineLost], None] | None = None,
    ) -> None:
        if mode not in ("stateful", "overlap"):
            raise ValueError(f"unknown codec mode {mode!r}")
        if device != "cpu" and mode != "stateful":
            raise ValueError("on a GPU the codec decodes with state only")
        most_frames = max_job_frames or (MAX_JOB_FRAMES if device == "cpu" else MAX_GPU_JOB_FRAMES)
        super().__init__(slots, most_frames, job_deadline_s, on_death)
        self.batch_frames = most_frames if device == "cpu" else max(most_frames, GPU_BATCH_FRAMES)
        self.checkpoint_dir, self.mode = checkpoint_dir, mode
        self.left_context, self.threads, self.device = left_context, threads, device
        self._address = f"voxgate-codec-{uuid.uuid4().hex}"
        self._shared = shared
        self._start_deadline_s, self._close_deadline_s = start_deadline_s, close_deadline_s
        self._process: Process | None = None
        self._pulse: asyncio.Task[None] | None = None
        self._free = deque(range(slots))
        """The one that was left first is taken first; the last job in it is over by then."""

    @property
    def jobs_address(self) -> str:
        """The abstract socket by which other processes reach the worker once it is ready."""
        return self._options().jobs_address

    @property
    def pid(self) -> int | None:
        """The worker's process id while it is there."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Start the worker; returns when it is loaded and warm.

        Raises EngineError with the reason, leaving no process behind; so does cancelling.
        """
        if self._writer is not None:
            raise RuntimeError("the codec service was started already")
        try:
            async with asyncio.timeout(self._start_deadline_s):
                await self._launch()
                await self.greeted()
        except TimeoutError:
            await self.close()
            raise EngineError(f"the codec was not ready within {self._start_deadline_s:g} s") from None
        except (asyncio.IncompleteReadError, OSError) as error:
            await self.close()
            raise EngineError("the codec worker ended while it was starting") from error
        except BaseException:
            await self.close()
            raise
        if self._shared:
            self._pulse = asyncio.create_task(self._ask_again_and_again(), name="codec pulse")

    async def close(self) -> None:
        """End the worker, by force if need be; open streams raise EngineLost. Safe to call twice."""
        if self._pulse is not None:
            self._pulse.cancel()
        await super().close()
        await self._end_process()

    def open(self, *, paced: bool = True, context: Codes | None = None) -> CodecStream:
        """As `open_in`, in any free slot. Raises AtCapacity, EngineNotReady, ValueError."""
        self._check_free()
        stream = self.open_in(self._free[0], paced=paced, context=context)
        self._free.popleft()
        return stream

    def lease(self) -> int:
        """A free slot for another process. Raises AtCapacity, EngineNotReady."""
        self._check_free()
        return self._free.popleft()

    def reclaim(self, slot: int) -> None:
        """A slot that was lent, and that no job under way touches."""
        self._free.append(slot)

    def _check_free(self) -> None:
        if not self.ready:
            raise EngineNotReady("the codec is not running")
        if not self._free:
            raise AtCapacity(f"all {self.slots} codec slots are taken")

    def _release(self, stream: CodecStream) -> None:
        if self._streams.get(stream.slot) is stream:
            self._free.append(stream.slot)
        super()._release(stream)

    def _lose(self, reason: str) -> None:
        self._kill()
        super()._lose(reason)

    async def _ask_again_and_again(self) -> None:
        """Jobs of other processes are none of those that this one waits for: a job of nothing is."""
        nothing = np.zeros((0, 0, self.books), np.int16)
        while self.ready:
            if not self._in_flight:
                self._submit(Job(self._next_serial(), (), (), nothing), InFlightJob((), 0))
            await asyncio.sleep(PULSE_S)

    @property
    def in_process_options(self) -> str | None:
        """What a process that holds the GPU needs to serve this codec (`beside.py`), as JSON; None on a CPU."""
        return None if self.device == "cpu" else self._options().to_json()

    def _options(self, socket_fd: int = -1) -> CodecWorkerOptions:
        return CodecWorkerOptions(
            checkpoint_dir=str(self.checkpoint_dir),
            slots=self.slots,
            mode="stateful" if self.mode == "stateful" else "overlap",
            left_context=self.left_context,
            threads=self.threads,
            max_rows=self.slots,
            max_frames=self.max_job_frames,
            batch_frames=self.batch_frames,
            socket_fd=socket_fd,
            parent_pid=os.getpid(),
            device=self.device,
            address=self._address,
            shared=self._shared,
        )

    async def _launch(self) -> None:
        if self.device != "cpu":
            with socket.socket(socket.AF_UNIX) as door:
                door.setblocking(False)
                door.bind(f"\0{self._address}")
                door.listen(1)
                ours, _ = await asyncio.get_running_loop().sock_accept(door)
            self._sound.show(ours)
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
            return
        ours, theirs = socket.socketpair()
        with theirs:
            options = self._options(theirs.fileno())
            self._sound.show(ours)
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
