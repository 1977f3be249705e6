"""An utterance's stream through the codec, which gives its slot up while the utterance is suspended."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

CONTEXT_FRAMES = 48
"""Frames before the seam that a resumed stream decodes again; their audio is discarded. The error behind the seam is
then some 90 dB below the signal (docs/codec.md, "Accuracy")."""


class UtteranceCodec(Protocol):
    """What an utterance needs of its codec stream; see `codec.stream.CodecStream`."""

    @property
    def first_frame_slot(self) -> int | None: ...
    def push(self, codes: NDArray[np.int16], *, decoded: bool = False) -> None: ...
    def push_pcm(self, pcm: Pcm) -> None: ...
    def finish(self) -> None: ...
    def wake(self) -> None: ...
    def advance(self, frames_heard: int) -> None: ...
    async def __anext__(self) -> Pcm: ...
    async def aclose(self) -> None: ...


class ResumableStream:
    """An `UtteranceCodec` over one stream after the other: `suspend` closes the present one, `resume` takes the next.

    Frames are counted from the first of the first stream. Suspend it only when all audio was iterated out. The
    iteration waits while it is suspended. Not thread-safe.
    """

    def __init__(self, stream: UtteranceCodec) -> None:
        self._stream = stream
        self._recent: deque[NDArray[np.int16]] = deque(maxlen=CONTEXT_FRAMES)
        """The newest frames, int16 [codebooks] each."""
        self._pushed = self._base = 0
        """Frames pushed in all, and before the present stream."""
        self._suspended = self._finished = self._closed = False
        self._changed = asyncio.Event()
        """Set when a suspension is over."""

    @property
    def context(self) -> NDArray[np.int16]:
        """What the next stream has to continue, int16 [frames, codebooks]."""
        return np.array(self._recent, np.int16)

    @property
    def first_frame_slot(self) -> int | None:
        return None if self._pushed else self._stream.first_frame_slot

    def push(self, codes: NDArray[np.int16], *, decoded: bool = False) -> None:
        self._recent.extend(codes)
        self._pushed += len(codes)
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
        self._suspended = True
        self._changed.clear()
        await self._stream.aclose()

    def resume(self, stream: UtteranceCodec) -> None:
        """Continues in `stream`, which was opened with `context`."""
        self._stream, self._base, self._suspended = stream, self._pushed, False
        self._changed.set()

    async def __anext__(self) -> Pcm:
        while True:
            stream = self._stream
            try:
                return await stream.__anext__()
            except StopAsyncIteration:
                if self._closed or (stream is self._stream and not self._suspended) or self._ended:
                    raise
            await self._changed.wait()

    @property
    def _ended(self) -> bool:
        """Whether it was finished while it is suspended: then there is no more audio."""
        return self._suspended and self._finished

    async def aclose(self) -> None:
        self._closed = True
        self._changed.set()
        await self._stream.aclose()
