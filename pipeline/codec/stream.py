"""One utterance's stream through the codec: codes are pushed in, runs of audio are iterated out, both in order."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from voxgate.codecs.pcm import FRAME_MS, Pcm

from ..errors import EngineError, GenerationFailed
from ..ipc.codec_wire import KEY_BYTES, Codes
from .planner import StreamView

TakeFirstFrame = Callable[[int, bool], None]
"""Takes the slot in which the first frame may be decoded, and whether the stream begins with it."""


@dataclass(frozen=True, slots=True, eq=False)
class CodecContext:
    """Frames that a stream continues, whose audio is discarded: `shared` and then `own`, int16 [n, codebooks] each.

    `shared`: the reference of a cloned voice, behind which many streams begin; the codec keeps its state there.
    """

    shared: Codes
    own: Codes

    @classmethod
    def reference(cls, frames: Codes) -> CodecContext:
        """The context of an utterance that begins behind a reference, int16 [n, codebooks]; n may be 0."""
        return cls(frames, frames[:0])

    @property
    def key(self) -> bytes:
        """The digest under which the codec keeps the state behind `shared`."""
        return hashlib.blake2b(np.ascontiguousarray(self.shared, np.int16).tobytes(), digest_size=KEY_BYTES).digest()


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
        context: CodecContext | None = None,
        context_frames: int = 0,
        external_first_frame: bool = True,
    ) -> None:
        """`context`: its `own` frames are decoded first. For its `shared` ones `begin_behind_shared` has to follow.

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
        self._shared: Codes | None = None
        """Of the context, until the state behind it is in the slot."""
        self._keep: Callable[[], None] | None = None
        """Called once the shared frames are decoded."""
        self._shared_frames = 0
        """Shared frames that are decoded here, because the codec has not kept the state behind them."""
        self._held = False
        """Whether nothing may be decoded before an answer of the codec."""
        self._fresh = True
        """Whether the next frames begin from the codec's initial state."""
        self._take_first_frame: TakeFirstFrame | None = None
        if context is not None:
            if len(context.own):
                self.push(context.own)
            self._context = self._context_undelivered = self._pending
            if len(context.shared):
                self._shared, self._held = check(context.shared), True

    def begin_behind_shared(self, restored: bool, keep: Callable[[], None]) -> None:
        """The codec has restored the state behind the shared frames in the slot, or it has none: they are decoded.

        `keep` is then called when the slot has that state, before the next frames are taken.
        """
        assert self._shared is not None  # there is one answer to one request
        shared, self._shared, self._held = self._shared, None, False
        if self.closed:
            return
        if restored:
            self._fresh = False
        else:
            self._codes.appendleft(shared)
            self._keep, self._shared_frames = keep, len(shared)
            self._pending += len(shared)
            self._context += len(shared)
            self._context_undelivered += len(shared)
        if self._take_first_frame is not None:
            self.offer_first_frame(self._take_first_frame)
        self._changed()

    def offer_first_frame(self, take: TakeFirstFrame) -> None:
        """Calls `take` when the engine that makes the first frame may decode it in the slot at once: now, or later.

        It may not, and `take` is not called, for a stream that is not paced, because its frames wait for those that
        are heard; and for one that has frames already.
        """
        begun = self._decoded or self._pending or self.closed
        if begun or not (self.paced and self._external_first_frame):
            return
        if self._held:
            self._take_first_frame = take
        else:
            take(self.slot, self._fresh)

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
        if self.paced:  # frames of others are not decoded because of what is heard
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
        return 0 if self._error or self._held else self._pending

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
            # Up to where the state is kept.
            context=max(0, (self._shared_frames if self._keep else self._context) - self._decoded),
        )

    def take(self, frames: int, batch: int, now_s: float) -> tuple[Codes, bool]:
        """Hands out the next `frames` pending frames for batch number `batch`, and whether they are the first."""
        self._served = batch
        first = self._fresh and self._decoded == 0
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
        # Until it is known that the shared frames could be decoded.
        self._held = self._keep is not None and self._decoded == self._shared_frames
        return parts[0] if len(parts) == 1 else np.concatenate(parts), first

    def deliver(self, pcm: Pcm, frames: int) -> None:
        """Accepts the audio of the next `frames` frames; dropped when the stream was closed meanwhile."""
        self._undelivered -= frames
        if self._held and not self._undelivered:
            self._keep_state()
        discarded = min(frames, self._context_undelivered)
        self._context_undelivered -= discarded
        if not self.closed and self._error is None:
            if discarded < frames:
                self._audio.append(pcm[discarded * (len(pcm) // frames) :])
            self._wakeup.set()

    def _keep_state(self) -> None:
        """Has the state behind the shared frames kept, and goes on."""
        keep, self._keep, self._held = self._keep, None, False
        if keep is not None and not self.closed:
            keep()
            self._changed()

    def fail(self, error: EngineError) -> None:
        """Ends the iteration with `error`, after the audio that is already there; only the first error counts."""
        if self._error is None:
            self._error = error
            self._wakeup.set()
