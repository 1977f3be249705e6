"""One generation in a talker slot: text tokens in, frames out."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

from ..errors import EngineLost, GenerationFailed
from ..interface import FinishReason
from ..ipc.records import RecordFlag
from ..ipc.slot_tables import Field, Option, SlotTables
from .prompt import Prompt

log = logging.getLogger(__name__)

Frame = NDArray[np.int16]
"""int16 [groups]"""

DRAIN_TIMEOUT_S = 5.0
"""How long frames may trail the engine's own word that a generation is over."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling options in force, every one of them set."""

    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    predictor_temperature: float
    predictor_top_k: int
    predictor_top_p: float
    seed: int
    early_end: bool = False
    """Whether speech may end before all text was read, as in the reference."""


class SlotEngine(Protocol):
    """What a generation asks of the engine it runs in."""

    def submit(self, generation: Generation, prompt_len: int) -> asyncio.Task[int]:
        """Run it to its end; resolves to the number of steps it took. Raises EngineLost. Cancelling aborts it."""

    def wake(self) -> None:
        """Look at held generations again."""

    def ask_release(self, generation: Generation) -> None:
        """Have `Generation.released` called when no step can touch the slot any more."""

    def free(self, generation: Generation) -> None:
        """Take the slot back."""


class Generation:
    """The owner of a talker slot, for one prompt and its speech.

    Iterate it for frames, int16 [groups] each, in order. The iteration raises EngineLost when the engine died, and
    GenerationFailed when it gave up on this generation; it ends after the last frame, then `finish_reason` is set.
    """

    def __init__(
        self,
        tables: SlotTables,
        slot: int,
        epoch: int,
        engine: SlotEngine,
    ) -> None:
        self.slot, self.epoch = slot, epoch
        self.finish_reason: FinishReason | None = None
        self.frames = 0
        self.decoded = False
        """Whether the first frame was decoded where it was made."""
        self._tables = tables
        self._row = tables.control[slot]
        self._engine = engine
        self._prompt: Prompt | None = None
        self._released = asyncio.Event()
        self._request: asyncio.Task[int] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._ready: deque[Frame] = deque()
        self._arrived = asyncio.Event()
        self._error: Exception | None = None
        self._over = False
        self._deliver: Callable[[Pcm], None] | None = None
        """Where a first frame's sound goes that is still to come."""

    def prepare(self, prompt: Prompt, sampling: Sampling, frame_cap: int) -> None:
        """Fill the slot's tables; the first token may follow. Raises ValueError when the prompt does not fit."""
        shape = self._tables.shape
        # With all the text the slot takes, so that no text can make it fail later.
        if (positions := prompt.positions(shape.text)) > shape.prefix:
            raise ValueError(f"the prompt has {positions} positions, more than {shape.prefix}")
        self._prompt = prompt
        if prompt.speaker_vector is not None:
            self._tables.speaker[self.slot] = prompt.speaker_vector
        self._tables.options[self.slot, list(Option)] = (
            sampling.temperature,
            sampling.top_p,
            sampling.repetition_penalty,
            sampling.predictor_temperature,
            sampling.predictor_top_p,
        )
        row = self._row
        row[Field.TOP_K] = sampling.top_k
        row[Field.PREDICTOR_TOP_K] = sampling.predictor_top_k
        row[Field.SEED] = sampling.seed
        row[Field.EARLY_END] = sampling.early_end
        self.cap(frame_cap)

    def decode_first(self, codec_slot: int, deliver: Callable[[Pcm], None]) -> None:
        """Let the engine decode the first frame itself, where it can, as the beginning of a stream in that slot.

        `decoded` tells then that it did, and `deliver` gets the sound, float32 [samples], before the next frame comes.
        """
        self._row[Field.CODEC_SLOT] = codec_slot + 1
        self._deliver = deliver

    @property
    def pending_prompt_positions(self) -> int:
        """Positions of the prompt that the engine may still have to read before the first frame."""
        return int(self._row[Field.PREFIX_LEN]) + 1 if self._request is not None and not self.frames else 0

    @property
    def room(self) -> int:
        """Text tokens that still fit."""
        return self._tables.shape.text - int(self._row[Field.TEXT_LEN])

    @property
    def tokens(self) -> int:
        """Text tokens taken so far."""
        return int(self._row[Field.TEXT_LEN])

    @property
    def allowed(self) -> int:
        """Frames that the text so far is enough for."""
        return 0 if self._request is None else self.tokens - int(self._row[Field.TEXT_LEAD])

    def feed(self, tokens: Sequence[int], *, last: bool = False) -> None:
        """Append text tokens; at most `room` of them. The generation begins when the prompt has what it needs.

        `last`: no more text comes, so end of speech may be drawn once all of it was read.
        """
        if tokens:
            begin = self.tokens
            end = begin + len(tokens)
            if end > self._tables.shape.text:
                raise ValueError(f"{end} text tokens do not fit into {self._tables.shape.text}")
            self._tables.text[self.slot, begin:end] = tokens
            self._row[Field.TEXT_LEN] = end
        if last:
            self._row[Field.CLOSED] = 1
        if tokens or last:
            self._go_on()

    def close_text(self) -> None:
        """No more text comes."""
        self.feed((), last=True)

    def _go_on(self) -> None:
        """There is more to read: begin if it is enough to begin with."""
        if self._request is not None:
            self._engine.wake()
        elif self.tokens and (self._row[Field.CLOSED] or self._may_begin):
            self._begin()

    @property
    def _may_begin(self) -> bool:
        needed = self._prompt.text_needed if self._prompt is not None else None
        return needed is not None and self.tokens >= needed

    def _begin(self) -> None:
        assert self._prompt is not None, "a generation is prepared before it is fed"
        text, codec = self._prompt.text, self._prompt.codec(self.tokens)
        prefix = self._tables.prefix[self.slot]
        prefix[: len(text), 0] = text
        prefix[: len(codec), 1:] = codec
        begin = len(codec) - 1
        self._row[Field.PREFIX_LEN] = begin
        self._row[Field.TEXT_LEAD] = begin - len(text)
        # From here on the engine takes the row for this generation's.
        self._row[Field.EPOCH] = self.epoch
        self._request = self._engine.submit(self, len(codec))
        self._watcher = asyncio.create_task(self._watch(self._request), name=f"generation-{self.epoch}")

    def cap(self, frames: int) -> None:
        """Force the end after `frames` frames, at most what the slot holds; in effect when the text is closed."""
        self._row[Field.FRAME_CAP] = min(frames, self._tables.shape.frames - 1)

    def grant(self, frames: int, heard: int = 0) -> None:
        """Allow the generation to run up to its frame number `frames`; never less than was allowed before.

        `heard`: frames the listener has heard, which tells how urgent the next one is.
        """
        self._row[Field.HEARD] = heard
        if frames > self._row[Field.CREDIT]:
            self._row[Field.CREDIT] = frames
            if self._request is not None:
                # The engine may have come to rest at the old limit without our knowing yet, so it is always told.
                self._engine.wake()

    def take(self, number: int, flags: int, codes: NDArray[np.int32]) -> None:
        """A record of this generation, from the engine's frame channel."""
        if number != self.frames:
            return self.fail(GenerationFailed(f"frame {number} arrived where {self.frames} was due"))
        if number == 1 and self.decoded and self._deliver is not None:
            return self.fail(GenerationFailed("the first frame's sound did not arrive"))
        self.frames += 1
        if not flags & ~RecordFlag.DECODED:
            self.decoded |= bool(flags)
            self._ready.append(codes.astype(np.int16))
        elif flags & RecordFlag.FAILED:
            self.fail(GenerationFailed("the talker's numbers came out of order"))
        elif flags & RecordFlag.END:
            self.finish_reason = FinishReason.LENGTH if flags & RecordFlag.CAPPED else FinishReason.END
        self._arrived.set()
        return None

    def on_audio(self, pcm: Pcm) -> None:
        """The first frame's sound, from the engine."""
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(pcm)

    def fail(self, error: Exception) -> None:
        """End the iteration with `error` once the frames already here are taken."""
        self._error = self._error or error
        self._arrived.set()

    async def _watch(self, request: asyncio.Task[int]) -> None:
        try:
            steps = await request
            # The engine's word can overtake its last frames: only their count tells that all are here.
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                while self.frames < steps and self._error is None:
                    self._arrived.clear()
                    await self._arrived.wait()
        except EngineLost as error:
            self.fail(error)
        except TimeoutError:
            self.fail(GenerationFailed("the engine's last frames did not arrive"))
        else:
            if self.finish_reason is None:
                self.fail(GenerationFailed("the engine gave up on the utterance"))

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> Frame:
        while not self._ready:
            # A loss after the last frame takes nothing away from speech that is complete.
            if self.finish_reason is not None:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        return self._ready.popleft()

    def released(self) -> None:
        """The engine's word that the slot is free of this generation."""
        self._released.set()
        self._engine.free(self)

    async def aclose(self) -> None:
        """Abort if still running; returns when the engine gave the slot back, or after DRAIN_TIMEOUT_S.

        The slot stays taken until that word comes. Safe to call twice; cancelling it only stops the waiting.
        """
        if self._over:
            return None
        self._over = True
        if self._request is None or (self._error is not None and isinstance(self._error, EngineLost)):
            return self._engine.free(self)
        if self.finish_reason is None:
            self._request.cancel()
            self._request.add_done_callback(lambda _: self._engine.ask_release(self))
        else:
            self._request.add_done_callback(lambda _: self.released())
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await self._released.wait()
        except TimeoutError:
            log.warning("slot %d: the engine has not confirmed that it stopped", self.slot)
        return None
