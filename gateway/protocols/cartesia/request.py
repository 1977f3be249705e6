"""What Cartesia's requests ask for, on sockets and over HTTP, and the form of its errors."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from voxgate.codecs.format import FormatError, OutputFormat
from voxgate.pipeline.errors import (
    AtCapacity,
    BadMessage,
    UnknownVoice,
    UnsupportedFormat,
    UnsupportedOption,
)

from ...errors import KeyLimit, TooManyUtterances
from ...messages.client import Start
from ...messages.parsing import Count, MessageId
from ...messages.server import WordFields
from ...messages.start_fields import FormatFields
from ...session.utterance_factory import UtteranceFactory
from ..catalog import NATURAL_SPEED, language_from_code, read_speed, read_volume
from ..reply import Reply, ReportableError, json_reply, retry_headers, status_of

NAME = "cartesia"

RATES_HZ = (8000, 16_000, 22_050, 24_000, 44_100, 48_000)
"""Sample rates of the service. Not every format is offered at all of them."""
_RAW = {"pcm_f32le": "pcm_f32", "pcm_s16le": "pcm", "pcm_mulaw": "mulaw", "pcm_alaw": "alaw"}
_IN_WAV = {"pcm_f32le": "wav_f32", "pcm_s16le": "wav", "pcm_mulaw": "wav_mulaw", "pcm_alaw": "wav_alaw"}
_CODECS: Mapping[str, Mapping[str, str]] = {"raw": _RAW, "wav": _IN_WAV}
"""Native codecs by `container` and `encoding`."""
_MP3_BIT_RATE = 128_000


class OutputFormatFields(BaseModel):
    """`output_format` of a request."""

    model_config = ConfigDict(extra="ignore")

    container: str = "raw"
    encoding: str | None = None
    sample_rate: Count
    bit_rate: Count | None = None

    def audio_format(self, containers: tuple[str, ...]) -> OutputFormat:
        """The audio format, in one of `containers`. Raises UnsupportedFormat."""
        if self.container not in containers:
            raise UnsupportedFormat(
                f"container must be one of {', '.join(containers)}", param="output_format.container"
            )
        if self.sample_rate not in RATES_HZ:
            listed = ", ".join(map(str, RATES_HZ))
            raise UnsupportedFormat(f"sample_rate must be one of {listed}", param="output_format.sample_rate")
        try:
            if self.container == "mp3":
                return OutputFormat("mp3", self.sample_rate, self.bit_rate or _MP3_BIT_RATE)
            codecs = _CODECS[self.container]
            if (codec := codecs.get(self.encoding or "")) is None:
                raise UnsupportedFormat(f"encoding must be one of {', '.join(codecs)}", param="output_format.encoding")
            return OutputFormat(codec, self.sample_rate)
        except FormatError as refused:
            raise UnsupportedFormat(str(refused), param=f"output_format.{refused.param}") from refused


class VoiceFields(BaseModel):
    """`voice` of a request, if it is not the id alone."""

    model_config = ConfigDict(extra="ignore")

    mode: str = "id"
    id: str | None = None


class GenerationConfig(BaseModel):
    """`generation_config` of a request. Other fields, such as an emotion, are accepted and ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    speed: float | None = None
    volume: float | None = None


_SPEEDS = {"slow": 0.8, "normal": NATURAL_SPEED, "fast": 1.25}
"""Rates by the words of `speed`, which are those of SSML (docs/text.md)."""


class SpeechOptions(BaseModel):
    """The options of a request, which are the same on sockets and over HTTP. Others are accepted and ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    voice: str | VoiceFields | None = None
    output_format: OutputFormatFields | None = None
    language: str | None = None
    locale: str | None = None
    add_timestamps: bool | None = None
    speed: Literal["slow", "normal", "fast"] | None = None
    generation_config: GenerationConfig | None = None
    pronunciation_dict_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    context_id: MessageId | None = None


@dataclass(frozen=True, slots=True)
class CartesiaOptions:
    """What all turns of a context share."""

    voice: str
    language: str
    audio_format: OutputFormat
    words: bool
    rate: float
    volume: float
    dictionaries: tuple[str, ...] = ()

    def start(self, utterance: str, pacing: Literal["playback", "none"] = "playback") -> Start:
        """The message that starts `utterance`."""
        return Start(
            type="start",
            utterance=utterance,
            voice=self.voice,
            language=self.language,
            format=FormatFields.of(self.audio_format),
            words=self.words,
            pacing=pacing,
            rate=self.rate,
            volume=self.volume,
            dictionaries=self.dictionaries,
        )


def read_options(asked: SpeechOptions, factory: UtteranceFactory, containers: tuple[str, ...]) -> CartesiaOptions:
    """What `asked` stands for on this gateway; the output format must be in one of `containers`.

    Raises UnknownVoice, UnknownLanguage, UnsupportedFormat, UnsupportedOption, BadMessage, EngineNotReady.
    """
    if asked.output_format is None:
        raise BadMessage("output_format is required", param="output_format")
    audio_format = asked.output_format.audio_format(containers)
    voice = factory.find_voice(_voice_id(asked.voice) or factory.default_voice)
    code = asked.language or asked.locale
    wanted = asked.generation_config or GenerationConfig()
    speed = _SPEEDS.get(asked.speed or "") if wanted.speed is None else wanted.speed
    return CartesiaOptions(
        voice,
        language_from_code(code, factory.voices[voice].languages, param="language"),
        audio_format,
        bool(asked.add_timestamps),
        read_speed(speed, "generation_config.speed"),
        read_volume(wanted.volume, "generation_config.volume"),
        () if asked.pronunciation_dict_id is None else (asked.pronunciation_dict_id,),
    )


def _voice_id(voice: str | VoiceFields | None) -> str | None:
    if not isinstance(voice, VoiceFields):
        return voice
    if voice.mode != "id":
        raise UnsupportedOption("a voice must be given by its id, not by an embedding", param="voice.mode")
    return voice.id


_ERROR_CODES = {
    AtCapacity.code: "concurrency_limited",
    KeyLimit.code: "concurrency_limited",
    TooManyUtterances.code: "concurrency_limited",
    UnknownVoice.code: "voice_not_found",
}
"""Cartesia's error codes by native code; other errors keep the native code."""
_STATUS = {UnknownVoice.code: HTTPStatus.NOT_FOUND, TooManyUtterances.code: HTTPStatus.TOO_MANY_REQUESTS}


def error_fields(error: ReportableError) -> dict[str, Any]:
    """The fields that report an error, in messages and in the body of a refusal."""
    status = status_of(error, _STATUS)
    return {
        "status_code": status.value,
        "title": status.phrase,
        "message": error.message,
        "error_code": _ERROR_CODES.get(error.code, error.code),
        "request_id": str(uuid.uuid4()),
    }


def refuse(error: ReportableError) -> Reply:
    """The response that reports `error` in Cartesia's shape."""
    return json_reply(status_of(error, _STATUS), error_fields(error), retry_headers(error.retry_after_ms))


def word_timestamps(words: Iterable[WordFields], offset_s: float = 0.0) -> dict[str, list[Any]]:
    """Words and their times in seconds behind `offset_s`, as parallel lists."""
    words = tuple(words)
    return {
        "words": [word.text for word in words],
        "start": [round(offset_s + word.start_ms / 1000, 3) for word in words],
        "end": [round(offset_s + word.end_ms / 1000, 3) for word in words],
    }
