"""Objects in the fields of a `start` message."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints
from voxgate.codecs.format import OutputFormat
from voxgate.pipeline.text.lexicon.lexicon import MAX_SPOKEN_CHARACTERS, MAX_TERM_CHARACTERS

from .message_parsing import Count, Name, StrictMessage


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
