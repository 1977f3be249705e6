"""Every control message of the native protocol, in both directions (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from ..codecs.format import AudioFormat
from ..pipeline.errors import BadMessage, VoxgateError
from ..pipeline.speech import SamplingOptions, SpeechRequest, TextLayout, WordTime

UtteranceId = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
"""A count that JavaScript's numbers hold exactly."""

INSTRUCTIONS_CHARACTERS = 1000
_REASON_CHARACTERS = 200
"""A refusal quotes what it refuses; a client must not make us send long messages back."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


# From the client


class FormatFields(_Message):
    codec: Name = "opus"
    sample_rate: Count = 24_000
    bitrate: Count = 32_000
    packet_ms: Count = 80

    @classmethod
    def of(cls, wanted: AudioFormat) -> FormatFields:
        """The fields that ask for `wanted`."""
        return cls(
            codec=wanted.codec,
            sample_rate=wanted.sample_rate_hz,
            bitrate=wanted.bitrate,
            packet_ms=wanted.packet_ms,
        )

    def audio_format(self) -> AudioFormat:
        return AudioFormat(self.codec, self.sample_rate, self.bitrate, self.packet_ms)


class SamplingFields(_Message):
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(ge=1, le=2)] | None = None
    predictor_temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    predictor_top_k: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    predictor_top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_frames: Annotated[int, Field(ge=1, lt=2**31)] | None = None


class Start(_Message):
    type: Literal["start"]
    utterance: UtteranceId
    voice: Name | None = None
    language: Name = "auto"
    instructions: Annotated[str, StringConstraints(max_length=INSTRUCTIONS_CHARACTERS)] | None = None
    format: FormatFields = FormatFields()
    sampling: SamplingFields = SamplingFields()
    seed: Count | None = None
    layout: Literal["streaming", "non_streaming"] = "streaming"
    trim_silence: bool = False
    normalise: bool | None = None
    words: bool = False
    pacing: Literal["playback", "none"] = "playback"

    def request(self, default_voice: str, *, normalise: bool = False) -> SpeechRequest:
        """What the pipeline is asked for; the arguments are for what the message leaves open."""
        sampling = self.sampling.model_dump(exclude={"max_frames"})
        return SpeechRequest(
            voice=self.voice or default_voice,
            language=self.language,
            instructions=self.instructions,
            sampling=SamplingOptions(**sampling),
            seed=self.seed,
            max_frames=self.sampling.max_frames,
            layout=TextLayout(self.layout),
            trim_silence=self.trim_silence,
            words=self.words,
            normalise=normalise if self.normalise is None else self.normalise,
            paced=self.pacing == "playback",
        )


class Text(_Message):
    type: Literal["text"]
    utterance: UtteranceId
    text: str


class Flush(_Message):
    type: Literal["flush"]
    utterance: UtteranceId


class End(_Message):
    type: Literal["end"]
    utterance: UtteranceId


class Interrupt(_Message):
    type: Literal["interrupt"]
    utterance: UtteranceId
    played_ms: Count | None = None


class Ack(_Message):
    type: Literal["ack"]
    utterance: UtteranceId
    played_samples: Count


class Ping(_Message):
    type: Literal["ping"]
    id: Annotated[str, StringConstraints(max_length=128)] | None = None


ClientMessage = Start | Text | Flush | End | Interrupt | Ack | Ping

_CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(Annotated[ClientMessage, Field(discriminator="type")])


def parse(text: str) -> ClientMessage:
    """Read one client message. Raises BadMessage, whose `param` is the path of the first bad field."""
    try:
        return _CLIENT_MESSAGE.validate_json(text)
    except ValidationError as refused:
        raise _bad_message(refused) from None


def _bad_message(refused: ValidationError) -> BadMessage:
    first = refused.errors(include_url=False, include_input=False)[0]
    location = first["loc"]
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        param: str | None = "type"
    else:
        # The first part of the location is the message type; there is no other when all of it is bad.
        param = ".".join(str(part) for part in location[1:])[:_REASON_CHARACTERS] or None
    return BadMessage(first["msg"][:_REASON_CHARACTERS], param=param)


# From the gateway


class _Reply(_Message):
    def encode(self) -> str:
        """The JSON text of the message; absent fields are left out."""
        return self.model_dump_json(exclude_none=True)


class Limits(_Message):
    """What a socket may do, told at its start."""

    lead_ms: int
    utterances_per_session: int
    characters_per_utterance: int
    message_bytes: int
    messages_per_s: float
    starts_per_s: float
    interrupts_per_s: float
    queue_wait_ms: int
    stall_limit_ms: int


class SessionOpened(_Reply):
    type: Literal["session"] = "session"
    protocol: int = 1
    session: str
    voices: str = "/v1/voices"
    default_voice: str
    formats: tuple[dict[str, Any], ...]
    limits: Limits


class Queued(_Reply):
    type: Literal["queued"] = "queued"
    utterance: str
    position: int
    eta_ms: int


class StartedFormat(_Message):
    codec: str
    sample_rate: int
    bitrate: int | None
    packet_ms: int
    pre_skip: int


class Started(_Reply):
    type: Literal["started"] = "started"
    utterance: str
    number: int
    voice: str
    language: str
    seed: int
    format: StartedFormat
    packet_samples: int


class Word(_Message):
    text: str
    start: int
    end: int
    start_ms: int
    end_ms: int


class Words(_Reply):
    type: Literal["words"] = "words"
    utterance: str
    words: tuple[Word, ...]
    approximate: bool = True

    @classmethod
    def of(cls, utterance: str, words: Sequence[WordTime]) -> Words:
        return cls(utterance=utterance, words=tuple(Word(**asdict(word)) for word in words))


class Done(_Reply):
    type: Literal["done"] = "done"
    utterance: str
    reason: str
    characters: int
    frames: int
    samples: int
    audio_ms: int
    ttfa_ms: int | None


class Interrupted(_Reply):
    type: Literal["interrupted"] = "interrupted"
    utterance: str
    played_ms: int
    text_spoken: str
    text_remaining: str


TEXT_WAITED_OUT = "text_waited_out"
"""The code of the warning that an utterance was ended because no text came for it."""


class Warned(_Reply):
    type: Literal["warning"] = "warning"
    code: str
    message: str
    utterance: str | None = None


class Failed(_Reply):
    type: Literal["error"] = "error"
    code: str
    message: str
    retryable: bool
    utterance: str | None = None
    param: str | None = None
    retry_after_ms: int | None = None
    limit: int | None = None
    received: int | None = None
    partial_audio: bool | None = None

    @classmethod
    def of(cls, error: VoxgateError, *, utterance: str | None = None, partial_audio: bool | None = None) -> Failed:
        """The message that reports `error`."""
        return cls(
            code=error.code,
            message=error.message,
            retryable=error.retryable,
            utterance=utterance,
            param=error.param,
            retry_after_ms=error.retry_after_ms,
            limit=getattr(error, "limit", None),
            received=getattr(error, "received", None),
            partial_audio=partial_audio,
        )


class GoingAway(_Reply):
    type: Literal["going_away"] = "going_away"
    deadline_ms: int


class Pong(_Reply):
    type: Literal["pong"] = "pong"
    id: str | None = None


ServerMessage = SessionOpened | Queued | Started | Words | Done | Interrupted | Warned | Failed | GoingAway | Pong
