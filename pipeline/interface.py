"""What the gateway sees of the pipeline: a `Synthesizer` that opens one `Speech` per utterance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from voxgate.codecs.pcm import Pcm

from .step_times import StepSummary
from .text.lexicon.lexicon import Lexicon


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """Sampling of one utterance; None takes the voice model's default (generation_config.json)."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    predictor_temperature: float | None = None
    predictor_top_k: int | None = None
    predictor_top_p: float | None = None


AUTO_LANGUAGE = "auto"
"""The language of requests that name none."""


class TextLayout(StrEnum):
    """How the talker reads its text (docs/qwen3_tts.md, section 4)."""

    STREAMING = "streaming"
    """One token per frame, while it speaks: speech begins with the first token."""
    NON_STREAMING = "non_streaming"
    """All of it before the first frame: speech begins when the text has ended."""


class MarkupDialect(StrEnum):
    """Markup that is recognised in the text (docs/text.md, "Markup")."""

    SSML = "ssml"
    ELEVENLABS = "elevenlabs"
    DEEPGRAM = "deepgram"
    CARTESIA = "cartesia"
    RIME = "rime"
    MARKDOWN = "markdown"
    HTML = "html"
    THINK = "think"


MIN_RATE, MAX_RATE = 0.5, 2.0
"""Slowest and fastest rate of speech: beyond, joins of a stretched word are heard."""
MAX_VOLUME = 2.0
"""Loudest volume, +6 dB; the quietest is 0, which is silence."""


@dataclass(frozen=True, slots=True)
class Prosody:
    """How fast and how loud speech is, relative to the voice's own; 1 leaves its samples as they are."""

    rate: float = 1.0
    """MIN_RATE to MAX_RATE; the pitch stays."""
    volume: float = 1.0
    """Factor of the amplitude, 0 to MAX_VOLUME; what would clip is softly limited."""


NATURAL = Prosody()
"""The voice's own prosody."""


class FinishReason(StrEnum):
    """Why a speech ended."""

    END = "end"
    """The talker ended it."""
    LENGTH = "length"
    """The limit of frames, in proportion to the text or set by the request, cut it."""


@dataclass(frozen=True, slots=True, eq=False)
class CodeRun:
    """Codes of consecutive frames of one generation; an utterance is a row of generations, numbered from 0.

    `first`: number of the first frame in its generation. `codes`: int16 [frames, groups]. `end`: how the generation
    ended behind these frames; None while it goes on.
    """

    generation: int
    first: int
    codes: NDArray[np.int16]
    end: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """One utterance as requested; its text follows through `Speech.push_text`."""

    voice: str
    """Empty for the default voice."""
    language: str = AUTO_LANGUAGE
    instructions: str | None = None
    layout: TextLayout = TextLayout.STREAMING
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    seed: int | None = None
    max_frames: int | None = None
    trim_silence: bool = False
    """Cuts off the silence before the first word."""
    words: bool = False
    """Reports word times with the chunks; `Speech.spoken_until` answers in any case."""
    visemes: bool = False
    """Reports mouth shapes with the chunks, if `VoiceInfo.visemes`."""
    normalise: bool = False
    """Expands numbers, dates, money and the like to words of `language`, if the voice has no spoken form of its own."""
    paced: bool = True
    """Whether the audio is played as it is made; other speech, such as a file's, gives way to it."""
    markup: tuple[MarkupDialect, ...] = ()
    """Markup of the text that is not read aloud."""
    prosody: Prosody = NATURAL
    """Rate and volume up to where markup changes them."""
    lexica: tuple[Lexicon, ...] = ()
    """Terms of the text that are spoken in another form; of several for a term, the first lexicon counts."""
    keep_codes: bool = False
    """Whether `Speech.take_codes` is called."""
    past: tuple[CodeRun, ...] = ()
    """Codes of the same utterance in another process, from its first frame on: these are not made again."""
    voice_digest: str = ""
    """Of a cloned voice, which the utterance keeps while it is spoken, even if it is removed or replaced."""


@dataclass(frozen=True, slots=True)
class VoiceOwnership:
    """The API key that a cloned voice belongs to. Keys are given by name; None where none are configured."""

    owner: str = ""
    """Empty for a voice of every key."""
    shared: bool = False
    """Whether other keys may list the voice and speak with it."""

    def usable_by(self, key: str | None) -> bool:
        return self.shared or self.removable_by(key)

    def removable_by(self, key: str | None) -> bool:
        return key is None or self.owner in ("", key)


