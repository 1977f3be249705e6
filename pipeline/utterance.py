"""One utterance's speech: its text is split over generations, whose frames are joined in one codec stream.

A generation reads text as it arrives, one token per frame. It is closed, and the next one begun in the same voice,
where the client flushes, at the first end of a sentence after `segment_tokens` tokens, and where its slot is full.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm

from .alignment.timing_feed import TimingFeed
from .alignment.visemes import CodeVisemes
from .alignment.word_timing import WordTiming
from .codec.resumable_stream import ResumableStream
from .credit import CreditRounds
from .errors import EmptyText, EngineLost, GenerationFailed, TextTooLong, VoxgateError
from .interface import FinishReason, LeasedSlots, Milestones, SpeechChunk, SpeechCut
from .prosody.shaper import SpeechShaper
from .retraction.speech_cutter import SpeechCutter
from .silence import LeadingSilence, SilenceRun
from .talker.generation import Continuation, Generation
from .text.lexicon.filter import TextFilter, make_text_filter
from .text.markup.writer import Mark, Piece
from .text.text_turns import ALIGNMENT_CHARACTERS, PendingText, TextTurns
from .text.token_queue import TokenQueue
from .text.utterance_text import SpeechToken, UtteranceText
from .utterance_plan import FIRST_CHARACTERS, MAX_TRIMMED_FRAMES, FrameCounts, SpeechSlots, TakeSlots, UtterancePlan

log = logging.getLogger(__name__)

CLOSE_DEADLINE_S = 30.0
"""How long `aclose` waits for the engine; longer than the engine's watchdogs take to find that it hangs."""


