"""The speech of one utterance: text goes through filters to its generations, and their audio comes out in chunks.

It gives its slots up and takes others, and is closed, at any moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import numpy as np
from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm

from ..alignment.timing_feed import TimingFeed
from ..alignment.visemes import CodeVisemes
from ..alignment.word_timing import WordTiming
from ..codec.resumable_stream import ResumableStream
from ..credit import CreditRounds
from ..errors import EmptyText, GenerationFailed, TextTooLong, VoxgateError
from ..interface import FinishReason, LeasedSlots, Milestones, SpeechChunk, SpeechCut
from ..prosody.shaper import SpeechShaper
from ..retraction.speech_cutter import SpeechCutter
from ..silence import LeadingSilence, SilenceRun
from ..text.lexicon.filter import TextFilter, make_text_filter
from ..text.markup.writer import Mark, Piece
from ..text.text_turns import ALIGNMENT_CHARACTERS, PendingText, TextTurns
from ..text.utterance_text import SpeechToken, UtteranceText
from .generations import Generations
from .plan import FIRST_CHARACTERS, MAX_TRIMMED_FRAMES, FrameCounts, SpeechSlots, TakeSlots, UtterancePlan
from .read_ahead import ReadAhead
from .weak_callback import weak_callback

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
        read_ahead: ReadAhead | None = None,
        visemes: CodeVisemes | None = None,
    ) -> None:
        """`on_end` is called when the talker's slot is free for good, which may be before the last audio is played.

        `take_slots`: called by `resume`. `text_turns`: the budget for text that all utterances share. `visemes`: of
        `code_visemes`, where mouth shapes are asked for. `read_ahead`: what `text_filter` and `text` have got already.
        """
        self.seed, self.take_codes = plan.sampling.seed, plan.codes.take
        self.finish_reason: FinishReason | None = None
        self.milestones = Milestones()
        self.suspended = self.lost = False
        self._cut_short = False
        """Whether it gave its slots up with something left to generate or to decode."""
        self._plan, self._text, self._timing = plan, text, timing
        self._take_slots, self._credit, self._on_end = take_slots, credit, on_end
        # What calls back must not own the utterance, so that it is freed as soon as it has ended.
        on_lost = weak_callback(self._lose)
        self._codec = ResumableStream(slots.codec, on_lost, plan.prompt.reference.astype(np.int16))
        self._text_turns = text_turns or TextTurns()
        self._pending = PendingText(
            self._text_turns,
            weak_callback(self._push_now),
            weak_callback(self._flush_now),
            weak_callback(self._end_now),
            weak_callback(self._fail_text),
        )
        self.characters = 0
        """Characters of text accepted so far, pending ones included."""
        self._filter = text_filter or make_text_filter((), (), plan.prosody)
        self._read_ahead = read_ahead or ReadAhead()
        self._feed = TimingFeed(timing, visemes)
        self._shaper = SpeechShaper(plan.prosody, self._feed.on_audio)
        self._frames = FrameCounts()
        self._cutter = SpeechCutter(timing, self._filter, self._shaper.timeline)
        self._generations = Generations(
            plan,
            slots,
            self._codec,
            self._frames,
            self.milestones,
            feed=self._feed,
            shaper=self._shaper,
            cutter=self._cutter,
            on_text=weak_callback(self._on_text),
            on_lost=on_lost,
        )
        self._error: VoxgateError | None = None
        self._closed = False
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
        generations, frames = self._generations, self._frames
        has_text = self._pending or self._shaper.has_marks
        if self.lost or self._cut_short or has_text or not generations.lacks_text:
            return False
        return frames.delivered + self._leading.frames + self._leading.held >= generations.text_frames

    @property
    def holds_slot(self) -> bool:
        """Whether it holds one of the talker's slots now; between two generations it holds none."""
        return self._generations.holds_slot

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
        tokens, pieces = self._read_ahead.take()
        if tokens:
            self._add_tokens(tokens)
        pieces = [*pieces, *self._filter.push(self._read_ahead.skip(fragment))]
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
        self._generations.cut(mark)

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
        self._generations.end()
        if self.suspended and not (self.lost or self.needs_slot):
            self._codec.finish()

    def _add_tokens(self, tokens: Sequence[SpeechToken]) -> None:
        self._generations.add(tokens, may_begin=not (self._closed or self.suspended))

    def _on_text(self, source_end: int) -> None:
        """Passes the text that was given to the talker to the word timing."""
        self._timing.push_text(self._text.source, source_end)

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
        if self._cutter.keeps_all_read(text, self._generations.tokens, characters):
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
            self._credit.join(self._generations.grant_credit)

    # Its slots

    @property
    def needs_slot(self) -> bool:
        return self.suspended and (self._generations.needs_slot or bool(self._pending) or self._cut_short)

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
        await self._generations.leave()
        await self._codec.suspend()
        await self._generations.slots.wait_free()
        return True

    @property
    def _waits_in_slot(self) -> bool:
        """Whether it keeps its slots for text that may come, and for nothing else."""
        generation = self._generations.present
        ended = generation is not None and generation.finish_reason is not None
        return self.waiting_for_text and not ended and not self._speaking.done()

    def _lose(self) -> None:
        """The engine is lost: gives the slots up as they are. The iteration returns, and `resume` has to follow."""
        if not (self.suspended or self._closed):
            self.suspended = self.lost = True
            self._codec.wake()
            if asyncio.current_task() is not self._speaking:
                self._speaking.cancel()

    def resume(self, place: LeasedSlots | None = None) -> None:
        slots = self._generations.slots = self._take_slots(place, self._codec.context)
        self._codec.resume(slots.codec)
        self.suspended = self.lost = self._cut_short = False
        self._speaking = self._begin_speaking(self._speaking)

    def _begin_speaking(self, previous: asyncio.Task[None] | None = None) -> asyncio.Task[None]:
        task = asyncio.create_task(self._speak(previous), name="utterance")
        task.add_done_callback(lambda done: self._speaks_on(done) or self._on_end(self))
        return task

    # The task

    async def _speak(self, previous: asyncio.Task[None] | None) -> None:
        """Runs one generation after the other until the text has ended, behind `previous`, the task before."""
        try:
            if previous is not None:
                await asyncio.wait({previous})
                await self._generations.leave()
                self._generations.begin_error = None
            while not self.suspended and await self._generations.has_text():
                await self._generations.speak_next()
        except asyncio.CancelledError:
            # The task does not keep the error: it would keep the task's frames, and with them the utterance.
            pass
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
        self._generations.on_decoded()
        if self._silence.push(pcm):
            self._generations.end_in_silence()
        pcm = self._leading.cut(pcm)
        # Frames that are cut off or held back are not played, so they must not count as ahead of playback.
        self._pass_frames(self._leading.frames + self._leading.held)
        return pcm

    def _last_words(self) -> SpeechChunk:
        if self.finish_reason is not None or self._closed:
            raise StopAsyncIteration
        self.finish_reason = FinishReason.LENGTH if self._generations.length_reached else FinishReason.END
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
                await self._generations.leave()
        except TimeoutError:
            log.error("the engine did not confirm the end of an utterance within %g s", CLOSE_DEADLINE_S)
        finally:
            await self._codec.aclose()
        await self._generations.slots.wait_free()
