"""What the gateway sees of the pipeline: a synthesizer that opens one `Speech` per utterance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from voxgate.codecs.pcm import FRAME_SAMPLES, Pcm

from .step_times import StepSummary


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """Sampling of one utterance; None takes the voice's own default (generation_config.json)."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    predictor_temperature: float | None = None
    predictor_top_k: int | None = None
    predictor_top_p: float | None = None


class TextLayout(StrEnum):
    """How the talker reads its text."""

    STREAMING = "streaming"
    """One token a frame, beside the speech: it begins with the first token."""
    NON_STREAMING = "non_streaming"
    """All of it before the first frame: it begins when the text has ended."""


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """One utterance as asked for; its text follows through `Speech.push_text`."""

    voice: str
    language: str = "auto"
    instructions: str | None = None
    layout: TextLayout = TextLayout.STREAMING
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    seed: int | None = None
    max_frames: int | None = None
    trim_silence: bool = False
    """Cut off the silence before the first word."""
    words: bool = False
    """Tell when words are heard, with the chunks; `Speech.spoken_until` answers in any case."""
    normalise: bool = False
    """Say numbers, dates, money and the like in words of `language`, where the voice has no spoken form of its own."""
    paced: bool = True
    """Whether somebody hears it as it is made; speech for a file gives way to it."""


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    """A voice on offer: `languages` always contains "auto"."""

    name: str
    languages: tuple[str, ...]
    description: str = ""
    instructions: bool = False
    needs_instructions: bool = False
    cloned: bool = False
    """Made of a recording, not the model's own."""
    display: str = ""
    """What to call it where people choose; empty: its name."""


class FinishReason(StrEnum):
    END = "end"
    """The talker ended its speech by itself."""
    LENGTH = "length"
    """The cap against endless speech cut it (a text-proportional number of frames)."""


@dataclass(frozen=True, slots=True)
class WordTime:
    """One word of the client's text and when it is heard; approximate, and never revised once given out.

    `start` and `end` are offsets into the text as the client sent it, in characters.
    """

    text: str
    start: int
    end: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class SpeechChunk:
    """A run of whole frames.

    `pcm`: float32 [n * 1920] in [-1, 1], 24 kHz mono. `first_frame` counts from 0 without gap over the utterance.
    """

    pcm: Pcm
    first_frame: int
    words: Sequence[WordTime] = ()

    @property
    def frames(self) -> int:
        return len(self.pcm) // FRAME_SAMPLES


@dataclass(slots=True)
class Milestones:
    """When a speech came how far, on the event loop's clock; None while it has not."""

    first_token_s: float | None = None
    """The first text token went to the talker."""
    first_frame_s: float | None = None
    """The talker's first frame was there."""
    first_pcm_s: float | None = None
    """The codec had decoded the first chunk."""


@dataclass(frozen=True, slots=True)
class LeasedSlots:
    """Where an utterance is spoken whose slots are lent by another process: one of the talker's, one of the codec's."""

    talker: int
    codec: int


class Speech(Protocol):
    """One utterance being spoken. Not thread-safe; every method belongs to the event loop.

    Iterate it for `SpeechChunk`s; the iteration ends after the last frame, then `finish_reason` is set. It raises
    `EngineLost` or `GenerationFailed` in mid-iteration when the engine fails. Cancelling an iteration loses nothing;
    `aclose` is what stops the speech.
    """

    seed: int
    """The seed in force, chosen by the pipeline when the request named none."""
    finish_reason: FinishReason | None
    milestones: Milestones

    @property
    def characters(self) -> int:
        """Characters of text accepted so far."""

    @property
    def waiting_for_text(self) -> bool:
        """Everything that the text so far allows was given out: only more text, a flush or the end brings more."""

    def push_text(self, fragment: str) -> None:
        """Accept any fragment, down to a character. Raises TextTooLong (nothing of the fragment is taken)."""

    def flush(self) -> None:
        """Speak all text accepted so far to its end, without waiting for more."""

    def end(self) -> None:
        """No more text comes. Raises EmptyText when there was nothing to say (the speech then has no frames)."""

    def advance(self, frames: int) -> None:
        """The listener has heard (unpaced: was sent) `frames` frames in all; generation may run ahead from there."""

    def spoken_until(self, played_ms: int) -> int:
        """Offset in the client's text of the first character not yet heard at `played_ms`; approximate.

        Also answers after the last frame and after `aclose`: the listener is behind.
        """

    def __aiter__(self) -> Speech: ...

    async def __anext__(self) -> SpeechChunk: ...

    async def aclose(self) -> None:
        """Stop generating and give the talker's slot back; returns when the engine confirmed. Safe to call twice."""


class EngineState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    """It speaks, but its steps take longer than their sound: what is under way may run dry, and nothing new begins."""
    DEAD = "dead"

    @property
    def speaks(self) -> bool:
        return self in (EngineState.READY, EngineState.DEGRADED)


class Synthesizer(Protocol):
    """One voice model with its engine processes."""

    voices: Mapping[str, VoiceInfo]
    """Those on offer now, by lower-case name; they may come and go."""
    slots: int
    """The most utterances that there can ever be at once."""
    max_characters: int
    """Text limit of one utterance."""

    @property
    def default_voice(self) -> str:
        """The voice of those who ask for none; empty when there is no voice yet."""

    @property
    def state(self) -> EngineState: ...

    @property
    def capacity(self) -> int:
        """Utterances that can be spoken at once without a gap, as far as is known: 1 to `slots`."""

    @property
    def step_times(self) -> Mapping[str, Sequence[StepSummary]]:
        """How long the newest steps of each stage took, by batch size."""

    @property
    def free_slots(self) -> int:
        """Slots that nobody holds or will need again, not even an utterance whose end is not confirmed yet."""

    async def start(self) -> None:
        """Load everything; returns when speech can be opened. Raises EngineError, leaving no process behind."""

    async def close(self) -> None:
        """Stop every engine process; open speeches raise EngineLost."""

    def open(self, request: SpeechRequest, place: LeasedSlots | None = None) -> Speech:
        """Begin an utterance in a free slot; in `place` where slots are lent.

        Raises UnknownVoice, UnknownLanguage, UnsupportedOption, AtCapacity (no slot free), EngineNotReady.
        """
