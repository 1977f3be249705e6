"""Options of a `start` message, and the objects in its fields."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints
from voxgate.codecs.format import OutputFormat
from voxgate.codecs.pcm import FRAME_MS
from voxgate.pipeline.interface import MAX_RATE, MAX_VOLUME, MIN_RATE, MarkupDialect, SamplingOptions
from voxgate.pipeline.text.lexicon.lexicon import MAX_SPOKEN_CHARACTERS, MAX_TERM_CHARACTERS

from .parsing import Count, MessageId, Name, StrictMessage


class SamplingFields(StrictMessage):
    """Sampling options in a `start` message; None selects the voice's default."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=1, le=2)] | None = None
    predictor_temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    predictor_top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    predictor_top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_frames: Annotated[int, Field(ge=1, lt=2**31)] | None = None

    def options(self) -> SamplingOptions:
        """Returns the pipeline's options: all but `max_frames`."""
        return SamplingOptions(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            repetition_penalty=self.repetition_penalty,
            predictor_temperature=self.predictor_temperature,
            predictor_top_k=self.predictor_top_k,
            predictor_top_p=self.predictor_top_p,
        )


class PronunciationFields(StrictMessage):
    """A term in a `start` message, and what is spoken for it."""

    term: Annotated[str, StringConstraints(max_length=MAX_TERM_CHARACTERS, pattern=r"\S")]
    spoken: Annotated[str, StringConstraints(max_length=MAX_SPOKEN_CHARACTERS, pattern=r"\S")]
    case_sensitive: bool = False
    word_boundaries: bool = True


class FormatFields(StrictMessage):
    """Audio format in a `start` message: `bitrate` in bit/s, `packet_ms` of audio in each packet."""

    codec: Name = "opus"
    sample_rate: Count = 24_000
    bitrate: Count = 32_000
    packet_ms: Count = 80

    @classmethod
    def of(cls, wanted: OutputFormat) -> FormatFields:
        """Returns the fields that request the format `wanted`."""
        return cls(
            codec=wanted.codec,
            sample_rate=wanted.sample_rate_hz,
            bitrate=wanted.bitrate,
            packet_ms=wanted.packet_ms,
        )

    def audio_format(self) -> OutputFormat:
        """Returns the requested format. Raises codecs.format.FormatError when it is not offered."""
        return OutputFormat(self.codec, self.sample_rate, self.bitrate, self.packet_ms)


INSTRUCTIONS_CHARACTERS = 1000
"""Maximum length of a voice instruction; it is part of the prompt, whose length decides the time to first audio."""

Markup = tuple[MarkupDialect, ...]

DEFAULT_MARKUP: Markup = tuple(
    dialect for dialect in MarkupDialect if dialect not in (MarkupDialect.ELEVENLABS, MarkupDialect.RIME)
)
"""Markup that is recognised unless a client chooses: all that prose does not contain. `[word]` and `<750>` may be."""

MAX_PRONUNCIATIONS = 100
"""Most pronunciations in a `start` message; compiling them takes about 1 ms."""
MAX_DICTIONARIES = 3
"""Most dictionaries that a `start` message names."""

MAX_STARVING_MS = 10_000
"""Most milliseconds of audio left to play at which a client can be told that text is missing."""


def _ignore_invalid_trace(traceparent: str) -> str | None:
    """None for a version or ids that the standard calls invalid, whose trace has to be ignored."""
    version, trace_id, parent_id, _ = traceparent.split("-")
    invalid = version == "ff" or not trace_id.strip("0") or not parent_id.strip("0")
    return None if invalid else traceparent


Traceparent = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"),
    AfterValidator(_ignore_invalid_trace),
]
"""W3C Trace Context, section 3.2; None where it is to be ignored."""


class StartOptions(StrictMessage):
    """How utterances are spoken and reported. `id` is that of the message."""

    id: MessageId | None = None
    voice: Name | None = None
    language: Name = "auto"
    instructions: Annotated[str, StringConstraints(max_length=INSTRUCTIONS_CHARACTERS)] | None = None
    format: FormatFields = FormatFields()
    sampling: SamplingFields = SamplingFields()
    layout: Literal["streaming", "non_streaming"] = "streaming"
    trim_silence: bool | None = None
    normalise: bool | None = None
    words: bool = False
    visemes: bool = False
    pacing: Literal["playback", "none"] = "playback"
    lead_ms: Annotated[int, Field(ge=FRAME_MS, lt=2**31)] | None = None
    starving_ms: Annotated[int, Field(ge=1, le=MAX_STARVING_MS)] | None = None
    markup: Annotated[Markup, Field(max_length=len(MarkupDialect))] | None = None
    rate: Annotated[float, Field(ge=MIN_RATE, le=MAX_RATE)] = 1.0
    volume: Annotated[float, Field(ge=0, le=MAX_VOLUME)] = 1.0
    pronunciations: Annotated[tuple[PronunciationFields, ...], Field(max_length=MAX_PRONUNCIATIONS)] = ()
    dictionaries: Annotated[tuple[Name, ...], Field(max_length=MAX_DICTIONARIES)] = ()
    framing: Literal["packets", "raw"] = "packets"
    offsets: Literal["code_points", "utf16"] = "code_points"
