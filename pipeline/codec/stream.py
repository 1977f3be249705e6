"""One utterance's stream through the codec: codes are pushed in, runs of audio are iterated out, both in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import numpy as np
from voxgate.codecs.pcm import FRAME_MS, Pcm

from ..errors import EngineError, GenerationFailed
from ..ipc.codec_wire import Codes
from .planner import StreamView


class CodecStream:
    """A slot of the codec until `aclose`. Not thread-safe; every method belongs to the event loop.

    Frames are counted from the first that was pushed; those of a context come before it.

    Iterate it for runs of audio, float32 [n * 1920] in [-1, 1], 24 kHz mono; the iteration ends after the last frame
    once `finish` was called. It raises EngineLost when the worker dies and GenerationFailed when the codes of this
    stream could not be decoded. Cancelling an iteration loses nothing.
    """

    def __init__(
        self,
        slot: int,
        check: Callable[[Codes], Codes],
        changed: Callable[[], None],
        release: Callable[[CodecStream], None],
        *,
        paced: bool = True,
        context: Codes | None = None,
        context_frames: int = 0,
        external_first_frame: bool = True,
    ) -> None:
        """`context`: int16 [n, codebooks] that the stream continues; decoded first, its audio is discarded.

        `context_frames`: how many frames another stream has to repeat to go on with the audio of this one.

        `external_first_frame`: whether another process may decode the first frame in this slot: the codec keeps state
        there, and no job in flight has a row in it for the previous stream.
        """
        self.slot = slot
        self.closed = False
        self.context_frames = context_frames
        self.paced, self._external_first_frame = paced, external_first_frame
        self._check, self._changed, self._release = check, changed, release
        self._codes: deque[Codes] = deque()
        self._pending = self._decoded = self._heard = self._served = 0
        self._began_s = 0.0
        """When the first frames after the context were taken."""
        self._finished = False
        self._audio: deque[Pcm] = deque()
        self._undelivered = 0
        """Frames of which the audio is still to come."""
        self._error: EngineError | None = None
        self._wakeup = asyncio.Event()
        self._context = self._context_undelivered = 0
        if context is not None:
            self.push(context)
            self._context = self._context_undelivered = self._pending

    @property
    def first_frame_slot(self) -> int | None:
        """The slot, while the engine that makes the first frame may decode it there at once; otherwise None.

        It may not for a stream that is not paced: its frames wait for those that are heard.
        """
        begun = self._decoded or self._pending or self.closed
        return self.slot if self.paced and self._external_first_frame and not begun else None

    def push(self, codes: Codes, *, decoded: bool = False) -> None:
        """Appends int16 [n, codebooks]; the caller bounds how many frames are pending.

        `decoded`: the engine decoded them in this slot already, and their audio comes by `push_pcm`. Raises ValueError
        for a wrong shape, a code outside the codebook, or a finished stream; then nothing was taken.
        """
        if self._finished:
            raise ValueError("the stream is finished")
        codes = self._check(codes)
        if self.closed or not len(codes):
            return
        if decoded:
            self._decoded += len(codes)
            self._undelivered += len(codes)
            return
        self._codes.append(codes)
        self._pending += len(codes)
        self._changed()

    def push_pcm(self, pcm: Pcm) -> None:
        """Accepts the audio of a frame that the engine decoded, float32 [1920]."""
        if np.isfinite(pcm).all():
            self.deliver(pcm, 1)
        else:
            self.fail(GenerationFailed("the codec could not decode the speech"))

    def finish(self) -> None:
        """Declares that no more codes come, so that pending frames do not wait for more. Safe to call twice."""
        self._finished = True
        self._wakeup.set()
        self._changed()

    def wake(self) -> None:
        """Has the iteration return an empty run, behind the audio that is there, so that its reader may look around."""
        if not self._audio:
            self._audio.append(np.zeros(0, np.float32))
            self._wakeup.set()

    def advance(self, frames_heard: int) -> None:
        """Reports that the listener has heard `frames_heard` frames of this stream in all."""
        self._heard = max(self._heard, frames_heard)
        self._changed()

    def __aiter__(self) -> CodecStream:
        return self

    async def __anext__(self) -> Pcm:
        while not self._audio:
            if self._error is not None:
                raise self._error
            if self.closed or (self._finished and not self._pending and not self._undelivered):
                raise StopAsyncIteration
            self._wakeup.clear()
            await self._wakeup.wait()
        return self._audio.popleft()

    async def aclose(self) -> None:
        """Returns the slot at once; audio that is still to come is dropped. Safe to call twice."""
        if not self.closed:
            self.closed = True
            self._codes.clear()
            self._pending = 0
            self._audio.clear()
            self._wakeup.set()
            self._release(self)

    # What follows is called by the client.

    @property
    def pending(self) -> int:
        """Frames to be decoded; none after a failure."""
        return 0 if self._error else self._pending

    def view(self, now_s: float) -> StreamView:
        """Returns what the planner sees.

        A stream that is not paced has no playback reports. It is due as if it were heard in real time, so that frames
        further ahead give way to streams that are heard.
        """
        heard = self._heard if self.paced else int((now_s - self._began_s) * 1000) // FRAME_MS
        return StreamView(
            slot=self.slot,
            pending=self.pending,
            decoded=self._decoded,
            heard=min(self._context + heard, self._decoded),
            ended=self._finished,
            served=self._served,
            context=max(0, self._context - self._decoded),
        )

    def take(self, frames: int, batch: int, now_s: float) -> tuple[Codes, bool]:
        """Hands out the next `frames` pending frames for batch number `batch`, and whether they are the first."""
        self._served = batch
        first = self._decoded == 0
        if self._decoded <= self._context:
            self._began_s = now_s
        parts, wanted = [], frames
        while wanted:
            head = self._codes.popleft()
            if len(head) > wanted:
                self._codes.appendleft(head[wanted:])
                head = head[:wanted]
            parts.append(head)
            wanted -= len(head)
        self._pending -= frames
        self._decoded += frames
        self._undelivered += frames
        return np.concatenate(parts), first

    def deliver(self, pcm: Pcm, frames: int) -> None:
        """Accepts the audio of the next `frames` frames; dropped when the stream was closed meanwhile."""
        self._undelivered -= frames
        discarded = min(frames, self._context_undelivered)
        self._context_undelivered -= discarded
        if not self.closed and self._error is None:
            if discarded < frames:
                self._audio.append(pcm[discarded * (len(pcm) // frames) :])
            self._wakeup.set()

    def fail(self, error: EngineError) -> None:
        """Ends the iteration with `error`, after the audio that is already there; only the first error counts."""
        if self._error is None:
            self._error = error
            self._wakeup.set()
