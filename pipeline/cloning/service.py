"""Makes voices from recordings in worker processes: one process per voice, one at a time, each with a deadline.

A job goes to the worker's standard input, the reply comes from its standard output: each one line of JSON, followed by
the recording or the voice file.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..errors import (
    AtCapacity,
    AudioTooLarge,
    AudioTooLong,
    AudioTooShort,
    BadVoice,
    CheckpointError,
    ClippedAudio,
    CloningFailed,
    SilentAudio,
    UnreadableAudio,
    VoxgateError,
)
from .creation import VoiceDraft
from .store import MAX_VOICE_FILE_BYTES, StoredVoice, parse_voice

WORKER_COMMAND = (sys.executable, "-P", "-m", f"{__package__}.worker")
"""-P: without the working directory among the folders of modules, which stay readable."""
_KEPT_VARIABLES = ("PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL")
RETRY_AFTER_MS = 5000
"""Suggested delay when the queue is full: a voice takes a few seconds."""
PART_BYTES = 1 << 18
"""Bytes that are written to a worker, or read from it, in one turn of the event loop."""
MAX_REPLY_BYTES = MAX_VOICE_FILE_BYTES + (1 << 16)
"""Maximum size of a worker's reply: a voice file and a line."""
LOCK_POLL_S = 0.1
"""Interval between two attempts to take a lock that another process holds."""

log = logging.getLogger(__name__)


class CloningService:
    """Makes voices with the Base checkpoint in `folder`; `checkpoint` is its name for the voices' origin.

    The encoders are loaded for each voice: voices are made rarely, and no memory is held in between. `lock_name`: the
    name of a `CrossProcessLock` that the processes of one gateway share; None for a single process.
    """

    def __init__(
        self,
        folder: Path,
        checkpoint: str,
        *,
        max_bytes: int,
        max_duration_s: float,
        max_waiting: int = 4,
        deadline_s: float = 120.0,
        command: Sequence[str] = WORKER_COMMAND,
        lock_name: str | None = None,
    ) -> None:
        self._folder, self._checkpoint = folder, checkpoint
        self.max_bytes, self._max_duration_s = max_bytes, max_duration_s
        self._max_waiting, self._deadline_s = max_waiting, deadline_s
        self._command = command
        self._lock = CrossProcessLock(lock_name)
        self._queued = 0

    @property
    def places(self) -> int:
        """Voices that may be received, wait or be made at once."""
        return self._max_waiting + 1

    @contextlib.contextmanager
    def queue_slot(self) -> Iterator[None]:
        """Occupy a slot of the short queue; to be entered before a recording is received. Raises AtCapacity."""
        if self._queued >= self.places:
            raise _at_capacity()
        self._queued += 1
        try:
            yield
        finally:
            self._queued -= 1

    async def clone(self, draft: VoiceDraft, recording: bytes | bytearray) -> StoredVoice:
        """Make a voice; call it inside `queue_slot`. Cancelling it kills the worker.

        Raises BadVoice, UnusableAudio, CheckpointError, AtCapacity when the lock is not acquired before the deadline,
        and CloningFailed when the worker exceeds the deadline or fails in any other way.
        """
        draft = draft.validated()
        folder = str(self._folder.absolute())
        job = CloningJob(folder, self._checkpoint, draft, self.max_bytes, self._max_duration_s, recording)
        try:
            async with self._lock.hold(self._deadline_s):
                reply = await self._run_with_deadline(job)
        except TimeoutError:
            raise _at_capacity() from None
        return parse_voice(parse_reply(reply))

    async def _run_with_deadline(self, job: CloningJob) -> bytes:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._run_worker(job)
        except TimeoutError:
            raise CloningFailed(f"the voice was not made within {self._deadline_s:g} s") from None

    async def _run_worker(self, job: CloningJob) -> bytes:
        # With the parent's pid the worker can tell whether the parent ended before it could watch it.
        command = (*self._command, str(os.getpid()))
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=worker_environment())
        assert process.stdin is not None, "it is a pipe"
        assert process.stdout is not None, "it is a pipe"
        try:
            with contextlib.suppress(ConnectionError):  # a worker that ended early has told why, or has not
                for part in job.parts():
                    process.stdin.write(part)
                    await process.stdin.drain()
            process.stdin.close()
            output = await _read_reply(process.stdout)
            await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                # Shielded from a second cancellation; a killed process ends at once.
                await asyncio.shield(process.wait())
        if process.returncode:
            log.warning("cloning worker exited with status %s", process.returncode)
        return output


