"""An utterance's stream through the codec, which goes on in another slot when it gave its own up or lost the codec."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm

from ..errors import EngineLost
from .stream import CodecContext, TakeFirstFrame


class UtteranceCodec(Protocol):
    """What an utterance needs of its codec stream; see `codec.stream.CodecStream`."""

    @property
    def context_frames(self) -> int: ...
    def offer_first_frame(self, take: TakeFirstFrame) -> None: ...
    def push(self, codes: NDArray[np.int16], *, decoded: bool = False) -> None: ...
    def push_pcm(self, pcm: Pcm) -> None: ...
    def finish(self) -> None: ...
    def wake(self) -> None: ...
    def advance(self, frames_heard: int) -> None: ...
    async def __anext__(self) -> Pcm: ...
    async def aclose(self) -> None: ...


class ResumableStream:
    """An `UtteranceCodec` over one stream after the other: each begins with the frames that its predecessor owed.

    A stream ends with `suspend` or with the loss of its codec, of which `on_loss` is told once for each; `resume` takes
    the next, and the iteration waits for it. Frames are counted from the first of the first stream. The audio is that
    of one stream up to rounding, because the next one repeats the frames on which it depends. Not thread-safe.
    """

    def __init__(self, stream: UtteranceCodec, on_loss: Callable[[], None], reference: NDArray[np.int16]) -> None:
        """`reference`: what the first stream continues, int16 [frames, codebooks]; 0 frames for nothing."""
        self._stream, self._on_loss = stream, on_loss
        self._reference = reference
        """Empty once a stream does not need all of it."""
        self._kept: deque[NDArray[np.int16]] = deque(reference)
        """Frames that a next stream needs, int16 [codebooks] each: the context, and those without audio yet."""
        self._pushed = self._delivered = self._base = 0
        """Frames pushed in all, of these iterated out, and of these before the present stream."""
        self._ended = self._finished = self._closed = False
        self._changed = asyncio.Event()
        """Set when the iteration has something new to look at."""

    @property
    def context(self) -> CodecContext:
        """What the next stream has to continue."""
        own = list(self._kept)[len(self._reference) : len(self._kept) - self._owed]
        return CodecContext(self._reference, np.array(own, np.int16).reshape(len(own), self._reference.shape[1]))

    @property
    def _owed(self) -> int:
        """Frames without audio yet."""
        return self._pushed - self._delivered

    def offer_first_frame(self, take: TakeFirstFrame) -> None:
        if not self._pushed:
            self._stream.offer_first_frame(take)

    def push(self, codes: NDArray[np.int16], *, decoded: bool = False) -> None:
        self._kept.extend(codes)
        self._pushed += len(codes)
        if not self._ended:
            self._stream.push(codes, decoded=decoded)

    def push_pcm(self, pcm: Pcm) -> None:
        self._stream.push_pcm(pcm)

    def finish(self) -> None:
        self._finished = True
        self._stream.finish()
        self._changed.set()

    def wake(self) -> None:
        self._stream.wake()

    def advance(self, frames_heard: int) -> None:
        if frames_heard > self._base:
            self._stream.advance(frames_heard - self._base)

    async def suspend(self) -> None:
        """Closes the present stream, whose slot is free then."""
        self._ended = True
        await self._stream.aclose()

    def resume(self, stream: UtteranceCodec) -> None:
        """Continues in `stream`, which was opened with `context`."""
        self._stream, self._base, self._ended = stream, self._delivered, False
        if owed := list(self._kept)[len(self._kept) - self._owed :]:
            stream.push(np.array(owed, np.int16))
        if self._finished:
            stream.finish()
        self._changed.set()

    async def __anext__(self) -> Pcm:
        while True:
            self._changed.clear()
            stream = self._stream
            try:
                pcm = await stream.__anext__()
            except (StopAsyncIteration, EngineLost) as end:
                current = stream is self._stream and not self._ended
                if self._closed or (self._finished and not self._owed) or (current and not isinstance(end, EngineLost)):
                    raise StopAsyncIteration from None
                if current:
                    self._ended = True
                    self._on_loss()
                    return np.zeros(0, np.float32)
            else:
                if stream is self._stream:
                    self._deliver(len(pcm) // FRAME_SAMPLES)
                    return pcm
            if stream is self._stream:
                await self._changed.wait()

    def _deliver(self, frames: int) -> None:
        """Notes that frames have their audio, and forgets those that no stream needs any more."""
        self._delivered += frames
        needed = self._owed + self._stream.context_frames
        if len(self._kept) > needed:
            self._reference = self._reference[:0]
        while len(self._kept) > needed:
            self._kept.popleft()

    async def aclose(self) -> None:
        self._closed = True
        self._changed.set()
        await self._stream.aclose()
