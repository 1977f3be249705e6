"""OpenAI's `POST /v1/audio/speech`: the text in JSON, its audio as the body, or in server-sent events."""

from __future__ import annotations

import base64
import json
from http import HTTPStatus
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field
from voxgate.codecs.format import OutputFormat
from voxgate.pipeline.errors import UnsupportedFormat, VoxgateError

from ..http.application import read_json
from ..http.streaming import HttpSpeech
from ..messages import INSTRUCTIONS_CHARACTERS, DoneMessage, ErrorMessage, FormatFields, Start
from ..session.outbox import AudioPacket
from ..session.utterance_factory import UtteranceFactory
from .catalog import check_speed
from .one_shot import ONE_SHOT_UTTERANCE, OneShotProtocol, ResponseBody
from .reply import Reply, json_reply, retry_headers, status_of

FORMATS = {
    "mp3": OutputFormat("mp3", 24_000, 128_000),
    "opus": OutputFormat("ogg_opus", 24_000, 48_000),
    "wav": OutputFormat("wav", 24_000),
    "pcm": OutputFormat("pcm", 24_000),
}
"""`response_format` by name."""

_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}
_CODES = {"unauthorized": "invalid_api_key", "rate_limited": "rate_limit_exceeded", "key_limit": "rate_limit_exceeded"}


class _VoiceId(BaseModel):
    id: str


class _OpenAIRequest(BaseModel):
    """`model` is read and changes nothing: there is one. Without a `voice` the default one speaks."""

    model_config = ConfigDict(extra="ignore")

    input: str
    voice: str | _VoiceId | None = None
    instructions: Annotated[str, Field(max_length=INSTRUCTIONS_CHARACTERS)] | None = None
    response_format: str = "mp3"
    speed: Annotated[float, Field(ge=0.25, le=4)] = 1.0
    stream_format: Literal["audio", "sse"] = "audio"


class _Events(ResponseBody):
    """Audio in base64, an event for every packet."""

    def __init__(self) -> None:
        super().__init__("text/event-stream")

    def audio(self, packet: AudioPacket) -> bytes | None:
        audio = base64.b64encode(packet.payload).decode("ascii")
        return _event(type="speech.audio.delta", audio=audio) if packet.payload else None

    def end(self, done: DoneMessage) -> bytes | None:
        """What is counted in tokens there are characters and talker frames here."""
        usage = {"input_tokens": done.characters, "output_tokens": done.frames}
        usage["total_tokens"] = done.characters + done.frames
        return _event(type="speech.audio.done", usage=usage)


def _event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def refuse(error: VoxgateError | ErrorMessage) -> Reply:
    """A refused request, as OpenAI's API refuses it."""
    status = status_of(error)
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else _TYPES.get(status, "invalid_request_error")
    code = _CODES.get(error.code, error.code)
    document = {"error": {"message": error.message, "type": kind, "param": error.param, "code": code}}
    return json_reply(status, document, retry_headers(error.retry_after_ms))


class OpenAIHttp:
    """The route; errors are refused in OpenAI's shape."""

    refuse = staticmethod(refuse)

    def __init__(self, factory: UtteranceFactory, speech: HttpSpeech) -> None:
        self._factory = factory
        self._speech = speech

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/audio/speech", self._speak)]

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        wanted = await read_json(request, _OpenAIRequest)
        check_speed(wanted.speed)
        if (audio_format := FORMATS.get(wanted.response_format)) is None:
            raise UnsupportedFormat(f"response_format is one of {', '.join(FORMATS)}", param="response_format")
        voice = wanted.voice.id if isinstance(wanted.voice, _VoiceId) else wanted.voice
        start = Start(
            type="start",
            utterance=ONE_SHOT_UTTERANCE,
            voice=self._factory.find_voice(self._factory.default_voice if voice is None else voice),
            instructions=wanted.instructions or None,
            format=FormatFields.of(audio_format),
            pacing="none",
        )
        body = _Events() if wanted.stream_format == "sse" else ResponseBody(audio_format.media_type)
        return await self._speech.answer(request, OneShotProtocol("openai", start, wanted.input, body), refuse)
