"""OpenAI's `POST /v1/audio/speech`: text in JSON, audio as the body or in server-sent events."""

from __future__ import annotations

import base64
import json
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from voxgate.codecs.format import OutputFormat
from voxgate.pipeline.errors import UnsupportedFormat

from ..errors import KeyLimit, RateLimited, Unauthorized
from ..messages import INSTRUCTIONS_CHARACTERS, DoneMessage, FormatFields, Start
from ..session.outbox import AudioPacket
from ..session.utterance_factory import UtteranceFactory
from .catalog import check_speed
from .endpoint import EndpointRequest, SpeechEndpoint
from .one_shot import ONE_SHOT_UTTERANCE, OneShotProtocol, ResponseBody
from .reply import Reply, ReportableError, json_reply, retry_headers, status_of

NAME = "openai"

FORMATS = {
    "mp3": OutputFormat("mp3", 24_000, 128_000),
    "opus": OutputFormat("ogg_opus", 24_000, 48_000),
    "flac": OutputFormat("flac", 24_000),
    "wav": OutputFormat("wav", 24_000),
    "pcm": OutputFormat("pcm", 24_000),
}
"""Output formats by `response_format`."""


class _VoiceId(BaseModel):
    id: str


class _OpenAIRequest(BaseModel):
    """The body. `model` is accepted and ignored, because there is one; without `voice` the default voice speaks."""

    model_config = ConfigDict(extra="ignore")

    input: str
    voice: str | _VoiceId | None = None
    instructions: Annotated[str, Field(max_length=INSTRUCTIONS_CHARACTERS)] | None = None
    response_format: str = "mp3"
    speed: Annotated[float, Field(ge=0.25, le=4)] = 1.0
    stream_format: Literal["audio", "sse"] = "audio"


def _open(_: EndpointRequest, body: _OpenAIRequest, factory: UtteranceFactory) -> OneShotProtocol:
    """Raises UnknownVoice, UnsupportedFormat, UnsupportedOption, EngineNotReady."""
    check_speed(body.speed)
    if (audio_format := FORMATS.get(body.response_format)) is None:
        raise UnsupportedFormat(f"response_format must be one of {', '.join(FORMATS)}", param="response_format")
    voice = body.voice.id if isinstance(body.voice, _VoiceId) else body.voice
    start = Start(
        type="start",
        utterance=ONE_SHOT_UTTERANCE,
        voice=factory.find_voice(factory.default_voice if voice is None else voice),
        instructions=body.instructions or None,
        format=FormatFields.of(audio_format),
        pacing="none",
    )
    response = _ServerSentEvents() if body.stream_format == "sse" else ResponseBody(audio_format.media_type)
    return OneShotProtocol(NAME, start, body.input, response)


class _ServerSentEvents(ResponseBody):
    """Encodes each packet as one event with its audio in base64."""

    def __init__(self) -> None:
        super().__init__("text/event-stream")

    def encode_audio(self, packet: AudioPacket) -> bytes | None:
        audio = base64.b64encode(packet.payload).decode("ascii")
        return _event(type="speech.audio.delta", audio=audio) if packet.payload else None

    def encode_end(self, done: DoneMessage) -> bytes | None:
        """The last event. Its `usage` counts characters and talker frames in place of OpenAI's tokens."""
        usage = {"input_tokens": done.characters, "output_tokens": done.frames}
        usage["total_tokens"] = done.characters + done.frames
        return _event(type="speech.audio.done", usage=usage)


def _event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


_ERROR_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}
_ERROR_CODES = {
    Unauthorized.code: "invalid_api_key",
    RateLimited.code: "rate_limit_exceeded",
    KeyLimit.code: "rate_limit_exceeded",
}
"""OpenAI's codes by native code; other errors keep the native code."""


def refuse(error: ReportableError) -> Reply:
    """The response that reports `error` in OpenAI's shape."""
    status = status_of(error)
    server_error = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = "server_error" if server_error else _ERROR_TYPES.get(status, "invalid_request_error")
    code = _ERROR_CODES.get(error.code, error.code)
    document = {"error": {"message": error.message, "type": kind, "param": error.param, "code": code}}
    return json_reply(status, document, retry_headers(error.retry_after_ms))


SPEECH_ENDPOINT = SpeechEndpoint("/v1/audio/speech", _OpenAIRequest, _open, refuse)
