"""The codec worker's sockets: jobs of several processes in, answers out, none of them waited for.

One decodes for all, so that what many listeners need at a time is one batch, whichever process they belong to. A
process that stops reading its answers is cut off; the others hear nothing of it.
"""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from voxgate.codecs.pcm import Pcm

from ..ipc.codec_wire import ANSWER_HEADER, JOB_HEADER, AnswerKind, Job
from ..ipc.pcm_buffers import SharedPcmBuffers
from ..ipc.peer_credentials import is_same_user

UNREAD_BYTES = 1 << 20
"""Answers that a process may leave unread; it has no more than a few jobs under way, so it has gone astray."""
_READ_BYTES = 1 << 20
MAX_QUEUE_WAIT_S = 0.1
"""A chunk is made long where there is time for it, but not more than this."""


class JobChannel:
    """One process at the other end."""

    def __init__(self, sock: socket.socket, books: int) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._books = books
        self._in = bytearray()
        self._out: deque[memoryview] = deque()
        self._unread = 0
        self._sound: SharedPcmBuffers | None = None
        """What it showed at first."""
        self.open = True

    @property
    def full(self) -> bool:
        """Something waits to be written."""
        return bool(self._out)

    def read(self) -> list[Job]:
        """The jobs that are complete now; marks the channel closed at its end, or when it began with no memory."""
        try:
            if self._sound is None and (sound := SharedPcmBuffers.join(self.sock)) is not None:
                self._sound = sound
            while self._sound is not None and (data := self.sock.recv(_READ_BYTES)):
                self._in += data
            self.open = False
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.open = False
        jobs = []
        while len(self._in) >= JOB_HEADER.size:
            header = bytes(self._in[: JOB_HEADER.size])
            end = JOB_HEADER.size + Job.body_bytes(header, self._books)
            if len(self._in) < end:
                break
            jobs.append(Job.unpack(header, bytes(self._in[JOB_HEADER.size : end]), self._books))
            del self._in[:end]
        return jobs

    def answer_sound(self, job: Job, pcm: Pcm, seconds: float) -> None:
        """Put a job's sound where it belongs, and say so."""
        try:
            if self._sound is not None:
                self._sound.write(job.place, pcm)
        except ValueError as error:
            self.answer(AnswerKind.FAILED, job.serial, str(error).encode())
        else:
            self.answer(AnswerKind.PCM, job.serial, b"", seconds)

    def answer(self, kind: AnswerKind, serial: int, payload: bytes | memoryview = b"", seconds: float = 0.0) -> None:
        """Send, now or when there is room; never waits."""
        header = ANSWER_HEADER.pack(kind, serial, round(seconds * 1e6), len(payload))
        self._out += [memoryview(header), memoryview(payload)] if len(payload) else [memoryview(header)]
        self._unread += len(header) + len(payload)
        self.write()

    def write(self) -> None:
        """Send what waits, as far as it goes."""
        try:
            while self._out:
                sent = self.sock.sendmsg(list(self._out)[:16])
                self._unread -= sent
                while self._out and sent >= len(self._out[0]):
                    sent -= len(self._out.popleft())
                if sent:
                    self._out[0] = self._out[0][sent:]
        except (BlockingIOError, InterruptedError):
            self.open = self.open and self._unread <= UNREAD_BYTES
        except OSError:
            self.open = False


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job, whose it is, and when it came."""

    job: Job
    channel: JobChannel
    since_s: float = 0.0


def together(waiting: Iterable[QueuedJob], max_rows: int, max_frames: int, now_s: float = 0.0) -> list[QueuedJob]:
    """Of the jobs that wait, in order of arrival, those to be decoded next, as one batch.

    Short chunks go first: they are short because somebody is about to hear them (`planner.py`). What has waited for
    `MAX_QUEUE_WAIT_S` goes before all. A stream's frames come one after another: no slot is twice in a batch, and no job
    overtakes one that has a slot in common with it.
    """
    free: list[QueuedJob] = []
    seen: set[int] = set()
    for asked in waiting:
        if seen.isdisjoint(asked.job.slots):
            free.append(asked)
        seen.update(asked.job.slots)
    first = min(free, key=lambda asked: asked.job.codes.shape[1])
    if now_s - free[0].since_s > MAX_QUEUE_WAIT_S:
        first = free[0]
    frames = first.job.codes.shape[1]
    taken, rows = [first], len(first.job.slots)
    for asked in free:
        more = len(asked.job.slots)
        if asked is first or asked.job.codes.shape[1] != frames:
            continue
        if rows + more <= max_rows and (rows + more) * frames <= max_frames:
            taken.append(asked)
            rows += more
    return taken


class JobChannels:
    """The owner's channel and, through an abstract socket, those of the same user's other processes.

    The owner's end is the end of all.
    """

    def __init__(self, owner: socket.socket, address: str | None, greeting: bytes, books: int) -> None:
        self._books, self._greeting = books, greeting
        self._selector = selectors.DefaultSelector()
        self._waiting: deque[QueuedJob] = deque()
        self._channels: list[JobChannel] = []
        self._door: socket.socket | None = None
        if address is not None:
            self._door = socket.socket(socket.AF_UNIX)
            self._door.bind(f"\0{address}")
            self._door.listen(64)
            self._door.setblocking(False)
            self._selector.register(self._door, selectors.EVENT_READ, None)
        self.owner = self._take_in(owner)

    def next_batch(
        self, max_rows: int, max_frames: int, gather_s: float = 0.0, wait_s: float | None = None
    ) -> list[QueuedJob]:
        """Jobs to be decoded next, together: of those that come within `gather_s`, or else the first to come.

        Empty when the owner has gone, and when none comes within `wait_s` after that.
        """
        end_s = time.monotonic() + gather_s
        while self.owner.open and (left_s := end_s - time.monotonic()) > 0:
            self._look(left_s)
        self._look(0.0)
        while self.owner.open and not self._waiting:
            self._look(wait_s)
            if wait_s is not None:
                break
        if not (self.owner.open and self._waiting):
            return []
        batch = together(self._waiting, max_rows, max_frames, time.monotonic())
        taken = {id(asked) for asked in batch}
        self._waiting = deque(asked for asked in self._waiting if id(asked) not in taken)
        return batch

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]  # only sockets were registered
        self._selector.close()

    def _take_in(self, sock: socket.socket) -> JobChannel:
        channel = JobChannel(sock, self._books)
        self._channels.append(channel)
        self._selector.register(sock, selectors.EVENT_READ, channel)
        return channel

    def _look(self, timeout_s: float | None) -> None:
        """Take what has come; waits for it no longer than that, and shorter where that is not a whole millisecond."""
        if timeout_s is not None:
            # epoll knows of no less, and waits for a whole one where it is told less.
            whole_ms = math.floor(1000 * timeout_s)
            if timeout_s > 0 and not whole_ms:
                time.sleep(timeout_s)
            timeout_s = whole_ms / 1000
        for key, events in self._selector.select(timeout_s):
            channel: JobChannel | None = key.data
            if channel is None:
                self._let_in()
                continue
            if events & selectors.EVENT_WRITE:
                channel.write()
            if events & selectors.EVENT_READ:
                self._waiting += [QueuedJob(job, channel, time.monotonic()) for job in channel.read()]
        for channel in list(self._channels):
            self._tend(channel)

    def _let_in(self) -> None:
        assert self._door is not None
        with suppress(OSError):  # it went away, or there are no descriptors left: the others go on
            sock = self._door.accept()[0]
            if not is_same_user(sock):
                sock.close()
                return
            self._take_in(sock).answer(AnswerKind.READY, 0, self._greeting)

    def _tend(self, channel: JobChannel) -> None:
        """Forget one that is gone; look for room to write where something waits."""
        if not channel.open:
            if channel is not self.owner:
                self._channels.remove(channel)
                self._selector.unregister(channel.sock)
                channel.sock.close()
            # Its slots may be somebody else's by now.
            self._waiting = deque(asked for asked in self._waiting if asked.channel is not channel)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.full else 0)
        if self._selector.get_key(channel.sock).events != wanted:
            self._selector.modify(channel.sock, wanted, channel)
