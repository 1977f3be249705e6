"""One generation in a talker slot: text tokens in, frames out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

from ..errors import EngineLost, GenerationFailed
from ..interface import FinishReason
from ..ipc.records import RecordFlag
from ..ipc.slot_tables import Field, Option, SlotTables
from .prompt import Prompt
from .slot_owners import SlotEngine

log = logging.getLogger(__name__)

Frame = NDArray[np.int16]
"""int16 [groups]"""

DRAIN_TIMEOUT_S = 5.0
"""Seconds by which the last frames may arrive after vLLM's end of the request, and a release after its abort."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling options in force, all of them set."""

    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    predictor_temperature: float
    predictor_top_k: int
    predictor_top_p: float
    seed: int
    early_end: bool = False
    """Whether speech may end before all text was read, as in the reference implementation."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """How a generation goes on in another slot, of this engine or the next, as if it had kept its own.

    The codes that follow are the same, because each position gets the same inputs and each frame the same noise.
    """

    frames: list[Frame]
    """Those that were taken from its iteration, and those known from before that were still to be iterated again."""
    tokens: list[int]
    """The text that it was fed."""
    closed: bool
    """Whether that was all text."""
    frame_cap: int
    """As of `Generation.cap`."""
    iterated: int
    """How many of the frames were taken; the others are iterated again, as far as credit allows."""
    finish_reason: FinishReason | None = None
    """How the generation ended behind the frames, so that nothing is left to make; None while it goes on."""


class Generation:
    """The owner of a talker slot, for one prompt and its speech.

    `prepare` it, `feed` it text and `grant` it credit; meanwhile iterate it for frames, int16 [groups] each, in order.
    The iteration raises EngineLost when the engine died and GenerationFailed when this generation cannot continue;
    it ends after the last frame, and then `finish_reason` is set. `aclose` it in every case.
    """

    def __init__(self, tables: SlotTables, slot: int, epoch: int, engine: SlotEngine) -> None:
        self.slot, self.epoch = slot, epoch
        self.finish_reason: FinishReason | None = None
        self._known_end: FinishReason | None = None
        """How it ended in another slot, so that only known frames are iterated again."""
        self.frames = 0
        """Number of the next record: of a frame, or of the end of speech."""
        self.decoded = False
        """Whether the engine decodes the first frame (`decode_first`)."""
        self._tables = tables
        self._row = tables.control[slot]
        self._engine = engine
        self._prompt: Prompt | None = None
        self._released = asyncio.Event()
        self._request: asyncio.Task[int] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._made: list[Frame] = []
        """All its frames, including those of other slots."""
        self._past = self._taken = 0
        """Of these, how many were made in other slots, and were taken from the iteration."""
        self._arrived = asyncio.Event()
        self._error: Exception | None = None
        self._closed = False
        self._deliver: Callable[[Pcm], None] | None = None
        """Takes the first frame's audio, until it has."""

    # Its input: what the slot's tables say

    def prepare(
        self,
        prompt: Prompt,
        sampling: Sampling,
        frame_cap: int,
        behind: Continuation | None = None,
        *,
        paced: bool = False,
    ) -> None:
        """Fills the slot's tables; text may follow, behind that of the generation which it continues.

        `paced`: the audio is played as it is made. Raises ValueError when the prompt does not fit.
        """
        shape = self._tables.shape
        # With as much text as the slot takes, so that no text can make it fail later.
        if (positions := prompt.positions(shape.text)) > shape.prefix:
            raise ValueError(f"the prompt has {positions} positions, more than {shape.prefix}")
        self._prompt = prompt
        if prompt.speaker_vector is not None:
            self._tables.speaker[self.slot] = prompt.speaker_vector
        self._tables.options[self.slot, : len(Option)] = (
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
        row[Field.PACED] = paced
        if behind is None:
            self.cap(frame_cap)
            return
        self.cap(behind.frame_cap)
        self._made = list(behind.frames)
        self.frames = self._past = len(self._made)
        self._taken = behind.iterated
        self.finish_reason = self._known_end = behind.finish_reason
        self.feed(behind.tokens, last=behind.closed)

    def decode_first(self, codec_slot: int, fresh: bool, deliver: Callable[[Pcm], None]) -> None:
        """Lets the engine decode the first frame, if it can, in `codec_slot`; no effect once that frame was made.

        `fresh`: whether the stream there begins with it; otherwise it continues from the slot's state. `decoded` then
        says whether the engine does; `deliver` gets the audio, float32 [samples], before the next frame.
        """
        if self.frames or self._closed or self._error is not None:
            return
        self._row[Field.CODEC_SLOT] = codec_slot + 1 if fresh else -(codec_slot + 1)
        self._deliver = deliver

    @property
    def pending_prompt_positions(self) -> int:
        """Positions of the prompt that the engine may still have to compute before the first frame."""
        begun = self._request is None or self.frames > self._past
        return 0 if begun else int(self._row[Field.PREFIX_LEN]) + 1 + self._past

    @property
    def text_room(self) -> int:
        """Text tokens that still fit."""
        return self._tables.shape.text - int(self._row[Field.TEXT_LEN])

    @property
    def tokens(self) -> int:
        """Text tokens taken so far."""
        return int(self._row[Field.TEXT_LEN])

    @property
    def text_frames(self) -> int:
        """Frames for which the text so far suffices."""
        return self._past if self._request is None else self.tokens - int(self._row[Field.TEXT_LEAD])

    def feed(self, tokens: Sequence[int], *, last: bool = False) -> None:
        """Appends text tokens, at most `text_room` of them; starts when there are as many as the prompt needs.

        `last`: no more text follows, so end of speech may be sampled once all of it was read. Raises ValueError when
        the tokens do not fit; none is taken then.
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
            self._continue()

    def close_text(self) -> None:
        """No more text follows."""
        self.feed((), last=True)

    def continuation(self) -> Continuation:
        """How another one goes on behind the frames that were taken from this one; before `aclose`."""
        row = self._row
        text = self._tables.text[self.slot, : self.tokens]
        # A known end need not be where the talker would end, as behind a cut.
        frames = self._made[: max(self._taken, self._past)]
        closed, frame_cap = bool(row[Field.CLOSED]), int(row[Field.FRAME_CAP])
        return Continuation(frames, text.tolist(), closed, frame_cap, self._taken, self._known_end)

    def cap(self, frames: int) -> None:
        """Forces the end after `frames` frames, at most what the slot holds; in effect once the text is closed."""
        self._row[Field.FRAME_CAP] = min(frames, self._tables.shape.frames - 1)

    def grant(self, frames: int, heard: int = 0) -> None:
        """Allows frames up to number `frames`; never fewer than before.

        `heard`: frames the listener has heard, from which the scheduler sees how urgent the next one is.
        """
        self._row[Field.HEARD] = heard
        if frames > self._row[Field.CREDIT]:
            self._row[Field.CREDIT] = frames
            if self._taken < self._past:
                self._arrived.set()
            if self._request is not None:
                # The engine may hold the generation at the old limit, which is not known here.
                self._engine.wake()

    def _continue(self) -> None:
        if self._error is not None or self.finish_reason is not None:
            return
        if self._request is not None:
            self._engine.wake()
        elif self.tokens and (self._row[Field.CLOSED] or self._has_needed_text):
            self._start()

    @property
    def _has_needed_text(self) -> bool:
        needed = self._prompt.text_needed(self._past) if self._prompt is not None else None
        return needed is not None and self.tokens >= needed

    def _start(self) -> None:
        assert self._prompt is not None, "feed before prepare"
        text, codec = self._prompt.text, self._prompt.codec(self.tokens)
        prefix, positions = self._tables.prefix[self.slot], len(codec) + self._past
        prefix[: len(text), 0] = text
        prefix[: len(codec), 1:] = codec
        if self._past:
            prefix[len(codec) : positions, 1:] = self._made
        begin = len(codec) - 1
        self._row[Field.PAST_FRAMES] = self._past
        self._row[Field.PREFIX_LEN] = begin
        self._row[Field.TEXT_LEAD] = begin - len(text)
        # From here on the engine takes the row for this generation's.
        self._row[Field.EPOCH] = self.epoch
        self._request = self._engine.run(self.slot, self.epoch, positions)
        self._watcher = asyncio.create_task(self._watch(self._request), name=f"generation-{self.epoch}")

    async def _watch(self, request: asyncio.Task[int]) -> None:
        """Waits for the request's end and then for its last frames."""
        try:
            steps = await request
            # vLLM's end of the request may overtake the last frames: their count shows whether all have arrived.
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                while self.frames < self._past + steps and self._error is None:
                    self._arrived.clear()
                    await self._arrived.wait()
        except asyncio.CancelledError:
            del self, request  # the request keeps this error, which keeps the frame: the generation would not be freed
        except EngineLost as error:
            self.fail(error)
        except TimeoutError:
            self.fail(GenerationFailed("the engine's last frames did not arrive"))
        else:
            if self.finish_reason is None:
                self.fail(GenerationFailed("the engine gave up on the utterance"))

    # What the engine reports

    def on_record(self, number: int, flags: int, codes: NDArray[np.int32]) -> None:
        """Takes a frame, int32 [groups], or the end of speech."""
        if number != self.frames:
            self.fail(GenerationFailed(f"frame {number} arrived where {self.frames} was due"))
            return
        if number == 1 and self.decoded and self._deliver is not None:
            self.fail(GenerationFailed("the first frame's audio did not arrive"))
            return
        self.frames += 1
        if not flags & ~RecordFlag.DECODED:
            self.decoded |= bool(flags)
            self._made.append(codes.astype(np.int16))
        elif flags & RecordFlag.FAILED:
            self.fail(GenerationFailed("the talker computed numbers that are not finite"))
        elif flags & RecordFlag.END:
            self.finish_reason = FinishReason.LENGTH if flags & RecordFlag.CAPPED else FinishReason.END
        self._arrived.set()

    def on_audio(self, pcm: Pcm) -> None:
        """Takes the first frame's audio, float32 [samples]."""
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(pcm)

    def on_released(self) -> None:
        """The engine confirms that no step touches the slot for this generation any more."""
        self._released.set()
        self._engine.free(self)

    def fail(self, error: Exception) -> None:
        """Ends the iteration with `error`, after the frames that have arrived; only the first error counts."""
        self._error = self._error or error
        self._arrived.set()
        if isinstance(error, EngineLost):
            self._released.set()

    # Its output: frames

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> Frame:
        """The next frame. Cancelling it loses none."""
        while self._taken == len(self._made) or self._waits_for_credit:
            # An error after the end of speech does not matter: the speech is complete.
            if self.finish_reason is not None and self._taken == len(self._made):
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        self._taken += 1
        return self._made[self._taken - 1]

    @property
    def _waits_for_credit(self) -> bool:
        """Whether the next frame is replayed and too far ahead: its audio would have to be held."""
        return self._taken < self._past and self._taken >= self._row[Field.CREDIT]

    async def aclose(self) -> None:
        """Aborts the generation if it still runs; returns when the slot is released, or after DRAIN_TIMEOUT_S.

        The slot stays in use until the engine confirms the release. Safe to call twice; cancelling it only ends the
        wait.
        """
        if self._closed:
            return
        self._closed, self._deliver = True, None
        if self._request is None or isinstance(self._error, EngineLost):
            self._engine.free(self)
            return
        if self.finish_reason is None:
            self._request.cancel()
            self._request.add_done_callback(lambda _: self._engine.request_release(self))
        else:
            self._request.add_done_callback(lambda _: self.on_released())
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await self._released.wait()
        except TimeoutError:
            log.warning("slot %d stays in use: the engine has not confirmed its release", self.slot)
