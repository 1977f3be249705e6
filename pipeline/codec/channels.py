"""The codec worker's sockets: receives jobs of several processes and sends answers, without waiting for any of them.

One worker decodes for all processes, so that chunks needed at the same time share a batch, whichever process they
belong to. A process that stops reading its answers is disconnected; the others are not affected.
"""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from voxgate.codecs.pcm import Pcm

from ..ipc.codec_wire import ANSWER_HEADER, JOB_HEADER, AnswerKind, Job
from ..ipc.pcm_buffers import SharedPcmBuffers
from ..ipc.peer_credentials import is_same_user

MAX_UNREAD_BYTES = 1 << 20
"""Answers that a process may leave unread. It has only a few jobs in flight, so more means that it no longer reads."""
_READ_BYTES = 1 << 20
_BACKLOG = 64
MAX_QUEUE_WAIT_S = 0.1
"""After this wait a job goes first. Longer chunks have time, but not more than this."""
YIELD_S = 0.008
"""Longest time for which a job waits for utterances that begin: mostly enough for their step and first frames, and
short against the frame of 80 ms that its own listener hears meanwhile."""
YIELD_FRAMES = 64
"""Frames of all jobs beyond which none waits for an utterance: the device has no time to spare."""
YIELD_POLL_S = 0.001
"""Interval of asking whether jobs still have to wait."""


