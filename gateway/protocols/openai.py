"""OpenAI's `POST /v1/audio/speech`: text in JSON, audio as the body or in server-sent events; lists for front ends.

OpenAI has no lists of voices and of speech models: `/v1/audio/voices` and `/v1/audio/models` are those of other servers
of this protocol, and Open WebUI asks for them.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from voxgate.codecs.format import OutputFormat
from voxgate.pipeline.errors import UnsupportedFormat

from ..errors import QUOTED_CHARACTERS, KeyLimit, RateLimited, Unauthorized
from ..messages.client import Start
from ..messages.server import DoneMessage
from ..messages.start_fields import INSTRUCTIONS_CHARACTERS, FormatFields
from ..session.outbox import AudioPacket
from ..session.utterance_factory import UtteranceFactory
from .catalog import MODEL, model_document, read_speed
from .endpoint import DocumentEndpoint, EndpointRequest, SpeechEndpoint
from .one_shot import ONE_SHOT_UTTERANCE, OneShotProtocol, ResponseBody
from .payloads import base64_text, server_sent_event
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
_DEFAULT_FORMAT = "mp3"


class _VoiceId(BaseModel):
    id: str


class _OpenAIRequest(BaseModel):
    """The body. Without `voice`, a `model` that is the name of a voice names it, as LocalAI's clients do.

    Any other `model` is accepted and ignored, because there is one. Null stands for the default of a field.
    """

    model_config = ConfigDict(extra="ignore")

    input: str
    model: str | None = None
    voice: str | _VoiceId | None = None
    instructions: Annotated[str, Field(max_length=INSTRUCTIONS_CHARACTERS)] | None = None
    response_format: str | None = None
    speed: Annotated[float, Field(allow_inf_nan=False)] | None = None
    stream_format: Literal["audio", "sse"] | None = None


def _open(_: EndpointRequest, body: _OpenAIRequest, factory: UtteranceFactory) -> OneShotProtocol:
    """Raises UnknownVoice, UnsupportedFormat, UnsupportedOption, EngineNotReady."""
    format_name = _DEFAULT_FORMAT if body.response_format is None else body.response_format
    if (audio_format := FORMATS.get(format_name)) is None:
        raise UnsupportedFormat(f"response_format must be one of {', '.join(FORMATS)}", param="response_format")
    voice = factory.find_voice(_voice_name(body, factory))
    # Clients of OpenAI's send instructions whatever the voice, so that refusing them would refuse the client.
    follows = factory.voices[voice].instructions
    start = Start(
        type="start",
        utterance=ONE_SHOT_UTTERANCE,
        voice=voice,
        instructions=(body.instructions or None) if follows else None,
        format=FormatFields.of(audio_format),
        pacing="none",
        rate=read_speed(body.speed),
    )
    response = _ServerSentEvents() if body.stream_format == "sse" else ResponseBody(audio_format.media_type)
    warning = "instructions ignored: this voice follows none" if body.instructions and not follows else ""
    return OneShotProtocol(NAME, start, body.input, response, warning)


def _voice_name(body: _OpenAIRequest, factory: UtteranceFactory) -> str:
    voice = body.voice.id if isinstance(body.voice, _VoiceId) else body.voice
    if voice:
        return voice
    return body.model if body.model and body.model.lower() in factory.voices else factory.default_voice


class _ServerSentEvents(ResponseBody):
    """Encodes each packet as one event with its audio in base64."""

    def __init__(self) -> None:
        super().__init__("text/event-stream")

    def encode_audio(self, packet: AudioPacket) -> bytes | None:
        if not packet.payload:
            return None
        return server_sent_event({"type": "speech.audio.delta", "audio": base64_text(packet.payload)})

    def encode_end(self, done: DoneMessage) -> bytes | None:
        """The last event. Its `usage` counts characters and talker frames in place of OpenAI's tokens."""
        usage = {"input_tokens": done.characters, "output_tokens": done.frames}
        usage["total_tokens"] = done.characters + done.frames
        return server_sent_event({"type": "speech.audio.done", "usage": usage})


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


MODEL_NAMES = (MODEL, "tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Ids of models that can be looked up: of the only one, and of OpenAI's, for which it speaks."""


def _describe_model(request: EndpointRequest, _: UtteranceFactory) -> Reply:
    name = request.path["model"]
    if name in MODEL_NAMES:
        return json_reply(HTTPStatus.OK, model_document(name))
    message = f"there is no model {name[:QUOTED_CHARACTERS]!r}; models: {', '.join(MODEL_NAMES)}"
    error = {"message": message, "type": "invalid_request_error", "param": "model", "code": "model_not_found"}
    return json_reply(HTTPStatus.NOT_FOUND, {"error": error})


def _list_audio_models(_: EndpointRequest, __: UtteranceFactory) -> Reply:
    return json_reply(HTTPStatus.OK, {"models": [{"id": MODEL, "name": "Qwen3-TTS"}]})


def _list_audio_voices(_: EndpointRequest, factory: UtteranceFactory) -> Reply:
    voices = [{"id": voice.name, "name": voice.display or voice.name} for voice in factory.voices.values()]
    return json_reply(HTTPStatus.OK, {"voices": voices})


DOCUMENT_ENDPOINTS = (
    DocumentEndpoint("/v1/models/{model}", _describe_model, refuse),
    DocumentEndpoint("/v1/audio/models", _list_audio_models, refuse),
    DocumentEndpoint("/v1/audio/voices", _list_audio_voices, refuse),
)
SPEECH_ENDPOINT = SpeechEndpoint("/v1/audio/speech", _OpenAIRequest, _open, refuse)
