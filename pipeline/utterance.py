"""What an utterance is going to be, all of it settled before its first token."""
# TODO-DOC An utterance's tokens on their way to the talker, and where one generation's end and the next's begin.
# TODO-DOC One utterance's speech: its text split over generations, their frames joined in one codec stream. A
# TODO-DOC generation reads text as it arrives, one token a frame. It is closed, and the next begun in the same voice,
# TODO-DOC where the client flushes, where the voice's own limit asks for a new breath at a sentence's end, and where
# TODO-DOC its slot is full.

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES, Pcm

from .alignment.word_timing import WordTiming, WordTimingFeed
from .credit import CreditRounds
from .errors import GenerationFailed, VoxgateError
from .interface import FinishReason, Milestones, SpeechChunk
from .silence import LeadingSilence, SilenceRun
from .talker.generation import Generation, Sampling
from .talker.prompt import Prompt
from .text.utterance_text import SpeechToken, UtteranceText
from .voice_config import VoiceConfig


@dataclass(frozen=True, slots=True)
class UtterancePlan:
    """How one utterance is spoken; its text follows."""

    prompt: Prompt
    sampling: Sampling
    max_frames: int | None
    lookahead_frames: int
    """How far generation may run ahead of the listener."""
    rules: VoiceConfig
    paced: bool = True
    """Heard as it is made; False for speech that is only stored, as fast as it comes."""
    trim_silence: bool = False
    """Cut off the silence before the first word."""
    initial_burst_frames: int | None = None
    """Of those ahead, how many are made at once; each one heard then brings one more. None for all at once."""
    frames_before_first_pcm: int | None = None
    """How many are made before the first was decoded: the next would be in its way where both share a device."""

    def ahead(self, heard: int, *, sounded: bool) -> int:
        """How far generation may run ahead of the listener, who has heard so many frames; `sounded`: one was decoded.

        Everybody's first seconds, made at full speed, would be in the way of everybody's first word. Where steps are
        quick enough, what is ahead grows as it is heard, at twice the speed of speech.
        """
        if not sounded and self.frames_before_first_pcm is not None:
            return self.frames_before_first_pcm
        if self.initial_burst_frames is None or not self.paced:
            return self.lookahead_frames
        return min(self.lookahead_frames, self.initial_burst_frames + heard)

    def cap(self, tokens: int, before: int) -> int:
        """The most frames that a generation of so many tokens may have, after `before` frames of others."""
        cap = self.rules.limits.max_frames(tokens)
        return cap if self.max_frames is None else min(cap, max(0, self.max_frames - before))


@dataclass(frozen=True, slots=True)
class _Cut:
    """Stands among the tokens where those before are to be spoken to their end."""


class TokenQueue:
    """Cut where it is flushed, at the first sentence's end after `segment_tokens` tokens (0: nowhere), and where a
    generation has no more room. Synchronous.
    """

    def __init__(self, segment_tokens: int) -> None:
        self._segment_tokens = segment_tokens
        self._queue: deque[SpeechToken | _Cut] = deque()
        self.ended = False
        """No more is added."""
        self.last: SpeechToken | None = None
        """The last token that was handed out."""

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, tokens: Sequence[SpeechToken]) -> None:
        self._queue.extend(tokens)

    def cut(self) -> None:
        """What was added so far is to be spoken to its end."""
        self._queue.append(_Cut())

    def has_text(self) -> bool:
        """Whether a token waits for the next generation to begin with; cuts with nothing before them are dropped."""
        while self._queue and isinstance(self._queue[0], _Cut):
            self._queue.popleft()
        return bool(self._queue)

    def next(self, taken: int, room: int) -> tuple[list[int], bool]:
        """The ids that wait for a generation, which has `taken` so many and room for so many, and whether it is
        closed with them."""
        ids: list[int] = []
        closed = False
        while self._queue and not closed:
            item = self._queue[0]
            if isinstance(item, _Cut):
                closed = True
            elif len(ids) >= room:
                # No sentence ended in all the slot holds: cut where we are rather than lose text.
                closed = True
                break
            else:
                ids.append(item.id)
                self.last = item
                limit = self._segment_tokens
                closed = bool(limit) and item.sentence_end and taken + len(ids) >= limit
            self._queue.popleft()
        return ids, closed or (self.ended and not self._queue)


log = logging.getLogger(__name__)

FIRST_CHARACTERS = 16
"""Of a long first fragment, so many are read before the rest: enough for a token, and the talker begins with one."""

MAX_TRIMMED_FRAMES = 12
"""Most of the silence before the first word that is cut off when asked for, about 1 s."""


class UtteranceCodec(Protocol):
    """What an utterance asks of its codec stream."""

    @property
    def first_frame_slot(self) -> int | None: ...
    def push(self, codes: NDArray[np.int16], *, decoded: bool = False) -> None: ...
    def push_pcm(self, pcm: Pcm) -> None: ...
    def finish(self) -> None: ...
    def advance(self, frames_heard: int) -> None: ...
    async def __anext__(self) -> Pcm: ...
    async def aclose(self) -> None: ...


