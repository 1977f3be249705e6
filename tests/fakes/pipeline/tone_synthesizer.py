"""A synthesizer without a model: its PCM is a pure function of seed, text and frame number."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from voxgate.codecs.pcm import FRAME_MS, FRAME_SAMPLES, SAMPLE_RATE_HZ, Pcm
from voxgate.pipeline.alignment.visemes import VISEMES, VisemeTrack
from voxgate.pipeline.cloned_voice import ClonedVoice
from voxgate.pipeline.code_log import CodeLog, check_runs
from voxgate.pipeline.errors import (
    AtCapacity,
    BadVoice,
    EmptyText,
    EngineLost,
    EngineNotReady,
    GenerationFailed,
    TextTooLong,
    UnknownVoice,
)
from voxgate.pipeline.interface import (
    CodeRun,
    EngineState,
    FinishReason,
    LeasedSlots,
    Milestones,
    SpeechChunk,
    SpeechCut,
    SpeechRequest,
    VisemeTime,
    VoiceInfo,
    WordTime,
)
from voxgate.pipeline.prosody.shaper import SpeechShaper
from voxgate.pipeline.step_times import StepSummary
from voxgate.pipeline.utterance.weak_callback import weak_callback

DEFAULT_SEED = 7
LOWEST_HZ, PITCHES = 150, 2000
CHARACTER_VISEMES = np.repeat(np.arange(128, dtype=np.uint8)[:, None] % len(VISEMES), 4, axis=1)
"""A character has the same mouth shape in all four hops of its frames."""
MAX_FRAMES = 10_000
TONE_WIDTH = 8
"""Length of a speaker vector; its numbers do not change the audio."""


def frame_count(characters: int, frames_per_character: float) -> int:
    """Number of frames for a text of that length, at least one."""
    return max(1, math.ceil(characters * frames_per_character - 1e-9))


def tone_frame(seed: int, text: str, frame: int, frames_per_character: float) -> Pcm:
    """float32 [1920]: a tone of 80 ms whose pitch depends on the seed, the frame and the character spoken in it."""
    return code_tone(tone_code(seed, text, frame, frames_per_character))


def tone_code(seed: int, text: str, frame: int, frames_per_character: float) -> int:
    """The code of a frame, from 0 to PITCHES - 1."""
    character = text[min(len(text) - 1, int(frame / frames_per_character))]
    return (ord(character) * 37 + seed * 101 + frame * 13) % PITCHES


def code_tone(code: int) -> Pcm:
    """float32 [1920]: the tone of a code."""
    return _tone(LOWEST_HZ + code)


@lru_cache(PITCHES)  # a load test asks for thousands of frames a second
def _tone(frequency_hz: int) -> Pcm:
    n = np.arange(FRAME_SAMPLES, dtype=np.float64)
    pcm = (0.5 * np.sin(2 * np.pi * frequency_hz * n / SAMPLE_RATE_HZ)).astype(np.float32)
    pcm.flags.writeable = False
    return pcm


def make_every_tone() -> None:
    """Fill the cache of tones, 15 MiB, before a run whose memory is measured."""
    for frequency_hz in range(LOWEST_HZ, LOWEST_HZ + PITCHES):
        _tone(frequency_hz)


def tone_pcm(text: str, seed: int = DEFAULT_SEED, frames_per_character: float = 0.5) -> Pcm:
    """The whole utterance, float32 [frames * 1920]: streaming must give exactly these samples."""
    frames = frame_count(len(text), frames_per_character)
    return np.concatenate([tone_frame(seed, text, i, frames_per_character) for i in range(frames)])


@dataclass
class ToneScript:
    """How a `ToneSynthesizer` behaves. Times are seconds of the event loop in use, virtual or real."""

    frames_per_character: float = 0.5
    chunk_frames: int = 1
    lookahead_frames: int = 25
    frame_s: float = 0.0
    """Time to make one frame."""
    start_s: float = 0.0
    close_s: float = 0.0
    """Time that `aclose` takes; the slot is held until then."""
    fail_frame: int | None = None
    """Number of a frame that raises GenerationFailed."""
    max_frames: int | None = None
    """Most frames of an utterance."""
    alignment_turns: int = 0
    """Turns of the event loop that finding the spoken text takes."""
    start_failures: list[Exception] = field(default_factory=list)


class ToneSpeech:
    """One utterance."""

    def __init__(self, owner: ToneSynthesizer, request: SpeechRequest) -> None:
        self.request = request
        self.seed = DEFAULT_SEED if request.seed is None else request.seed
        self.pronunciations: tuple[str, ...] = ()
        self.finish_reason: FinishReason | None = None
        self.milestones = Milestones()
        self.characters = 0
        self.pauses = 0
        self.text = ""
        self.made = 0
        """Frames made."""
        self.heard = 0
        self.closed = False
        self.suspended = self.lost = False
        self.suspensions = 0
        self._loss_reported = True
        self.before_text: Callable[[str], object] | None = None
        """Called with each fragment, for work that the real text processing would do."""
        self.frames_drawn = 0
        """Frames whose codes were made here."""
        self._codes = CodeLog(request.past, keep=request.keep_codes)
        self._known: list[int] | None = None
        """Codes of the first frames, which the request has given; None before the first frame."""
        self._owner = owner
        self._script = owner.script
        self._cap = request.max_frames or owner.script.max_frames
        self._speakable = 0
        self._last_word = -1
        """Where the last word began whose time was reported."""
        self._alignment_turns = owner.script.alignment_turns
        self._ended = False
        self._failure: Exception | None = None
        self._changed = asyncio.Event()
        self._shaper = SpeechShaper(request.prosody, weak_callback(self._on_speech))
        self._visemes = VisemeTrack(CHARACTER_VISEMES) if request.visemes else None

    def take_codes(self) -> Sequence[CodeRun]:
        return self._codes.take()

    @property
    def waiting_for_text(self) -> bool:
        return not self._ended and self.made >= self._speakable

    @property
    def needs_slot(self) -> bool:
        return self.suspended and self.made < self._speakable

    async def suspend(self, *, anywhere: bool = False) -> bool:
        if self.suspended or self.closed or self._failure is not None or self.finish_reason is not None:
            return False
        if not (self.waiting_for_text or anywhere):
            return False
        self.suspended = True
        self.suspensions += 1
        await asyncio.sleep(self._script.close_s)
        self._owner.freed(self)
        return True

    def resume(self, place: LeasedSlots | None = None) -> None:  # noqa: ARG002 - it leases none
        self._owner.occupy(self)
        self.suspended = self.lost = False
        self._changed.set()

    def lose_engine(self) -> None:
        """The engine is lost; `resume` goes on with the next."""
        if not self.suspended:
            self.suspended = self.lost = True
            self._loss_reported = False
            self._changed.set()

    def push_text(self, fragment: str) -> None:
        assert not self._ended
        if len(self.text) + len(fragment) > self._owner.max_characters:
            raise TextTooLong(self._owner.max_characters, len(self.text) + len(fragment))
        if self.before_text is not None:
            self.before_text(fragment)
        self.text += fragment
        self.characters = len(self.text)
        self._speakable = max(self._speakable, int(self.characters * self._script.frames_per_character))
        self._changed.set()

    def flush(self) -> None:
        if self.text:
            self._speakable = frame_count(self.characters, self._script.frames_per_character)
        self._changed.set()

    def end(self) -> None:
        if not self.text.strip():
            raise EmptyText("nothing to say")
        self.flush()
        self._ended = True

    def advance(self, frames: int) -> None:
        frames = self._shaper.timeline.speech_samples(frames * FRAME_SAMPLES) // FRAME_SAMPLES
        assert frames >= self.heard, "playback does not go back"
        assert frames <= self.made, "frames that were not made cannot be played"
        self.heard = frames
        self._changed.set()

    def catch_up(self) -> bool:
        self._alignment_turns -= 1
        return self._alignment_turns >= 0

    def spoken_until(self, played_ms: int) -> int:
        speech_ms = self._shaper.timeline.speech_ms(played_ms)
        return min(self.characters, int(speech_ms / FRAME_MS / self._script.frames_per_character))

    def cut(self, text: str, samples: int, characters: int, *, final: bool) -> SpeechCut | None:
        """As of `Speech`: behind the blank after a word. The next speech says the rest of a word that is not made."""
        per_character, timeline = self._script.frames_per_character, self._shaper.timeline
        fixed = -(-timeline.speech_samples(samples) // FRAME_SAMPLES)
        runs = tuple(replace(run, end=None) for run in self._codes.runs())
        if int(characters * per_character) >= self.made or characters >= len(text):
            return SpeechCut(min(characters, len(text)), 0, 0, runs, divides=False)
        if not fixed:
            return SpeechCut(0, 0, 0, (), divides=True)
        ends = [at for at in range(1, len(text) + 1) if at == len(text) or text[at - 1].isspace()]
        possible = [end for end in ends if frame_count(end, per_character) >= fixed]
        end = max((end for end in possible if end <= characters), default=possible[0])
        frames = frame_count(end, per_character)
        if frames > self.made and not final:
            return None
        past = tuple(replace(run, codes=run.codes[:frames]) for run in runs)
        audio = timeline.audio_before(frames * FRAME_SAMPLES)
        settled = audio - (SAMPLE_RATE_HZ // 10 if timeline.stretched else 0)
        return SpeechCut(end, audio, settled, past, divides=True)

    def lose(self, failure: Exception) -> None:
        self._failure = failure
        self._changed.set()

    def __aiter__(self) -> ToneSpeech:
        return self

    async def __anext__(self) -> SpeechChunk:
        while True:
            if self._script.frame_s and (frames := self._next_frames()) > 0:
                await asyncio.sleep(self._script.frame_s * frames)
            if (chunk := self.step()) is not None:
                if not chunk.first_frame and chunk.frames:
                    self.milestones = Milestones(*3 * (asyncio.get_running_loop().time(),))
                return chunk
            self._changed.clear()
            await self._changed.wait()

    def step(self) -> SpeechChunk | None:
        """The next chunk; None while text or credit is missing. Raises what iterating raises."""
        if self._failure is not None:
            raise self._failure
        if not self._loss_reported:
            self._loss_reported = True
            return SpeechChunk(np.zeros(0, np.float32), self.made, 0)
        ended = self._ended and self.made >= self._speakable
        if ended or (self._cap is not None and self.made >= self._cap):
            self._shaper.finish()
            if (rest := self._shaper.take()) is not None:
                return SpeechChunk(rest.pcm, self.made, 0)
            if last := self._take_visemes(ended=True):
                return SpeechChunk(np.zeros(0, np.float32), self.made, 0, visemes=last)
            self.finish_reason = FinishReason.END if ended else FinishReason.LENGTH
            raise StopAsyncIteration
        frames = self._next_frames()
        return self._make(frames) if frames > 0 else None

    def _next_frames(self) -> int:
        if self.suspended:
            return 0
        frames = min(self._speakable - self.made, self._script.chunk_frames)
        frames = min(frames, self.heard + self._script.lookahead_frames - self.made)
        return frames if self._cap is None else min(frames, self._cap - self.made)

    def _make(self, frames: int) -> SpeechChunk:
        first = self.made
        if self._script.fail_frame is not None and first + frames > self._script.fail_frame:
            raise GenerationFailed("scripted failure")
        per_character = self._script.frames_per_character
        codes = [self._code(i, per_character) for i in range(first, first + frames)]
        for code in codes:
            self._codes.add(np.array([code], np.int16))
        tones = [code_tone(code) for code in codes]
        self.made += frames
        pcm = tones[0] if len(tones) == 1 else np.concatenate(tones)
        self._shaper.push(pcm, self.made)
        run = self._shaper.take()
        shaped = pcm[:0] if run is None else run.pcm
        words = self._shaper.timeline.locate(self._words(first, self.made))
        return SpeechChunk(shaped, first, frames, words, visemes=self._take_visemes())

    def _on_speech(self, pcm: Pcm, frame: int) -> None:
        if self._visemes is not None:
            frames = np.arange(frame, frame + len(pcm) // FRAME_SAMPLES)
            spoken = (frames / self._script.frames_per_character).astype(int).clip(max=len(self.text) - 1)
            self._visemes.push(np.array([ord(self.text[character]) % 128 for character in spoken], np.int16))

    def _take_visemes(self, *, ended: bool = False) -> Sequence[VisemeTime]:
        return () if self._visemes is None else self._visemes.take(self._shaper.timeline, ended=ended)

    def _code(self, frame: int, frames_per_character: float) -> int:
        """The code of a frame: the one that is known, or a new one."""
        if self._known is None:
            past = self._codes.begin(0)
            self._known = [] if past is None else [int(codes[0]) for codes in past.frames]
        if frame < len(self._known):
            return self._known[frame]
        self.frames_drawn += 1
        return tone_code(self.seed, self.text, frame, frames_per_character)

    def _words(self, first: int, last: int) -> list[WordTime]:
        words = []
        # Only the text of these frames and one word before it, so that the cost of a frame does not grow with the text.
        per_frame = self._script.frames_per_character
        offset = self.text.rfind(" ", 0, max(0, int(first / per_frame) - 1)) + 1
        while offset < len(self.text) and int(offset * per_frame) < last:
            end = self.text.find(" ", offset)
            begin, end = offset, len(self.text) if end < 0 else end
            offset = end + 1
            frame = int(max(begin, end - 1) * per_frame)
            # A flush within a frame may have had it spoken before the word that ends in it came.
            if end > begin and (first <= frame < last or (frame < first and begin > self._last_word)):
                self._last_word = begin
                begin_ms = int(begin * per_frame) * FRAME_MS
                words.append(WordTime(self.text[begin:end], begin, end, begin_ms, (frame + 1) * FRAME_MS))
        return words

    async def aclose(self) -> None:
        if self.closed:
            return
        self.lose(EngineLost("closed"))
        await asyncio.sleep(self._script.close_s)
        self.closed = True
        self._owner.freed(self)


class PreparedTone(NamedTuple):
    """A speech that was not opened yet."""

    synthesizer: ToneSynthesizer
    request: SpeechRequest
    beginning: str

    def open(self, place: LeasedSlots | None = None) -> ToneSpeech:
        return self.synthesizer.open(self.request, place)


class ToneSynthesizer:
    """Two voices and `slots` concurrent speeches. `lose` ends the engine."""

    def __init__(self, script: ToneScript | None = None, *, slots: int = 4, max_characters: int = 2000) -> None:
        self.script = script or ToneScript()
        self.voices: dict[str, VoiceInfo] = {
            "ada": VoiceInfo("ada", ("auto", "english"), "a tone", visemes=True),
            "bob": VoiceInfo("bob", ("auto", "english", "german"), "another tone", instructions=True),
        }
        self.default_voice = "ada"
        self.identity = "tones"
        self.slots = self.capacity = slots
        self.capacity_changes: Mapping[str, int] = {}
        self.step_times: Mapping[str, Sequence[StepSummary]] = {}
        self.max_characters = max_characters
        self.open_speeches: dict[ToneSpeech, None] = {}
        """In the order of opening, so that a simulation is the same in every process."""
        self.speeches: list[ToneSpeech] = []
        """Every speech that was opened."""
        self.rehearsed: list[SpeechRequest] = []
        self.expected = 0
        """Times that an utterance was expected to begin."""
        self.prepared: list[PreparedTone] = []
        """Every one that was prepared before it had a slot."""
        self.most_open = 0
        self.starts = 0
        self._state = EngineState.STARTING

    @property
    def state(self) -> EngineState:
        return self._state

    start_progress = ""

    @property
    def free_slots(self) -> int:
        return self.slots - len(self.open_speeches)

    async def start(self) -> None:
        self.starts += 1
        self._state = EngineState.STARTING
        await asyncio.sleep(self.script.start_s)
        if self.script.start_failures:
            raise self.script.start_failures.pop(0)
        self._state = EngineState.READY

    async def close(self) -> None:
        self.lose()

    def lose(self) -> None:
        """End the engine, and with it the slots of all speeches."""
        self._state = EngineState.DEAD
        for speech in tuple(self.open_speeches):
            speech.lose_engine()
        self.open_speeches.clear()

    def freed(self, speech: ToneSpeech) -> None:
        """Confirm the end of a speech."""
        self.open_speeches.pop(speech, None)

    def add_voice(self, voice: ClonedVoice) -> None:
        if len(voice.speaker_vector) != TONE_WIDTH:
            raise BadVoice("a vector of another model", param="speaker_vector")
        self.voices[voice.name] = VoiceInfo(
            voice.name, ("auto", *voice.languages), voice.description, cloned=True, ownership=voice.ownership
        )

    def remove_voice(self, name: str) -> None:
        if name not in self.voices or not self.voices[name].cloned:
            raise UnknownVoice(f"no voice {name!r} was added", param="voice")
        del self.voices[name]

    def expect_utterance(self) -> None:
        self.expected += 1

    def rehearse(self, request: SpeechRequest) -> None:
        self.rehearsed.append(request)

    def prepare(self, request: SpeechRequest, beginning: str = "") -> PreparedTone:
        self.prepared.append(PreparedTone(self, request, beginning))
        return self.prepared[-1]

    def open(self, request: SpeechRequest, place: LeasedSlots | None = None) -> ToneSpeech:  # noqa: ARG002 - has slots of its own
        check_runs(request.past, groups=1, codebook=PITCHES, max_frames=MAX_FRAMES)
        speech = ToneSpeech(self, request)
        self.occupy(speech)
        self.speeches.append(speech)
        return speech

    def occupy(self, speech: ToneSpeech) -> None:
        """Give a speech a slot."""
        if not self._state.speaks:
            raise EngineNotReady("not ready", retry_after_ms=1000)
        if len(self.open_speeches) >= self.slots:
            raise AtCapacity("no slot")
        self.open_speeches[speech] = None
        self.most_open = max(self.most_open, len(self.open_speeches))
