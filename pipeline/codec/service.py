"""The codec service as the pipeline sees it: starts, watches and ends the worker, and assigns its slots."""

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
from voxgate.codecs.neural.config import CodecMode, DecoderConfig

from ..errors import AtCapacity, EngineError, EngineLost, EngineNotReady
from ..ipc.codec_wire import CodecWorkerOptions, Job
from .client import CodecClient, InFlightJob
from .stream import CodecContext, CodecStream

MAX_JOB_FRAMES = 8
"""Frames of a batch over all its rows on a CPU: about 40 ms of work on one core, so that a new stream starts soon."""
FEW_GPU_SLOTS = 128
"""Streams of a small GPU (`talker/vllm/gpu_memory.py`)."""
FEW_SLOTS_JOB_FRAMES, GPU_JOB_FRAMES = 64, 256
"""Frames of a job on a GPU, and of a batch that joins jobs of several processes: a few milliseconds of work. With few
slots and with more, which takes several GB more (`talker/vllm/gpu_memory.py`)."""
MAX_GPU_LEFT_CONTEXT = 120
"""Frames of overlap on a GPU: its attention kernel holds a window, context and chunk, of at most 128 frames."""
HEARTBEAT_S = 1.0
"""Interval of asking a shared worker for a sign of life: jobs of other processes are not answered to this one."""


class CodecService(CodecClient):
    """Decodes up to `slots` streams at once in one worker: a process, or on a GPU a thread of the talker's process."""

    def __init__(
        self,
        checkpoint_dir: Path,
        *,
        slots: int,
        codec_mode: CodecMode = "stateful",
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
        """`codec_mode`: "stateful" (exact), or "overlap" with `left_context` frames decoded again before each chunk.

        `threads`: CPU threads, among which the streams of a batch are divided. With `device` "cuda" the worker starts
        when the process that holds the GPU is given `in_process_options`. `shared`: other processes decode in it too,
        at `jobs_address`, in slots leased to them. `on_death` is called once when the worker dies or hangs by itself,
        after every stream was failed. For overlap on a GPU, raises
        CodecFormatError for an unreadable checkpoint and ValueError for more than MAX_GPU_LEFT_CONTEXT frames.
        """
        job_frames = MAX_JOB_FRAMES
        if device != "cpu":
            job_frames = FEW_SLOTS_JOB_FRAMES if slots <= FEW_GPU_SLOTS else GPU_JOB_FRAMES
            if codec_mode == "overlap":
                if left_context > MAX_GPU_LEFT_CONTEXT:
                    raise ValueError(
                        f"left_context must be at most {MAX_GPU_LEFT_CONTEXT} on a GPU, got {left_context}"
                    )
                reach = min(left_context, DecoderConfig.from_checkpoint(checkpoint_dir).vocoder_left_context)
                job_frames = _overlap_frames(job_frames, reach)
        super().__init__(slots, max_job_frames or job_frames, job_deadline_s, on_death)
        self.checkpoint_dir, self.codec_mode = checkpoint_dir, codec_mode
        self.left_context, self.threads, self.device = left_context, threads, device
        self._address = f"voxgate-codec-{uuid.uuid4().hex}"
        self._shared = shared
        self._start_deadline_s, self._close_deadline_s = start_deadline_s, close_deadline_s
        self._process: Process | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self._free = deque(range(slots))
        """The slot that was returned first is taken first; its last job has been answered by then."""

    @property
    def jobs_address(self) -> str:
        """The abstract socket by which other processes reach the worker once it is ready."""
        return self._options().jobs_address

    @property
    def pid(self) -> int | None:
        """The process id of the worker while its process runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    @property
    def in_process_options(self) -> str | None:
        """What the process that holds the GPU needs to serve this codec (`worker.serve_in_process`), as JSON.

        None on a CPU, where the codec has a process of its own.
        """
        return None if self.device == "cpu" else self._options().to_json()

    async def start(self) -> None:
        """Starts the worker; returns when it is loaded and warm.

        Raises EngineError with the reason. After an error or a cancellation no process is left behind.
        """
        if self._writer is not None:
            raise RuntimeError("the codec service was started already")
        try:
            async with asyncio.timeout(self._start_deadline_s):
                await self._launch()
                await self.read_greeting()
        except TimeoutError:
            await self.close()
            raise EngineError(f"the codec was not ready within {self._start_deadline_s:g} s") from None
        except (asyncio.IncompleteReadError, OSError) as error:
            await self.close()
            raise EngineError("the codec worker ended during its start") from error
        except BaseException:
            await self.close()
            raise
        if self._shared:
            self._heartbeat = asyncio.create_task(self._send_heartbeats(), name="codec heartbeat")

    async def close(self) -> None:
        """Ends the worker, by force after the deadline; open streams raise EngineLost. Safe to call twice."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        await super().close()
        await self._end_process()

    def open(self, *, paced: bool = True, context: CodecContext | None = None) -> CodecStream:
        """Opens a stream in any free slot; see `open_in`. Raises AtCapacity, EngineNotReady, ValueError."""
        self._check_free()
        stream = self.open_in(self._free[0], paced=paced, context=context)
        self._free.popleft()
        return stream

    def lease(self) -> int:
        """Takes a free slot for another process. Raises AtCapacity, EngineNotReady."""
        self._check_free()
        return self._free.popleft()

    def reclaim(self, slot: int) -> None:
        """Returns a leased slot, in which no job is in flight."""
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

    async def _send_heartbeats(self) -> None:
        """Sends a job without rows whenever no job of this process is in flight, for the watchdog to watch."""
        nothing = np.zeros((0, 0, self.codebooks), np.int16)
        while self.ready:
            if not self._in_flight:
                self._submit(Job(self._next_serial(), (), (), nothing, urgent=True), InFlightJob((), 0))
            await asyncio.sleep(HEARTBEAT_S)

    def _options(self, socket_fd: int = -1) -> CodecWorkerOptions:
        return CodecWorkerOptions(
            checkpoint_dir=str(self.checkpoint_dir),
            slots=self.slots,
            codec_mode=self.codec_mode,
            left_context=self.left_context,
            threads=self.threads,
            max_rows=self.slots,
            max_frames=self.max_job_frames,
            socket_fd=socket_fd,
            parent_pid=os.getpid(),
            device=self.device,
            address=self._address,
            shared=self._shared,
        )

    async def _launch(self) -> None:
        if self.device == "cpu":
            await self._launch_process()
        else:
            await self._accept_thread()

    async def _launch_process(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            options = self._options(theirs.fileno())
            self._buffers.send_to(ours)
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"{__package__}.worker",
                options.to_json(),
                stdin=DEVNULL,
                pass_fds=(theirs.fileno(),),
            )

    async def _accept_thread(self) -> None:
        """Waits for the worker's thread of another process to connect."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.setblocking(False)
            listener.bind(f"\0{self._address}")
            listener.listen(1)
            channel, _ = await asyncio.get_running_loop().sock_accept(listener)
        self._buffers.send_to(channel)
        self._reader, self._writer = await asyncio.open_connection(sock=channel)

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


def _overlap_frames(frames: int, reach: int) -> int:
    """Returns how many frames of overlap decoding are at most as much work and memory as `frames` of stateful decoding.

    The vocoder decodes `reach` frames again before each chunk. The result is a power of two, as are the captured
    batch shapes.
    """
    return 1 << (max(1, frames // (1 + reach)).bit_length() - 1)