class JobChannel:
    """The connection to one process that sends jobs."""

    def __init__(self, sock: socket.socket, codebooks: int) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.open = True
        self._codebooks = codebooks
        self._received = bytearray()
        self._unsent: deque[memoryview] = deque()
        self._unread_bytes = 0
        """Bytes of answers that the socket has not taken."""
        self._buffers: SharedPcmBuffers | None = None
        """The first message."""

    @property
    def has_unsent(self) -> bool:
        """Whether answers wait for the socket to be writable."""
        return bool(self._unsent)

    def read(self) -> list[Job]:
        """Returns the jobs that are complete now.

        Closes the channel at the end of the stream, or when its first message holds no shared buffers.
        """
        try:
            if self._buffers is None and (buffers := SharedPcmBuffers.receive_from(self.sock)) is not None:
                self._buffers = buffers
            # Each call gives up the interpreter lock. What a short one leaves behind, the selector reports.
            data, size = b"", _READ_BYTES
            while self._buffers is not None and size == _READ_BYTES:
                data = self.sock.recv(_READ_BYTES)
                self._received += data
                size = len(data)
            self.open = self.open and self._buffers is not None and bool(data)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.open = False
        jobs = []
        while len(self._received) >= JOB_HEADER.size:
            header = bytes(self._received[: JOB_HEADER.size])
            end = JOB_HEADER.size + Job.body_bytes(header, self._codebooks)
            if len(self._received) < end:
                break
            jobs.append(Job.unpack(header, bytes(self._received[JOB_HEADER.size : end]), self._codebooks))
            del self._received[:end]
        return jobs

    def answer_pcm(self, job: Job, pcm: Pcm, seconds: float) -> None:
        """Writes a job's audio, float32 [rows, samples], to its buffer and answers; FAILED when it does not fit."""
        try:
            if self._buffers is not None:
                self._buffers.write(job.buffer, pcm)
        except ValueError as error:
            self.answer(AnswerKind.FAILED, job.serial, str(error).encode())
        else:
            self.answer(AnswerKind.PCM, job.serial, b"", seconds)

    def answer(self, kind: AnswerKind, serial: int, payload: bytes | memoryview = b"", seconds: float = 0.0) -> None:
        """Sends an answer, now or when the socket is writable; never waits."""
        header = ANSWER_HEADER.pack(kind, serial, round(seconds * 1e6), len(payload))
        self._unsent += [memoryview(header), memoryview(payload)] if len(payload) else [memoryview(header)]
        self._unread_bytes += len(header) + len(payload)
        self.write()

    def write(self) -> None:
        """Sends what the socket takes now; closes the channel when too much is left over."""
        try:
            while self._unsent:
                sent = self.sock.sendmsg(list(self._unsent)[:16])
                self._unread_bytes -= sent
                while self._unsent and sent >= len(self._unsent[0]):
                    sent -= len(self._unsent.popleft())
                if sent:
                    self._unsent[0] = self._unsent[0][sent:]
        except (BlockingIOError, InterruptedError):
            self.open = self.open and self._unread_bytes <= MAX_UNREAD_BYTES
        except OSError:
            self.open = False


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job, the channel it came by, and when."""

    job: Job
    channel: JobChannel
    arrived_s: float = 0.0


def make_batch(queue: Iterable[QueuedJob], max_rows: int, max_frames: int, now_s: float = 0.0) -> list[QueuedJob]:
    """Chooses the jobs to decode next as one batch, from a queue in order of arrival.

    Short chunks go first: they are short because their listener is about to hear them (`planner.py`). A job that has
    waited for `MAX_QUEUE_WAIT_S` goes before them. Frames of a stream are decoded in order: no slot is twice in a
    batch, and no job overtakes one that has a slot in common with it.
    """
    eligible: list[QueuedJob] = []
    taken_slots: set[int] = set()
    for queued in queue:
        if taken_slots.isdisjoint(queued.job.slots):
            eligible.append(queued)
        taken_slots.update(queued.job.slots)
    first = min(eligible, key=lambda queued: queued.job.codes.shape[1])
    if now_s - eligible[0].arrived_s > MAX_QUEUE_WAIT_S:
        first = eligible[0]
    frames = first.job.codes.shape[1]
    batch, rows = [first], len(first.job.slots)
    for queued in eligible:
        more = len(queued.job.slots)
        if queued is first or queued.job.codes.shape[1] != frames:
            continue
        if rows + more <= max_rows and (rows + more) * frames <= max_frames:
            batch.append(queued)
            rows += more
    return batch


class JobChannels:
    """The channel of the process that owns the worker and, at an abstract socket, those of the same user's others.

    When the owner's channel closes, the worker ends.
    """

    def __init__(self, owner: socket.socket, address: str | None, greeting: bytes, codebooks: int) -> None:
        """`address`: abstract socket for other processes; None when there are none. `greeting`: payload of READY."""
        self._codebooks, self._greeting = codebooks, greeting
        self._selector = selectors.DefaultSelector()
        self._queue: deque[QueuedJob] = deque()
        self._channels: list[JobChannel] = []
        self._listener: socket.socket | None = None
        if address is not None:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(f"\0{address}")
            self._listener.listen(_BACKLOG)
            self._listener.setblocking(False)
            self._selector.register(self._listener, selectors.EVENT_READ, None)
        self.owner = self._add(owner)

    def next_batch(
        self,
        max_rows: int,
        max_frames: int,
        gather_s: float = 0.0,
        wait_s: float | None = None,
        yields: Callable[[float], bool] = lambda _: False,
    ) -> list[QueuedJob]:
        """Returns the jobs to decode next: of those that arrive within `gather_s`, or else the first to arrive.

        While `yields`, which is asked with the time by the monotonic clock, jobs wait that can; then the others that
        arrive are in their batch. Empty when the owner has closed its channel, and, if `wait_s` is given, when no job
        arrives within it after `gather_s` and while jobs wait.
        """
        self._gather(gather_s, wait_s)
        while (left_s := self._patience_s(now_s := time.monotonic())) > 0 and yields(now_s):
            self._poll(min(left_s, YIELD_POLL_S if wait_s is None else wait_s))
            if wait_s is not None:
                return []
        if not (self.owner.open and self._queue):
            return []
        batch = make_batch(self._queue, max_rows, max_frames, time.monotonic())
        taken = {id(queued) for queued in batch}
        self._queue = deque(queued for queued in self._queue if id(queued) not in taken)
        return batch

    def close(self) -> None:
        """Closes every socket."""
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]  # only sockets were registered
        self._selector.close()

    def _patience_s(self, now_s: float) -> float:
        """Seconds for which the jobs may still wait for utterances that begin; 0 without any."""
        if not (self.owner.open and self._queue):
            return 0.0
        jobs = [queued.job for queued in self._queue]
        frames = sum(len(job.slots) * job.codes.shape[1] for job in jobs)
        if frames > YIELD_FRAMES or any(job.urgent for job in jobs):
            return 0.0
        return max(0.0, self._queue[0].arrived_s + YIELD_S - now_s)

    def _gather(self, gather_s: float, wait_s: float | None) -> None:
        """Receives jobs for `gather_s`, then until there is one; for `wait_s` at most unless that is None."""
        end_s = time.monotonic() + gather_s
        while self.owner.open and (left_s := end_s - time.monotonic()) > 0:
            self._poll(left_s)
        self._poll(0.0)
        while self.owner.open and not self._queue:
            self._poll(wait_s)
            if wait_s is not None:
                break

    def _poll(self, timeout_s: float | None) -> None:
        """Receives what arrives within `timeout_s`, for which it may wait in vain; None waits without limit."""
        if timeout_s is not None:
            # epoll counts in milliseconds and rounds up.
            whole_ms = math.floor(1000 * timeout_s)
            if timeout_s > 0 and not whole_ms:
                time.sleep(timeout_s)
            timeout_s = whole_ms / 1000
        for key, events in self._selector.select(timeout_s):
            channel: JobChannel | None = key.data
            if channel is None:
                self._accept()
                continue
            if events & selectors.EVENT_WRITE:
                channel.write()
            if events & selectors.EVENT_READ:
                self._queue += [QueuedJob(job, channel, time.monotonic()) for job in channel.read()]
        for channel in list(self._channels):
            self._update(channel)

    def _accept(self) -> None:
        assert self._listener is not None  # only its events come without a channel
        # The peer may have gone, or there may be no descriptors left: the other channels go on.
        with suppress(OSError):
            sock = self._listener.accept()[0]
            if not is_same_user(sock):
                sock.close()
                return
            self._add(sock).answer(AnswerKind.READY, 0, self._greeting)

    def _add(self, sock: socket.socket) -> JobChannel:
        channel = JobChannel(sock, self._codebooks)
        self._channels.append(channel)
        self._selector.register(sock, selectors.EVENT_READ, channel)
        return channel

    def _update(self, channel: JobChannel) -> None:
        """Drops a closed channel; waits for a channel with unsent answers to be writable."""
        if not channel.open:
            if channel is not self.owner:
                self._channels.remove(channel)
                self._selector.unregister(channel.sock)
                channel.sock.close()
            # Its slots may have been leased to another process by now.
            self._queue = deque(queued for queued in self._queue if queued.channel is not channel)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.has_unsent else 0)
        if self._selector.get_key(channel.sock).events != wanted:
            self._selector.modify(channel.sock, wanted, channel)
