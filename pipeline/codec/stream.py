"""One utterance's stream through the codec: codes pushed in, runs of audio iterated out, both in order."""

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
    """A slot of the codec service, until `aclose`. Not thread-safe; every method belongs to the event loop.

    Frames are counted from the first that was pushed; those of a context come before it.

    Iterate it for float32 [n * 1920] runs in [-1, 1]; the iteration ends after the last frame once `finish`
    was called. It raises EngineLost when the worker dies and GenerationFailed when this stream's codes could
    not be decoded. Cancelling an iteration loses nothing.
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
        alone: bool = True,
    ) -> None:
        """`context`: int16 [n, 16] that the stream goes on from; decoded first, its audio is nobody's.

        `alone`: no job under way is in its slot for the one before it.
        """
        self.slot = slot
        self.closed = False
        self.paced, self._alone = paced, alone
        self._began_s = 0.0
        """When its first frames were taken."""
        self._check, self._changed, self._release = check, changed, release
        self._codes: deque[Codes] = deque()
        self._pending = self._decoded = self._heard = self._served = 0
        self._finished = False
        self._audio: deque[Pcm] = deque()
        self._undelivered = 0
        self._error: EngineError | None = None
        self._news = asyncio.Event()
        self._context = self._unheard = 0
        if context is not None:
            self.push(context)
            self._context = self._unheard = self._pending

    @property
    def beginning(self) -> int | None:
        """The slot, as long as there are no frames, for whoever makes the first to decode it at once; None where that
        must wait for its turn, as for streams that nobody hears yet."""
        begun = self._decoded or self._pending or self.closed
        return self.slot if self.paced and self._alone and not begun else None

    def push(self, codes: Codes, *, decoded: bool = False) -> None:
        """Append int16 [n, 16]. How many may be pending is for the caller to bound.

        `decoded`: they have been, in this slot, by whoever made them, and their sound comes by `hear`. Raises
        ValueError for a wrong shape, a code outside the codebook, or a finished stream; then nothing was taken.
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

    def hear(self, pcm: Pcm) -> None:
        """The sound of a frame that was decoded elsewhere, float32 [1920]."""
        if np.isfinite(pcm).all():
            self.deliver(pcm, 1)
        else:
            self.fail(GenerationFailed("the codec could not decode the speech"))

    def finish(self) -> None:
        """No more codes come: what is pending is decoded without waiting for more. Safe to call twice."""
        self._finished = True
        self._news.set()
        self._changed()

    def advance(self, frames_heard: int) -> None:
        """The listener has heard `frames_heard` frames of this stream in all."""
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
            self._news.clear()
            await self._news.wait()
        return self._audio.popleft()

    async def aclose(self) -> None:
        """Give the slot back at once; audio still under way is dropped. Safe to call twice."""
        if not self.closed:
            self.closed = True
            self._codes.clear()
            self._pending = 0
            self._audio.clear()
            self._news.set()
            self._release(self)

    # What follows is the service's side.

    @property
    def pending(self) -> int:
        """Frames to be decoded; none once it failed."""
        return 0 if self._error else self._pending

    def view(self, now_s: float) -> StreamView:
        """What the planner needs to know; a stream that failed has nothing more to decode.

        Nobody listens to a stream that is not paced: it is due as if somebody did, and what is ahead of that can wait.
        """
        pending = self.pending
        heard = self._heard if self.paced else int((now_s - self._began_s) * 1000) // FRAME_MS
        return StreamView(
            slot=self.slot,
            pending=pending,
            decoded=self._decoded,
            heard=min(self._context + heard, self._decoded),
            ended=self._finished,
            served=self._served,
            context=max(0, self._context - self._decoded),
        )

    def take(self, frames: int, batch: int, now_s: float) -> tuple[Codes, bool]:
        """Hand out the next `frames` pending frames for batch number `batch`, and whether they are the first."""
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
        """Audio of `frames` frames arrived; dropped when the stream was closed meanwhile."""
        self._undelivered -= frames
        unheard = min(frames, self._unheard)
        self._unheard -= unheard
        if not self.closed and self._error is None:
            if unheard < frames:
                self._audio.append(pcm[unheard * (len(pcm) // frames) :])
            self._news.set()

    def fail(self, error: EngineError) -> None:
        """End the iteration with `error`, after the audio that is already there."""
        if self._error is None:
            self._error = error
            self._news.set()