class UtteranceSpeech:
    """The `Speech` of `interface.py` with the real talker and codec."""

    def __init__(
        self,
        plan: UtterancePlan,
        *,
        text: UtteranceText,
        timing: WordTiming,
        slots: SpeechSlots,
        take_slots: TakeSlots,
        credit: CreditRounds,
        on_end: Callable[[UtteranceSpeech], None],
        text_turns: TextTurns | None = None,
        text_filter: TextFilter | None = None,
        visemes: CodeVisemes | None = None,
    ) -> None:
        """`on_end` is called when the talker's slot is free for good, which may be before the last audio is played.

        `take_slots`: called by `resume`. `text_turns`: the budget for text that all utterances share. `visemes`: of
        `code_visemes`, where mouth shapes are asked for.
        """
        self.seed, self.take_codes = plan.sampling.seed, plan.codes.take
        self.finish_reason: FinishReason | None = None
        self.milestones = Milestones()
        self.holds_slot = False
        """Whether it holds one of the talker's slots now; between two generations it holds none."""
        self.suspended = self.lost = False
        self._cut_short = False
        """Whether it gave its slots up with something left to generate or to decode."""
        self._plan, self._text, self._timing = plan, text, timing
        self._slots, self._take_slots, self._credit, self._on_end = slots, take_slots, credit, on_end
        self._codec = ResumableStream(slots.codec, self._lose, plan.prompt.reference.astype(np.int16))
        self._text_turns = text_turns or TextTurns()
        self._pending = PendingText(self._text_turns, self._push_now, self._flush_now, self._end_now, self._fail_text)
        self.characters = 0
        """Characters of text accepted so far, pending ones included."""
        self._filter = text_filter or make_text_filter((), (), plan.prosody)
        self._tokens = TokenQueue(plan.rules.text.segment_tokens)
        self._feed = TimingFeed(timing, visemes)
        self._shaper = SpeechShaper(plan.prosody, self._feed.on_audio)
        self._frames = FrameCounts()
        self._cutter = SpeechCutter(timing, self._filter, self._shaper.timeline)
        self._generation: Generation | None = None
        self._generations = 0
        """Begun so far."""
        self._text_closed = False
        """Whether the generation in progress gets no more text."""
        self._dropping: tuple[int, int] | None = None
        """Of a generation that ended early, so that text is dropped: tokens it got, and tokens that still fitted."""
        self._continuation: Continuation | None = None
        """How the generation goes on that was in progress when the utterance lost its slots."""
        self._decoded = False
        """Whether the first chunk was decoded."""
        self._length_reached = False
        """Whether a limit of frames cut the speech."""
        self._error: VoxgateError | None = None
        self._begin_error: Exception | None = None
        """Why the first generation could not be begun at once."""
        self._closed = False
        self._wakeup = asyncio.Event()
        """Set when there is text, or an end, for the task to look at."""
        self._audio_ended = False
        """Whether the codec has no more speech."""
        self._leading = LeadingSilence(MAX_TRIMMED_FRAMES if plan.trim_silence else 0)
        self._silence = SilenceRun(plan.rules.limits.silent_frames)
        self._speaking = self._begin_speaking()

    @property
    def pronunciations(self) -> tuple[str, ...]:
        return self._filter.applied

    @property
    def pauses(self) -> int:
        return self._filter.pauses

    @property
    def waiting_for_text(self) -> bool:
        has_text = self._tokens or self._pending or self._shaper.has_marks
        if self.lost or self._cut_short or self._tokens.ended or self._text_closed or has_text:
            return False
        frames = self._frames
        allowed = frames.generated if self._generation is None else frames.before + self._generation.text_frames
        return frames.delivered + self._leading.frames + self._leading.held >= allowed

    @property
    def pace(self) -> float:
        """How long its words took relative to the ordinary, for word times of the voice's next utterance."""
        return self._timing.pace

    # Text

    def push_text(self, fragment: str) -> None:
        if (received := self.characters + len(fragment)) > self._text.max_characters:
            raise TextTooLong(self._text.max_characters, received)
        self.characters = received
        self._pending.push(fragment)

    def flush(self) -> None:
        self._pending.flush()

    def end(self) -> None:
        """As `Speech.end`. EmptyText is raised by the iteration where text was still pending."""
        self._pending.end()

    def _push_now(self, fragment: str) -> None:
        pieces = self._filter.push(fragment)
        # Text that the filter had held back costs this turn as much as new text.
        released = sum(len(piece) for piece in pieces if isinstance(piece, str)) - len(fragment)
        self._text_turns.spend(max(0, released))
        self._take(pieces)

    def _take(self, pieces: Sequence[Piece]) -> None:
        """Takes text without markup, and marks."""
        for piece in pieces:
            if not isinstance(piece, str):
                self._cut(piece)
            else:
                first = len(piece) if self._text.characters else FIRST_CHARACTERS
                for part in filter(None, (piece[:first], piece[first:])):
                    self._add_tokens(self._text.append(part))

    def _cut(self, mark: Mark | None = None) -> None:
        """Has the text so far spoken to its end, and `mark` follow."""
        self._add_tokens(self._text.flush())
        if self._generation or self._continuation or self._tokens or self._dropping or mark is not None:
            self._tokens.cut(mark)
        self._feed_generation()

    def _flush_now(self) -> None:
        self._take(self._filter.flush())
        self._cut()

    def _end_now(self) -> None:
        try:
            self._take(self._filter.flush())
            self._add_tokens(self._text.end())
        except EmptyText:
            if not self._filter.pauses:
                raise
        finally:
            self._end_tokens()

    def _fail_text(self, error: VoxgateError) -> None:
        """Has the iteration raise `error` behind the speech of the text before it."""
        self._error = error
        self._end_tokens()

    def _end_tokens(self) -> None:
        self._tokens.ended = True
        self._feed_generation()
        if self.suspended and not (self.lost or self.needs_slot):
            self._codec.finish()

    def _add_tokens(self, tokens: Sequence[SpeechToken]) -> None:
        self._tokens.add(tokens)
        if tokens and not (self._generations or self._closed or self._at_max_frames or self.suspended):
            self._begin_at_once()
        else:
            self._feed_generation()

    def _feed_generation(self) -> None:
        """Gives waiting tokens to the generation in progress, up to where it is closed."""
        generation = self._generation
        if generation is None or self._text_closed or self._begin_error is not None:
            self._wakeup.set()
            return
        ids, last = self._tokens.next(generation.tokens, generation.text_room)
        if last:
            generation.cap(self._plan.frame_cap(generation.tokens + len(ids), self._frames.before))
            self._text_closed = True
        # In one call, so that the engine is notified once.
        generation.feed(ids, last=last)
        if ids and self.milestones.first_token_s is None:
            self.milestones.first_token_s = asyncio.get_running_loop().time()
        self._announce_text()

    # Playback and credit

    def advance(self, frames: int) -> None:
        speech = self._shaper.timeline.speech_samples(frames * FRAME_SAMPLES) // FRAME_SAMPLES
        self._pass_frames(speech + self._leading.frames)

    def catch_up(self) -> bool:
        if self._text_turns.left <= 0:
            return True
        self._text_turns.spend(ALIGNMENT_CHARACTERS)
        return self._timing.catch_up()

    def spoken_until(self, played_ms: int) -> int:
        speech_ms = self._shaper.timeline.speech_ms(played_ms)
        return self._filter.spans.boundary(self._timing.spoken_until(speech_ms))

    def cut(self, text: str, samples: int, characters: int, *, final: bool) -> SpeechCut | None:
        frames, cut_off = self._frames, self._leading.frames
        if self._cutter.keeps_all_read(text, self._tokens, characters):
            return SpeechCut(min(characters, len(text)), 0, 0, self._plan.codes.runs(), divides=False)
        boundary = self._cutter.find(samples, cut_off, frames.delivered + cut_off, characters, final=final)
        if boundary is None:
            return None
        past = self._plan.codes.runs(boundary.frame)
        return SpeechCut(*self._cutter.locate(text, boundary, samples, cut_off), past, divides=True)

    def _pass_frames(self, frames: int) -> None:
        """Moves the playback position to `frames` generated frames, and lets generation follow."""
        if frames > self._frames.passed:
            self._frames.passed = frames
            self._codec.advance(frames)
            self._credit.join(self._grant_credit)

    def _grant_credit(self) -> None:
        if self._generation is not None:
            frames = self._frames
            limit = frames.passed + self._plan.lookahead(frames.passed, decoded=self._decoded, rate=self._shaper.rate)
            due = frames.due(self.milestones.first_frame_s, asyncio.get_running_loop().time(), paced=self._plan.paced)
            self._generation.grant(limit - frames.before, due - frames.before)

    # Its slots

    @property
    def needs_slot(self) -> bool:
        resumes = self._continuation is not None and self._tokens.ended
        return self.suspended and (bool(self._tokens or self._pending) or resumes or self._cut_short)

    async def suspend(self, *, anywhere: bool = False) -> bool:
        if self._closed or self.suspended or self._audio_ended:
            return False
        waiting = self._waits_in_slot
        if not (waiting or anywhere):
            return False
        self.suspended, self._cut_short = True, not waiting
        self._speaking.cancel()
        await asyncio.wait({self._speaking})
        # A generation may have been begun before the task first ran.
        await self._leave_generation()
        await self._codec.suspend()
        await self._slots.wait_free()
        return True

    @property
    def _waits_in_slot(self) -> bool:
        """Whether it keeps its slots for text that may come, and for nothing else."""
        ended = self._generation is not None and self._generation.finish_reason is not None
        return self.waiting_for_text and not ended and not self._speaking.done()

    def _lose(self) -> None:
        """The engine is lost: gives the slots up as they are. The iteration returns, and `resume` has to follow."""
        if not (self.suspended or self._closed):
            self.suspended = self.lost = True
            self._codec.wake()
            if asyncio.current_task() is not self._speaking:
                self._speaking.cancel()

    def resume(self, place: LeasedSlots | None = None) -> None:
        self._slots = self._take_slots(place, self._codec.context)
        self._codec.resume(self._slots.codec)
        self.suspended = self.lost = self._cut_short = False
        self._speaking = self._begin_speaking(self._speaking)

    def _begin_speaking(self, previous: asyncio.Task[None] | None = None) -> asyncio.Task[None]:
        task = asyncio.create_task(self._speak(previous), name="utterance")
        task.add_done_callback(lambda done: self._speaks_on(done) or self._on_end(self))
        return task

    # Generations

    async def _speak(self, previous: asyncio.Task[None] | None) -> None:
        """Runs one generation after the other until the text has ended, behind `previous`, the task before."""
        try:
            if previous is not None:
                await asyncio.wait({previous})
                await self._leave_generation()
                self._begin_error = None
            while not self.suspended and await self._has_text():
                await self._run_generation()
        except VoxgateError as error:
            self._error = error
        except Exception:
            log.exception("utterance failed")
            self._error = GenerationFailed("the utterance failed")
        finally:
            if not self._speaks_on(asyncio.current_task()):
                self._codec.finish()

    def _speaks_on(self, ending: asyncio.Task[None] | None) -> bool:
        """Whether another task follows that of the utterance which ends."""
        return self.suspended or ending is not self._speaking

    async def _has_text(self) -> bool:
        """Waits for a generation that was begun, or a token to begin one with; False when none will come."""
        if self._dropping is not None:
            await self._drop_text(*self._dropping)
        while self._generation is None and self._begin_error is None:
            if self._continuation is not None:
                return True
            text = self._tokens.has_text()
            self._place_marks()
            if self._at_max_frames and (text or self._length_reached):
                self._length_reached = True
                return False
            if text or self._tokens.ended:
                return text
            self._wakeup.clear()
            await self._wakeup.wait()
        return True

    def _place_marks(self) -> None:
        """Places marks of the text behind the frames generated so far; no generation is in progress."""
        if marks := self._tokens.take_marks():
            self._shaper.place(marks, self._frames.generated)
            self._codec.wake()

    @property
    def _at_max_frames(self) -> bool:
        return self._plan.max_frames is not None and self._frames.generated >= self._plan.max_frames

    def _begin_at_once(self) -> None:
        """Begins the first generation in this turn of the event loop; the task raises its error."""
        try:
            self._begin_generation()
        except Exception as error:
            self._begin_error = error
        self._wakeup.set()

    def _begin_generation(self) -> None:
        """Opens the next generation with the text that waits, or goes on with the one that lost its slot."""
        generation = self._slots.open_generation()
        self._generation, self.holds_slot = generation, True
        behind, self._continuation = self._continuation, None
        if behind is None:
            if self._tokens.has_text():
                self._place_marks()
            self._generations += 1
            self._frames.before = self._frames.generated
            self._cutter.begin_generation(self._frames.generated, self._tokens)
            behind = self._plan.codes.begin(self._plan.rules.limits.frames_floor)
        self._text_closed = behind is not None and behind.closed
        self._plan.prepare(generation, self._generations, behind)
        if not generation.frames:
            self._codec.offer_first_frame(partial(generation.decode_first, deliver=self._codec.push_pcm))
        self._grant_credit()
        self._feed_generation()

    async def _run_generation(self) -> None:
        over = False
        try:
            if self._begin_error is not None:
                raise self._begin_error
            if self._generation is None:
                self._begin_generation()
            assert self._generation is not None  # begun above
            frames = self._frames
            async for codes in self._generation:
                if self._at_max_frames:
                    # The talker's own limit applies at the end of the text, which may be still to come.
                    self._length_reached = True
                    break
                if not frames.generated:
                    self.milestones.first_frame_s = asyncio.get_running_loop().time()
                frames.generated += 1
                first = frames.generated == frames.before + 1
                self._plan.codes.add(codes)
                self._feed.on_frame(codes[0])
                self._codec.push(codes[None], decoded=self._generation.decoded and first)
            self._length_reached |= self._generation.finish_reason is FinishReason.LENGTH
            self._plan.codes.end(self._generation.finish_reason)
            ended_early = not (self._text_closed or self._length_reached)
            if ended_early:
                self._dropping = self._generation.tokens, self._generation.text_room
            else:
                self._end_segment()
            over = True
        except EngineLost:
            self._lose()
        finally:
            await self._leave_generation(over=over)

    async def _drop_text(self, taken: int, room: int) -> None:
        """Takes the text up to the cut of a generation that ended before, so that it does not matter when text comes.

        `taken`: tokens that the generation got; `room`: tokens that still fitted. Its slot is free meanwhile.
        """
        closed = False
        while not closed:
            ids, closed = self._tokens.next(taken, room)
            self._dropping = taken, room = taken + len(ids), room - len(ids)
            self._announce_text()
            if not closed:
                self._wakeup.clear()
                await self._wakeup.wait()
        self._dropping = None
        self._end_segment()

    def _end_segment(self) -> None:
        assert self._tokens.last is not None  # a generation begins with a token
        self._feed.on_segment_end(self._tokens.last.source_end)
        self._cutter.end_generation(self._frames.generated, self._tokens.last.source_end)

    def _announce_text(self) -> None:
        """Passes the text that was given to the talker to the word timing."""
        if self._tokens.last is not None:
            self._timing.push_text(self._text.source, self._tokens.last.source_end)

    async def _leave_generation(self, *, over: bool = False) -> None:
        """Gives the slot up; keeps how the generation goes on in another one unless it is `over`."""
        generation, self._generation, self._text_closed = self._generation, None, False
        if generation is not None:
            if not over:
                self._continuation = generation.continuation()
            await generation.aclose()
        self.holds_slot = False

    # Audio

    def __aiter__(self) -> UtteranceSpeech:
        return self

    async def __anext__(self) -> SpeechChunk:
        """Returns the next chunk; the last may have no audio, and hold the last words."""
        while (run := self._shaper.take()) is None:
            if self._audio_ended:
                if self._error is not None:
                    raise self._error
                return self._last_words()
            pcm, frames = await self._next_speech(), self._frames
            if self.lost and not len(pcm):
                return SpeechChunk(pcm, frames.delivered, 0)
            frames.delivered += len(pcm) // FRAME_SAMPLES
            self._shaper.push(pcm, frames.delivered + self._leading.frames)
        if self.milestones.first_pcm_s is None:
            self.milestones.first_pcm_s = asyncio.get_running_loop().time()
        return self._chunk(run.pcm, run.first_frame, run.frames)

    def _chunk(self, pcm: Pcm, first_frame: int, frames: int) -> SpeechChunk:
        """Returns a chunk with what is new: words with their place in the client's text, mouth shapes, notices."""
        timeline = self._shaper.timeline
        words = self._filter.spans.locate(timeline.locate(self._timing.take_words()))
        visemes = self._feed.take_visemes(timeline)
        return SpeechChunk(pcm, first_frame, frames, words, self._filter.take_notices(), visemes)

    async def _next_speech(self) -> Pcm:
        """Returns the codec's next audio that is not cut off; empty where nothing is there yet, or at the end."""
        try:
            pcm = await self._codec.__anext__()
        except StopAsyncIteration:
            self._audio_ended = True
            self._shaper.finish()
            return self._leading.rest()
        if not len(pcm):
            return pcm
        if not self._decoded:
            self._decoded = True
            self._grant_credit()
        if self._silence.push(pcm):
            self._end_in_silence()
        pcm = self._leading.cut(pcm)
        # Frames that are cut off or held back are not played, so they must not count as ahead of playback.
        self._pass_frames(self._leading.frames + self._leading.held)
        return pcm

    def _end_in_silence(self) -> None:
        """Lets the talker end with its next frame, if all text was spoken."""
        generation = self._generation
        made = self._frames.generated - self._frames.before
        if generation is not None and self._text_closed and made >= generation.text_frames:
            generation.cap(generation.frames)

    def _last_words(self) -> SpeechChunk:
        if self.finish_reason is not None or self._closed:
            raise StopAsyncIteration
        self.finish_reason = FinishReason.LENGTH if self._length_reached else FinishReason.END
        self._feed.finish()
        last = self._chunk(np.zeros(0, np.float32), self._frames.delivered, 0)
        if not (last.words or last.notices or last.visemes):
            raise StopAsyncIteration
        return last

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._pending.clear()
            self._shaper.clear()
            self._speaking.cancel()
            if self.suspended:
                self._on_end(self)
        try:
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await asyncio.wait({self._speaking})
                # A generation may have been begun before the task first ran.
                await self._leave_generation()
        except TimeoutError:
            log.error("the engine did not confirm the end of an utterance within %g s", CLOSE_DEADLINE_S)
        finally:
            await self._codec.aclose()
        await self._slots.wait_free()