EVERY_KEY = VoiceOwnership()
"""The ownership of a model's own voices, and of cloned ones without an owner."""


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    """A voice on offer; `languages` always contains "auto"."""

    name: str
    languages: tuple[str, ...]
    description: str = ""
    instructions: bool = False
    needs_instructions: bool = False
    visemes: bool = False
    """Whether the mouth shapes of its speech are known."""
    cloned: bool = False
    """Made from a recording, not the model's own."""
    display: str = ""
    """Name to show to users; the voice's name if empty."""
    gender: str = ""
    """"female", "male", or empty if it is not known."""
    accent: str = ""
    """Such as "american"; empty if it is not known."""
    ownership: VoiceOwnership = EVERY_KEY
    digest: str = ""
    """Of a cloned voice: equal where it speaks alike; empty for the model's own."""


@dataclass(frozen=True, slots=True)
class WordTime:
    """One word of the client's text and when it is heard; approximate, and never revised.

    `start` and `end` are offsets in characters into the text as the client sent it.
    """

    text: str
    start: int
    end: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class VisemeTime:
    """A mouth shape, one of Oculus' fifteen visemes, from `start_ms` of the audio to the next; never revised."""

    viseme: str
    start_ms: int


@dataclass(frozen=True, slots=True)
class SpeechChunk:
    """A run of audio.

    `pcm`: float32 [n] in [-1, 1], 24 kHz mono; whole frames at a rate of 1 and without pauses, otherwise any number of
    samples. `first_frame` counts the talker's frames without gaps from the utterance's start; `frames` of them became
    this audio.
    """

    pcm: Pcm
    first_frame: int
    frames: int
    words: Sequence[WordTime] = ()
    notices: Sequence[str] = ()
    """What the text asked for and the speech does not do, in words; each is given once."""
    visemes: Sequence[VisemeTime] = ()
    """Mouth shapes up to the end of this audio, or further, that no chunk before had."""


@dataclass(slots=True)
class Milestones:
    """When a speech reached its first stages, on the event loop's clock; None before that."""

    first_token_s: float | None = None
    """The first text token was given to the talker."""
    first_frame_s: float | None = None
    """The talker's first frame arrived."""
    first_pcm_s: float | None = None
    """The first chunk was decoded."""


@dataclass(frozen=True, slots=True, eq=False)
class SpeechCut:
    """Where a speech can be cut, so that other text follows: another speech with this `past` goes on there."""

    characters: int
    """Length of the text that is spoken up to there."""
    samples: int
    """Samples of audio at 24 kHz up to there."""
    settled_samples: int
    """Of these, those that are the same whatever follows."""
    past: tuple[CodeRun, ...]
    divides: bool
    """Whether the text is to be flushed there. False where the text to be kept was not read to its end yet: then the
    speech goes on as it would have, `characters` are all of that text, and the samples are 0."""


@dataclass(slots=True)
class LeasedSlots:
    """Slots that another process leased for an utterance: one of the talker's and one of the codec's.

    `prompt_row`: of a prefilled prompt that is reserved for its first generation, until `take_prompt_row`.
    """

    talker: int
    codec: int
    prompt_row: int | None = None

    def take_prompt_row(self) -> int | None:
        """The reserved row, once: another speech in the same slots has none."""
        row, self.prompt_row = self.prompt_row, None
        return row


