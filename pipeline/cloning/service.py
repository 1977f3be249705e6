"""Voices made beside the speech: one process a recording, one at a time, each with a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import AtCapacity, CloningFailed
from .job import CloningJob, voice_file_of
from .making import VoiceDraft
from .turn import Turn
from .voice_file import StoredVoice, from_bytes

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
        most_bytes: int,
        most_s: float,
        most_waiting: int = 4,
        deadline_s: float = 120.0,
        command: Sequence[str] = WORKER,
        turn: str | None = None,
    ) -> None:
        self._folder, self._checkpoint = folder, checkpoint
        self.most_bytes, self._most_s = most_bytes, most_s
        self._most_waiting, self._deadline_s = most_waiting, deadline_s
        self._command = command
        self._turn = Turn(turn)
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
        job = CloningJob(str(self._folder), self._checkpoint, draft.checked(), self.most_bytes, self._most_s, recording)
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