class UtteranceSpeech:
    """The `Speech` of `speech.py`, on the real talker and codec."""

    def __init__(
        self,
        plan: UtterancePlan,
        text: UtteranceText,
        clock: WordTiming,
        open_generation: Callable[[], Generation],
        codec: UtteranceCodec,
        rounds: CreditRounds,
        closed: Callable[[UtteranceSpeech], None],
    ) -> None:
        self.seed = plan.sampling.seed
        self.finish_reason: FinishReason | None = None
        self.milestones = Milestones()
        self.holds_slot = False
        """Whether one of the talker's slots is its own now; between two generations none is."""
        self._plan, self._text, self._clock = plan, text, clock
        self._open_generation, self._codec, self._rounds = open_generation, codec, rounds
        self._script = TokenQueue(plan.rules.text.segment_tokens)
        self._word_feed = WordTimingFeed(clock)
        self._news = asyncio.Event()
        self._generation: Generation | None = None
        self._text_closed = False
        self._frames = 0
        """Made by all generations."""
        self._before = 0
        """Of these, made before the generation under way."""
        self._heard = 0
        """Of these, what the listener is past: heard, or cut off."""
        self._sounded = False
        """Something was decoded."""
        self._delivered = 0
        """Given out: made and not cut off."""
        self._capped = False
        self._error: VoxgateError | None = None
        self._unopened: Exception | None = None
        """Why the first generation could not be begun at once."""
        self._over = False
        self._spoken_segments = 0
        self._leading = LeadingSilence(MAX_TRIMMED_FRAMES if plan.trim_silence else 0)
        self._silence = SilenceRun(plan.rules.limits.silent_frames)
        self._speaking = asyncio.create_task(self._speak(), name="utterance")
        # The talker's slot is free again when the last generation is, which may be before the last audio is played.
        self._speaking.add_done_callback(lambda _: closed(self))

    @property
    def characters(self) -> int:
        return self._text.characters

    @property
    def waiting_for_text(self) -> bool:
        if self._script.ended or self._script or self._text_closed:
            return False
        allowed = self._frames if self._generation is None else self._before + self._generation.allowed
        return self._delivered + self._leading.frames >= allowed

    @property
    def pace(self) -> float:
        """How long its words took against the ordinary, for the next utterance's word times."""
        return self._clock.pace

    def push_text(self, fragment: str) -> None:
        if not self.characters and len(fragment) > FIRST_CHARACTERS:
            self._text.check(fragment)
            self._take(self._text.push(fragment[:FIRST_CHARACTERS]))
            fragment = fragment[FIRST_CHARACTERS:]
        self._take(self._text.push(fragment))

    def flush(self) -> None:
        self._take(self._text.flush())
        if self._generation is not None or self._script:
            self._script.cut()
        self._feed()

    def end(self) -> None:
        try:
            self._take(self._text.end())
        finally:
            self._script.ended = True
            self._feed()
            self._news.set()

    def advance(self, frames: int) -> None:
        self._pass(frames + self._leading.frames)

    def _pass(self, frames: int) -> None:
        """The listener is past so many of the frames that were made."""
        if frames > self._heard:
            self._heard = frames
            self._codec.advance(frames)
            self._rounds.join(self._grant)

    def spoken_until(self, played_ms: int) -> int:
        return self._clock.spoken_until(played_ms)

    def _take(self, tokens: Sequence[SpeechToken]) -> None:
        self._script.add(tokens)
        if tokens and not (self._spoken_segments or self._over or self._full):
            self._begin_at_once()
        else:
            self._feed()

    def _begin_at_once(self) -> None:
        """The first generation, before the event loop's next turn; what goes wrong is told where others would be."""
        try:
            self._begin()
        except Exception as error:
            self._unopened = error
        self._news.set()

    def _feed(self) -> None:
        """Hand waiting tokens to the generation under way, up to where it is to be closed."""
        generation = self._generation
        if generation is None or self._text_closed or self._unopened is not None:
            self._news.set()
            return
        tokens, last = self._script.next(generation.tokens, generation.room)
        if last:
            generation.cap(self._plan.cap(generation.tokens + len(tokens), self._before))
            self._text_closed = True
        # Together, so that the engine is told once.
        generation.feed(tokens, last=last)
        if tokens and self.milestones.first_token_s is None:
            self.milestones.first_token_s = asyncio.get_running_loop().time()
        if self._script.last is not None:
            self._clock.push_text(self._text.source, self._script.last.source_end)

    def _grant(self) -> None:
        if self._generation is not None:
            limit = self._heard + self._plan.ahead(self._heard, sounded=self._sounded)
            self._generation.grant(limit - self._before, self._due - self._before)

    @property
    def _due(self) -> int:
        """Frames that are urgent no more: those heard or, where nobody listens, those that would have been."""
        first_frame_s = self.milestones.first_frame_s
        if self._plan.paced or first_frame_s is None:
            return self._heard
        elapsed_s = asyncio.get_running_loop().time() - first_frame_s
        return min(self._frames, int(elapsed_s * 1000) // FRAME_MS)

    async def _speak(self) -> None:
        try:
            while await self._has_text():
                await self._speak_segment()
        except VoxgateError as error:
            self._error = error
        except Exception:
            log.exception("an utterance failed")
            self._error = GenerationFailed("the utterance failed")
        finally:
            self._codec.finish()

    async def _has_text(self) -> bool:
        """Wait for a generation that was begun, or a token to begin one with; False when none will come."""
        while self._generation is None and self._unopened is None:
            text = self._script.has_text()
            if self._full and (text or self._capped):
                self._capped = True
                return False
            if text or self._script.ended:
                return text
            self._news.clear()
            await self._news.wait()
        return True

    @property
    def _full(self) -> bool:
        return self._plan.max_frames is not None and self._frames >= self._plan.max_frames

    def _begin(self) -> None:
        """Open the next generation, with the text that waits."""
        # Each segment draws its own noise, or like words would sound alike to the sample.
        sampling = replace(self._plan.sampling, seed=(self.seed + self._spoken_segments) % 2**63)
        self._spoken_segments += 1
        generation = self._generation = self._open_generation()
        self.holds_slot, self._text_closed, self._before = True, False, self._frames
        generation.prepare(self._plan.prompt, sampling, self._plan.rules.limits.frames_floor)
        if (slot := self._codec.first_frame_slot) is not None:
            generation.decode_first(slot, self._codec.push_pcm)
        self._grant()
        self._feed()

    async def _speak_segment(self) -> None:
        try:
            if self._unopened is not None:
                raise self._unopened
            if self._generation is None:
                self._begin()
            assert self._generation is not None
            async for codes in self._generation:
                if self._full:
                    # The talker's own cap waits for the end of the text; it is cut here where that is still to come.
                    self._capped = True
                    break
                if not self._frames:
                    self.milestones.first_frame_s = asyncio.get_running_loop().time()
                self._frames += 1
                self._word_feed.on_frame(codes[0])
                self._codec.push(codes[None], decoded=self._generation.decoded and self._frames == self._before + 1)
            self._capped |= self._generation.finish_reason is FinishReason.LENGTH
            assert self._script.last is not None
            self._word_feed.on_segment_end(self._script.last.source_end)
        finally:
            await self._leave_generation()

    async def _leave_generation(self) -> None:
        generation, self._generation, self._text_closed = self._generation, None, False
        if generation is not None:
            await generation.aclose()
        self.holds_slot = False

    def __aiter__(self) -> UtteranceSpeech:
        return self

    async def __anext__(self) -> SpeechChunk:
        """The last chunk may be without audio, to carry the last words."""
        first = self._delivered
        pcm = await self._next_pcm()
        if not len(pcm):
            if self._error is not None:
                raise self._error
            return self._last_words(first)
        if not first:
            self.milestones.first_pcm_s = asyncio.get_running_loop().time()
        self._delivered += len(pcm) // FRAME_SAMPLES
        self._word_feed.on_audio(pcm, first + self._leading.frames)
        return SpeechChunk(pcm, first, self._clock.take_words())

    async def _next_pcm(self) -> Pcm:
        """The next audio to be heard; empty at the end."""
        while True:
            try:
                pcm = await self._codec.__anext__()
            except StopAsyncIteration:
                return self._leading.rest()
            if not self._sounded:
                self._sounded = True
                self._grant()
            if self._silence.hear(pcm):
                self._end_silence()
            trimmed = self._leading.frames
            pcm = self._leading.cut(pcm)
            if self._leading.frames > trimmed:
                # What is cut off counts as heard, or its place in front of the listener would stay taken.
                self._pass(self._leading.frames)
            if len(pcm):
                return pcm

    def _end_silence(self) -> None:
        """All text was spoken, and nothing but silence comes: let the talker end with its next frame."""
        generation = self._generation
        if generation is not None and self._text_closed and self._frames - self._before >= generation.allowed:
            generation.cap(generation.frames)

    def _last_words(self, first: int) -> SpeechChunk:
        if self.finish_reason is not None or self._over:
            raise StopAsyncIteration
        self.finish_reason = FinishReason.LENGTH if self._capped else FinishReason.END
        self._clock.finish()
        words = self._clock.take_words()
        if not words:
            raise StopAsyncIteration
        return SpeechChunk(np.zeros(0, np.float32), first, words)

    async def aclose(self) -> None:
        if not self._over:
            self._over = True
            self._speaking.cancel()
        try:
            await asyncio.wait({self._speaking})
            # It may have been begun for a task that never came to its turn.
            await self._leave_generation()
        finally:
            await self._codec.aclose()