class Speech(Protocol):
    """One utterance being spoken. Not thread-safe; every method belongs to the event loop.

    Iterate it for `SpeechChunk`s; the iteration ends after the last frame, then `finish_reason` is set. It raises
    GenerationFailed when this speech fails. Cancelling an iteration loses nothing; `aclose` stops the speech.
    """

    seed: int
    """The seed in use, chosen by the pipeline when the request had none."""
    finish_reason: FinishReason | None
    milestones: Milestones
    lost: bool
    """Whether the engine was lost, so that it has no slots and `resume` has to follow. The iteration returns the
    audio that is there, a chunk without audio, and waits."""

    @property
    def characters(self) -> int:
        """Characters of text accepted so far."""

    @property
    def pronunciations(self) -> Sequence[str]:
        """Terms of the request's lexica that were replaced so far, each once; a bounded number."""

    @property
    def pauses(self) -> int:
        """Pauses in the text that was processed so far."""

    def take_codes(self) -> Sequence[CodeRun]:
        """Returns the codes made since the last call, without those of the request; none unless it keeps them."""

    @property
    def waiting_for_text(self) -> bool:
        """Whether all audio that the text so far allows was returned; more text, a flush or the end brings more."""

    @property
    def needs_slot(self) -> bool:
        """Whether it is suspended and has something to speak."""

    def push_text(self, fragment: str) -> None:
        """Accepts any fragment of text. Raises TextTooLong; then nothing of the fragment is taken."""

    def flush(self) -> None:
        """Speaks all text accepted so far to its end, without waiting for more."""

    def end(self) -> None:
        """Declares that no more text comes.

        EmptyText is raised when there is nothing to say, here or, where text is still being processed, by the
        iteration; then there are no frames.
        """

    def advance(self, frames: int) -> None:
        """Reports that `frames` frames of audio (80 ms) in all were heard (unpaced: sent).

        Generation may run ahead from there.
        """

    def catch_up(self) -> bool:
        """Does a part of the work that `spoken_until` needs.

        Returns whether more is left, for later turns of the event loop.
        """

    def spoken_until(self, played_ms: int) -> int:
        """Returns the offset in the client's text of the first character not yet heard at `played_ms`; approximate.

        Also answers after the last frame and after `aclose`, because playback is behind generation.
        """

    def cut(self, text: str, samples: int, characters: int, *, final: bool) -> SpeechCut | None:
        """Returns where the speech can be cut if all but the first `characters` characters of its text are taken back.

        `text`: all text accepted so far. `samples`: audio at 24 kHz that cannot be taken back; the cut is not before
        it. Returns None, unless it is `final`, while the end of a word is not made yet. Changes nothing; call it when
        `catch_up` has nothing left.
        """

    def __aiter__(self) -> Speech: ...

    async def __anext__(self) -> SpeechChunk: ...

    async def suspend(self, *, anywhere: bool = False) -> bool:
        """Gives its slots up while it waits for text; returns when the engine has confirmed it.

        Returns False, and keeps them, when it does not wait for text, or cannot be continued elsewhere. With `anywhere`
        it gives them up in the middle of a word too, and `needs_slot` is then true. Afterwards all other methods may be
        called, and the iteration waits; it ends where `end` leaves nothing to speak. Cancelling it leaves `aclose` to
        be called.
        """

    def resume(self, place: LeasedSlots | None = None) -> None:
        """Goes on in a free slot, or in the leased slots `place`, as if it had kept its own: no sample differs.

        Raises AtCapacity (no free slot), EngineNotReady; then it may be called again, or `aclose`.
        """

    async def aclose(self) -> None:
        """Stops generating and releases the talker's slot; returns when the engine has confirmed, or after a deadline.

        Safe to call twice.
        """


class EngineState(StrEnum):
    """State of the speech engine."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    """It speaks, but its steps take longer than their audio: playback may have gaps, and no utterance is admitted."""
    DEAD = "dead"

    @property
    def speaks(self) -> bool:
        return self in (EngineState.READY, EngineState.DEGRADED)


class PreparedSpeech(Protocol):
    """An utterance that lacks only its slots."""

    def open(self, place: LeasedSlots | None = None) -> Speech:
        """Begins it, once. As `Synthesizer.open`; raises AtCapacity, EngineNotReady."""


class Synthesizer(Protocol):
    """One voice model with its engine processes."""

    voices: Mapping[str, VoiceInfo]
    """Voices on offer by lower-case name; they change while it runs."""
    slots: int
    """The most utterances that there can ever be at once."""
    max_characters: int
    """Text limit of one utterance."""
    identity: str
    """Of the model: equal where the same text, options and seed give the same codes."""

    @property
    def default_voice(self) -> str:
        """The voice of requests that name none; empty while there is no voice."""

    @property
    def state(self) -> EngineState: ...

    @property
    def start_progress(self) -> str:
        """What a start in progress does, and how long it still takes if that is known; empty otherwise."""

    @property
    def capacity(self) -> int:
        """Utterances that can be spoken at once without a gap, as far as is known: 1 to `slots`."""

    @property
    def capacity_changes(self) -> Mapping[str, int]:
        """Changes of `capacity` since the start, by cause."""

    @property
    def step_times(self) -> Mapping[str, Sequence[StepSummary]]:
        """Durations of each stage's newest steps, by batch size."""

    @property
    def free_slots(self) -> int:
        """Slots that no utterance holds or will need again, not even one whose end is not confirmed yet."""

    async def start(self) -> None:
        """Loads everything; returns when speech can be opened. Raises EngineError; then no process is left behind."""

    async def close(self) -> None:
        """Stops every engine process; open speeches are `lost`."""

    def rehearse(self, request: SpeechRequest) -> None:
        """Processes a text as for `request`, so that patterns are compiled before the first utterance."""

    def expect_utterance(self) -> None:
        """An utterance will probably begin within milliseconds: the engine may delay other work by a few of them."""

    def prepare(self, request: SpeechRequest, beginning: str = "") -> PreparedSpeech:
        """Does of `open` what needs no slot, and reads the beginning of the text. Holds nothing to be released.

        `beginning`: text that the speech will get first, in `push_text`.

        Raises UnknownVoice, UnknownLanguage, UnsupportedOption, CheckpointRefused.
        """

    def open(self, request: SpeechRequest, place: LeasedSlots | None = None) -> Speech:
        """Begins an utterance in a free slot, or in the leased slots `place`.

        Raises UnknownVoice, UnknownLanguage, UnsupportedOption, AtCapacity (no free slot), EngineNotReady, and
        CheckpointRefused for codes that the model cannot have made.
        """
