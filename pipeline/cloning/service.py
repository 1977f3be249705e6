"""Whose turn it is, over all processes of a gateway: what is done in a turn takes memory that is there once."""
# TODO-DOC What goes between the gateway and the process that makes one voice: a line of JSON, then bytes, either way.
# TODO-DOC Voices made beside the speech: one process a recording, one at a time, each with a deadline.

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass
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
from .store import StoredVoice, from_bytes

LOCK_POLL_S = 0.1
"""Pause between looks at whether another process has done."""


class CrossProcessLock:
    """One at a time, of all processes that know it by the same `name`; by none, of this one's.

    The name is an abstract socket's: the kernel gives the turn back when the process that has it dies.
    """

    def __init__(self, name: str | None = None) -> None:
        self._name = name
        self._here = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def taken(self, patience_s: float) -> AsyncIterator[None]:
        """Wait for it, and have it inside. Raises TimeoutError when it does not come within `patience_s` seconds."""
        with contextlib.ExitStack() as held:
            async with asyncio.timeout(patience_s):
                await self._here.acquire()
                held.callback(self._here.release)
                if self._name is not None:
                    held.enter_context(await _bound(self._name))
            yield


async def _bound(name: str) -> socket.socket:
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


_ERRORS: dict[str, type[VoxgateError]] = {
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
"""What may be wrong with a recording or a checkpoint; anything else is a failure of the process."""


@dataclass(frozen=True, slots=True)
class CloningJob:
    """`folder`: the checkpoint's; `checkpoint`: what it is called; the recording follows."""

    folder: str
    checkpoint: str
    draft: VoiceDraft
    max_bytes: int
    max_duration_s: float
    recording: bytes

    def to_bytes(self) -> bytes:
        head = asdict(self)
        recording: bytes = head.pop("recording")
        return json.dumps(head).encode() + b"\n" + recording

    @classmethod
    def from_bytes(cls, message: bytes) -> CloningJob:
        head, _, recording = message.partition(b"\n")
        values = json.loads(head)
        draft = values.pop("draft")
        draft["languages"] = tuple(draft["languages"])
        return cls(**values, draft=VoiceDraft(**draft), recording=recording)


def answer(voice_file: bytes) -> bytes:
    """The voice was made."""
    return b"{}\n" + voice_file


def error_answer(error: VoxgateError) -> bytes:
    """It was not."""
    return json.dumps({"code": error.code, "message": error.message, "param": error.param}).encode() + b"\n"


def voice_file_of(message: bytes) -> bytes:
    """The voice file of an answer. Raises the error that the process reported; CloningFailed when it said nothing."""
    head, line_feed, voice_file = message.partition(b"\n")
    if not line_feed:
        raise CloningFailed("the process that listens to recordings ended without an answer")
    report = json.loads(head)
    if report:
        kind = _ERRORS.get(report["code"], CloningFailed)
        raise kind(report["message"], param=report["param"])
    return voice_file


WORKER = (sys.executable, "-m", f"{__package__}.worker")
RETRY_MS = 5000

log = logging.getLogger(__name__)


class CloningService:
    """Makes voices with the Base checkpoint in `folder`, which is called `checkpoint`.

    The encoders are loaded for each voice anew: voices are made rarely, and between them they cost no memory. `turn`
    names what the processes of one gateway take turns by.
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
        command: Sequence[str] = WORKER,
        turn: str | None = None,
    ) -> None:
        self._folder, self._checkpoint = folder, checkpoint
        self.max_bytes, self._most_s = max_bytes, max_duration_s
        self._most_waiting, self._deadline_s = max_waiting, deadline_s
        self._command = command
        self._turn = CrossProcessLock(turn)
        self._under_way = 0

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A place in the short queue, to be taken before a recording is received. Raises AtCapacity."""
        if self._under_way > self._most_waiting:
            raise _busy()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def clone(self, draft: VoiceDraft, recording: bytes) -> StoredVoice:
        """Make a voice; call it inside `place`. Cancelling it stops the process.

        Raises BadVoice, UnusableAudio, CheckpointError, AtCapacity when its turn does not come, and CloningFailed at
        the deadline or for any other failure.
        """
        job = CloningJob(str(self._folder), self._checkpoint, draft.checked(), self.max_bytes, self._most_s, recording)
        try:
            async with self._turn.taken(self._deadline_s):
                answer = await self._answer(job)
        except TimeoutError:
            raise _busy() from None
        return from_bytes(voice_file_of(answer))

    async def _answer(self, job: CloningJob) -> bytes:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._run(job.to_bytes())
        except TimeoutError:
            raise CloningFailed(f"no voice was made within {self._deadline_s:g} s") from None

    async def _run(self, message: bytes) -> bytes:
        process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE)
        try:
            output, _ = await process.communicate(message)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                # The deadline or a cancellation came before; a killed process ends at once.
                await asyncio.shield(process.wait())
        if process.returncode:
            log.warning("the process that listens to recordings ended with %s", process.returncode)
        return output


def _busy() -> AtCapacity:
    return AtCapacity("other voices are being made; try again soon", retry_after_ms=RETRY_MS)
