"""The generations of one utterance: each reads tokens up to a cut, and the next one begins behind its last frame.

A generation reads text as it arrives, one token per frame. It is closed, and the next one begun in the same voice,
where the client flushes, at the first end of a sentence after `segment_tokens` tokens, and where its slot is full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from ..alignment.timing_feed import TimingFeed
from ..codec.resumable_stream import ResumableStream
from ..errors import EngineLost
from ..interface import FinishReason, Milestones
from ..prosody.shaper import SpeechShaper
from ..retraction.speech_cutter import SpeechCutter
from ..talker.generation import Continuation, Generation
from ..text.markup.writer import Mark
from ..text.token_queue import TokenQueue
from ..text.utterance_text import SpeechToken
from .plan import FrameCounts, SpeechSlots, UtterancePlan


class Generations:
    """Speaks the tokens of one utterance, one generation after the other. Not thread-safe.

    Tokens are added at any time; one task waits with `has_text` and runs `speak_next` while that is true.
    """

    def __init__(
        self,
        plan: UtterancePlan,
        slots: SpeechSlots,
        codec: ResumableStream,
        frames: FrameCounts,
        milestones: Milestones,
        *,
        feed: TimingFeed,
        shaper: SpeechShaper,
        cutter: SpeechCutter,
        on_text: Callable[[int], None],
        on_lost: Callable[[], None],
    ) -> None:
        """`on_text` is called with the offset up to which the text was given to the talker, `on_lost` when the engine
        is lost."""
        self.slots = slots
        """Where the next generation begins."""
        self.tokens = TokenQueue(plan.rules.text.segment_tokens)
        self.present: Generation | None = None
        """The generation in progress."""
        self.holds_slot = False
        """Whether one of the talker's slots is held now; between two generations none is."""
        self.length_reached = False
        """Whether a limit of frames cut the speech."""
        self.begin_error: Exception | None = None
        """Why the first generation could not be begun at once."""
        self._plan, self._codec, self._frames, self._milestones = plan, codec, frames, milestones
        self._feed, self._shaper, self._cutter = feed, shaper, cutter
        self._on_text, self._on_lost = on_text, on_lost
        self._begun = 0
        """Generations begun so far."""
        self._text_closed = False
        """Whether the generation in progress gets no more text."""
        self._dropping: tuple[int, int] | None = None
        """Of a generation that ended early, so that text is dropped: tokens it got, and tokens that still fitted."""
        self._continuation: Continuation | None = None
        """How the generation goes on that was in progress when the utterance lost its slots."""
        self._decoded = False
        """Whether the first chunk was decoded."""
        self._wakeup = asyncio.Event()
        """Set when there is text, or an end, for the task to look at."""

    # Tokens

    @property
    def lacks_text(self) -> bool:
        """Whether the generation in progress, or the next one, may get text that is not there yet."""
        return not (self.tokens or self.tokens.ended or self._text_closed)

    @property
    def text_frames(self) -> int:
        """Frames of the utterance up to which the talker needs no more text."""
        frames = self._frames
        return frames.generated if self.present is None else frames.before + self.present.text_frames

    @property
    def needs_slot(self) -> bool:
        """Whether tokens wait, or a generation that was left goes on without more of them."""
        return bool(self.tokens) or (self._continuation is not None and self.tokens.ended)

    def add(self, tokens: Sequence[SpeechToken], *, may_begin: bool) -> None:
        """Adds tokens; `may_begin`: whether the first generation may be begun in this turn of the event loop."""
        self.tokens.add(tokens)
        if tokens and may_begin and not (self._begun or self._at_max_frames):
            self._begin_at_once()
        else:
            self._give_tokens()

    def cut(self, mark: Mark | None = None) -> None:
        """Has the tokens so far spoken to their end, and `mark` follow."""
        if self.present or self._continuation or self.tokens or self._dropping or mark is not None:
            self.tokens.cut(mark)
        self._give_tokens()

    def end(self) -> None:
        """No more tokens come."""
        self.tokens.ended = True
        self._give_tokens()

    def _give_tokens(self) -> None:
        """Gives waiting tokens to the generation in progress, up to where it is closed."""
        generation = self.present
        if generation is None or self._text_closed or self.begin_error is not None:
            self._wakeup.set()
            return
        ids, last = self.tokens.next(generation.tokens, generation.text_room)
        if last:
            generation.cap(self._plan.frame_cap(generation.tokens + len(ids), self._frames.before))
            self._text_closed = True
        # In one call, so that the engine is notified once.
        generation.feed(ids, last=last)
        if ids and self._milestones.first_token_s is None:
            self._milestones.first_token_s = asyncio.get_running_loop().time()
        self._announce_text()

    def _announce_text(self) -> None:
        if self.tokens.last is not None:
            self._on_text(self.tokens.last.source_end)

    # Frames

    def grant_credit(self) -> None:
        """Lets the generation in progress follow the playback position."""
        if self.present is not None:
            frames, plan = self._frames, self._plan
            limit = frames.passed + plan.lookahead(frames.passed, decoded=self._decoded, rate=self._shaper.rate)
            now_s = asyncio.get_running_loop().time()
            due = frames.due(self._milestones.first_frame_s, now_s, paced=plan.paced)
            self.present.grant(limit - frames.before, due - frames.before)

    def on_decoded(self) -> None:
        """The codec delivered audio: from the first on, generation may run ahead."""
        if not self._decoded:
            self._decoded = True
            # Behind the audio's way to the client, because waking the engine takes time.
            asyncio.get_running_loop().call_soon(self.grant_credit)

    def end_in_silence(self) -> None:
        """Lets the talker end with its next frame, if all text was spoken."""
        generation = self.present
        made = self._frames.generated - self._frames.before
        if generation is not None and self._text_closed and made >= generation.text_frames:
            generation.cap(generation.frames)

    @property
    def _at_max_frames(self) -> bool:
        return self._plan.max_frames is not None and self._frames.generated >= self._plan.max_frames

    # The task

    async def has_text(self) -> bool:
        """Waits for a generation that was begun, or a token to begin one with; False when none will come."""
        if self._dropping is not None:
            await self._drop_text(*self._dropping)
        while self.present is None and self.begin_error is None:
            if self._continuation is not None:
                return True
            text = self.tokens.has_text()
            self._place_marks()
            if self._at_max_frames and (text or self.length_reached):
                self.length_reached = True
                return False
            if text or self.tokens.ended:
                return text
            self._wakeup.clear()
            await self._wakeup.wait()
        return True

    async def speak_next(self) -> None:
        """Runs a generation to its end, that which was begun or the next one. Raises what its begin or the engine does.

        When it is cancelled, or the engine lost, the generation is left, to go on in the next slot.
        """
        over = False
        try:
            if self.begin_error is not None:
                raise self.begin_error
            if self.present is None:
                self._begin()
            assert self.present is not None  # begun above
            frames = self._frames
            async for codes in self.present:
                if self._at_max_frames:
                    # The talker's own limit applies at the end of the text, which may be still to come.
                    self.length_reached = True
                    break
                if not frames.generated:
                    self._milestones.first_frame_s = asyncio.get_running_loop().time()
                frames.generated += 1
                first = frames.generated == frames.before + 1
                self._plan.codes.add(codes)
                self._feed.on_frame(codes[0])
                self._codec.push(codes[None], decoded=self.present.decoded and first)
            self.length_reached |= self.present.finish_reason is FinishReason.LENGTH
            self._plan.codes.end(self.present.finish_reason)
            ended_early = not (self._text_closed or self.length_reached)
            if ended_early:
                self._dropping = self.present.tokens, self.present.text_room
            else:
                self._end_segment()
            over = True
        except EngineLost:
            self._on_lost()
        finally:
            await self.leave(over=over)

    async def leave(self, *, over: bool = False) -> None:
        """Gives the slot up; keeps how the generation goes on in another one unless it is `over`."""
        generation, self.present, self._text_closed = self.present, None, False
        if generation is not None:
            if not over:
                self._continuation = generation.continuation()
            await generation.aclose()
        self.holds_slot = False

    def _begin_at_once(self) -> None:
        """Begins the first generation in this turn of the event loop; the task raises its error."""
        try:
            self._begin()
        except Exception as error:
            self.begin_error = error
        self._wakeup.set()

    def _begin(self) -> None:
        """Opens the next generation with the text that waits, or goes on with the one that lost its slot."""
        generation = self.slots.open_generation()
        self.present, self.holds_slot = generation, True
        behind, self._continuation = self._continuation, None
        if behind is None:
            if self.tokens.has_text():
                self._place_marks()
            self._begun += 1
            self._frames.before = self._frames.generated
            self._cutter.begin_generation(self._frames.generated, self.tokens)
            behind = self._plan.codes.begin(self._plan.rules.limits.frames_floor)
        self._text_closed = behind is not None and behind.closed
        self._plan.prepare(generation, self._begun, behind)
        if not generation.frames:
            self._codec.offer_first_frame(partial(generation.decode_first, deliver=self._codec.push_pcm))
        self.grant_credit()
        self._give_tokens()

    def _place_marks(self) -> None:
        """Places marks of the text behind the frames generated so far; no generation is in progress."""
        if marks := self.tokens.take_marks():
            self._shaper.place(marks, self._frames.generated)
            self._codec.wake()

    async def _drop_text(self, taken: int, room: int) -> None:
        """Takes the text up to the cut of a generation that ended before, so that it does not matter when text comes.

        `taken`: tokens that the generation got; `room`: tokens that still fitted. Its slot is free meanwhile.
        """
        closed = False
        while not closed:
            ids, closed = self.tokens.next(taken, room)
            self._dropping = taken, room = taken + len(ids), room - len(ids)
            self._announce_text()
            if not closed:
                self._wakeup.clear()
                await self._wakeup.wait()
        self._dropping = None
        self._end_segment()

    def _end_segment(self) -> None:
        assert self.tokens.last is not None  # a generation begins with a token
        self._feed.on_segment_end(self.tokens.last.source_end)
        self._cutter.end_generation(self._frames.generated, self.tokens.last.source_end)
