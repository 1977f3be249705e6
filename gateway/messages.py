"""Every control message of the native protocol, in both directions (docs/protocol.md)."""
# TODO-DOC The 20 bytes before every audio payload (docs/protocol.md, "Binary messages").
# TODO-DOC JSON of a client, checked against a model; what is wrong with it is told by the name of the field.

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError
from voxgate.codecs.format import OutputFormat
from voxgate.pipeline.errors import BadMessage, VoxgateError
from voxgate.pipeline.interface import SamplingOptions, SpeechRequest, TextLayout, WordTime

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
    def of(cls, wanted: OutputFormat) -> FormatFields:
        """The fields that ask for `wanted`."""
        return cls(
            codec=wanted.codec,
            sample_rate=wanted.sample_rate_hz,
            bitrate=wanted.bitrate,
            packet_ms=wanted.packet_ms,
        )

    def audio_format(self) -> OutputFormat:
        return OutputFormat(self.codec, self.sample_rate, self.bitrate, self.packet_ms)


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


def parse_message(text: str) -> ClientMessage:
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


class _ServerMessage(_Message):
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


class SessionMessage(_ServerMessage):
    type: Literal["session"] = "session"
    protocol: int = 1
    session: str
    voices: str = "/v1/voices"
    default_voice: str
    formats: tuple[dict[str, Any], ...]
    limits: Limits


class QueuedMessage(_ServerMessage):
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


class StartedMessage(_ServerMessage):
    type: Literal["started"] = "started"
    utterance: str
    number: int
    voice: str
    language: str
    seed: int
    format: StartedFormat
    packet_samples: int


class WordFields(_Message):
    text: str
    start: int
    end: int
    start_ms: int
    end_ms: int


class WordsMessage(_ServerMessage):
    type: Literal["words"] = "words"
    utterance: str
    words: tuple[WordFields, ...]
    approximate: bool = True

    @classmethod
    def of(cls, utterance: str, words: Sequence[WordTime]) -> WordsMessage:
        return cls(utterance=utterance, words=tuple(WordFields(**asdict(word)) for word in words))


class DoneMessage(_ServerMessage):
    type: Literal["done"] = "done"
    utterance: str
    reason: str
    characters: int
    frames: int
    samples: int
    audio_ms: int
    ttfa_ms: int | None


class InterruptedMessage(_ServerMessage):
    type: Literal["interrupted"] = "interrupted"
    utterance: str
    played_ms: int
    text_spoken: str
    text_remaining: str


TEXT_WAITED_OUT = "text_waited_out"
"""The code of the warning that an utterance was ended because no text came for it."""


class WarningMessage(_ServerMessage):
    type: Literal["warning"] = "warning"
    code: str
    message: str
    utterance: str | None = None


class ErrorMessage(_ServerMessage):
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
    def of(
        cls, error: VoxgateError, *, utterance: str | None = None, partial_audio: bool | None = None
    ) -> ErrorMessage:
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


class GoingAwayMessage(_ServerMessage):
    type: Literal["going_away"] = "going_away"
    deadline_ms: int


class PongMessage(_ServerMessage):
    type: Literal["pong"] = "pong"
    id: str | None = None


ServerMessage = (
    SessionMessage
    | QueuedMessage
    | StartedMessage
    | WordsMessage
    | DoneMessage
    | InterruptedMessage
    | WarningMessage
    | ErrorMessage
    | GoingAwayMessage
    | PongMessage
)


AUDIO_HEADER_VERSION = 1
AUDIO_HEADER_BYTES = 20

_AUDIO_HEADER = struct.Struct("<BBHIIQ")
_FIRST_FLAG = 0b01
_LAST_FLAG = 0b10


@dataclass(frozen=True, slots=True)
class AudioHeader:
    """`number` from `started`, `seq` without gap from 0, `pts` and `samples` at the format's rate."""

    number: int
    seq: int
    pts: int
    samples: int
    first: bool = False
    last: bool = False

    def pack(self) -> bytes:
        """The header's 20 bytes, little endian."""
        flags = (_FIRST_FLAG if self.first else 0) | (_LAST_FLAG if self.last else 0)
        return _AUDIO_HEADER.pack(AUDIO_HEADER_VERSION, flags, self.samples, self.number, self.seq, self.pts)

    @classmethod
    def unpack(cls, message: bytes) -> tuple[AudioHeader, bytes]:
        """Splits a binary message into header and payload. Raises ValueError for anything but a message of this version."""
        if len(message) < AUDIO_HEADER_BYTES:
            raise ValueError(f"an audio message must have at least {AUDIO_HEADER_BYTES} bytes, got {len(message)}")
        version, flags, samples, number, seq, pts = _AUDIO_HEADER.unpack_from(message)
        if version != AUDIO_HEADER_VERSION:
            raise ValueError(f"audio header version must be {AUDIO_HEADER_VERSION}, got {version}")
        header = cls(number, seq, pts, samples, first=bool(flags & _FIRST_FLAG), last=bool(flags & _LAST_FLAG))
        return header, message[AUDIO_HEADER_BYTES:]


_QUOTED_CHARACTERS = 200

Model = TypeVar("Model", bound=BaseModel)


def parse_json(model: type[Model], payload: str | bytes) -> Model:
    """Read one JSON object. Raises BadMessage, whose `param` is the path of the first bad field."""
    try:
        return model.model_validate_json(payload)
    except ValidationError as refused:
        first = refused.errors(include_url=False, include_input=False)[0]
    param = ".".join(map(str, first["loc"]))[:_QUOTED_CHARACTERS] or None
    message = f"{param}: {first['msg']}" if param else first["msg"]
    raise BadMessage(message[:_QUOTED_CHARACTERS], param=param)


class CloseCode(IntEnum):
    """Why the gateway closes a socket (RFC 6455, section 7.4; 4001 is the protocol's own)."""

    NORMAL = 1000
    NOT_ACCEPTABLE = 1003
    POLICY = 1008
    RESTARTING = 1012
    SLOW_CONSUMER = 4001