async def _read_reply(stream: asyncio.StreamReader) -> bytes:
    """Everything that a worker writes. Raises CloningFailed when it is longer than any reply."""
    reply = bytearray()
    while part := await stream.read(PART_BYTES):
        reply += part
        if len(reply) > MAX_REPLY_BYTES:
            raise CloningFailed(f"the cloning worker's reply exceeds {MAX_REPLY_BYTES} bytes")
    return bytes(reply)


def worker_environment() -> dict[str, str]:
    """The environment of a worker: where libraries are, one thread for each of them, and nothing else of this one."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _at_capacity() -> AtCapacity:
    return AtCapacity("other voices are being made; try again later", retry_after_ms=RETRY_AFTER_MS, reached="uploads")


@dataclass(frozen=True, slots=True)
class CloningJob:
    """What a worker needs to make one voice: the checkpoint's folder and name, the recording and its limits."""

    folder: str
    checkpoint: str
    draft: VoiceDraft
    max_bytes: int
    max_duration_s: float
    recording: bytes | bytearray

    def parts(self) -> Iterator[bytes | memoryview]:
        """The message to the worker, in parts: copying a recording as a whole would hold the event loop."""
        head = asdict(replace(self, recording=b""))
        del head["recording"]
        yield json.dumps(head).encode() + b"\n"
        recording = memoryview(self.recording)
        for start in range(0, len(recording), PART_BYTES):
            yield recording[start : start + PART_BYTES]

    @classmethod
    def from_bytes(cls, message: bytes) -> CloningJob:
        """The job in a message."""
        head, _, recording = message.partition(b"\n")
        values = json.loads(head)
        draft = values.pop("draft")
        draft["languages"] = tuple(draft["languages"])
        return cls(**values, draft=VoiceDraft(**draft), recording=recording)


_REPORTABLE_ERRORS: dict[str, type[VoxgateError]] = {
    error.code: error
    for error in (
        AudioTooLarge,
        AudioTooLong,
        AudioTooShort,
        BadVoice,
        CheckpointError,
        ClippedAudio,
        SilentAudio,
        UnreadableAudio,
    )
}
"""Faults of a recording or a checkpoint, by code; any other error is a failure of the worker."""


def success_reply(voice_file: bytes) -> bytes:
    """The worker's reply with the voice."""
    return b"{}\n" + voice_file


def error_reply(error: VoxgateError) -> bytes:
    """The worker's reply with an error."""
    return json.dumps({"code": error.code, "message": error.message, "param": error.param}).encode() + b"\n"


def parse_reply(message: bytes) -> bytes:
    """The voice file in a reply. Raises the error in it, and CloningFailed for an incomplete reply."""
    head, line_feed, voice_file = message.partition(b"\n")
    if not line_feed:
        raise CloningFailed("the cloning worker ended without a reply")
    error = json.loads(head)
    if error:
        kind = _REPORTABLE_ERRORS.get(error["code"], CloningFailed)
        raise kind(error["message"], param=error["param"])
    return voice_file


class CrossProcessLock:
    """A lock held by at most one task of all processes that use the same `name`; None: of this process alone.

    The lock is an abstract Unix socket bound to the name, which the kernel releases when the process ends.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self._local = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def hold(self, timeout_s: float) -> AsyncIterator[None]:
        """Acquire the lock, and release it at the end of the block. Raises TimeoutError after `timeout_s` seconds."""
        with contextlib.ExitStack() as held:
            async with asyncio.timeout(timeout_s):
                await self._local.acquire()
                held.callback(self._local.release)
                if self._name is not None:
                    held.enter_context(await _bind(self._name))
            yield


async def _bind(name: str) -> socket.socket:
    """A socket bound to the abstract name, as soon as no other process holds it."""
    while True:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.bind(f"\0{name}")
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise
            await asyncio.sleep(LOCK_POLL_S)
        else:
            return sock
