"""ElevenLabs over plain HTTP: text in one request, its audio in the answer, with times of characters if asked."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict

from ..http.application import read_json
from ..http.streaming import HttpSpeech
from ..messages import DoneMessage, WordFields
from ..session.outbox import AudioPacket
from ..session.utterance_factory import UtteranceFactory
from .catalog import check_speed, voice_documents
from .character_alignment import CharacterAlignment, CharacterTimes
from .elevenlabs import read_options, refuse
from .endpoint import EndpointRequest
from .one_shot import ONE_SHOT_UTTERANCE, OneShotProtocol, ResponseBody
from .reply import json_reply

_PATH = "/v1/text-to-speech/{voice}"


class _VoiceSettings(BaseModel):
    model_config = ConfigDict(extra="ignore")

    speed: float | None = None


class _ElevenLabsRequest(BaseModel):
    """What is asked for in the body; settings that we have no use for are let pass."""

    model_config = ConfigDict(extra="ignore")

    text: str
    language_code: str | None = None
    seed: int | None = None
    voice_settings: _VoiceSettings | None = None


class _Timed(ResponseBody):
    """Audio and times as JSON, a line for every packet."""

    words = True

    def __init__(self, text: str, rate_hz: int) -> None:
        super().__init__("application/json")
        self._rate_hz = rate_hz
        self._alignment = CharacterAlignment(absolute=True)
        self._alignment.add_text(text)

    def hear(self, words: Sequence[WordFields]) -> None:
        self._alignment.add_words(words)

    def audio(self, packet: AudioPacket) -> bytes | None:
        end = packet.header.pts + packet.header.samples
        return self._line(packet.payload, self._alignment.until(end * 1000 / self._rate_hz))

    def end(self, done: DoneMessage) -> bytes | None:
        del done
        return self._line(b"", self._alignment.rest())

    def _line(self, payload: bytes, characters: CharacterTimes | None) -> bytes | None:
        if not payload and characters is None:
            return None
        return _timed_json(payload, characters) + b"\n"


class _TimedWhole(_Timed):
    """The same as one document, when all is spoken."""

    def __init__(self, text: str, rate_hz: int) -> None:
        super().__init__(text, rate_hz)
        self._parts: list[bytes] = []

    def audio(self, packet: AudioPacket) -> bytes | None:
        self._parts.append(packet.payload)
        return None

    def end(self, done: DoneMessage) -> bytes | None:
        del done
        return _timed_json(b"".join(self._parts), self._alignment.rest())


def _timed_json(payload: bytes, characters: CharacterTimes | None) -> bytes:
    alignment = None
    if characters is not None:
        starts_ms, durations_ms = characters.starts_ms, characters.durations_ms
        alignment = {
            "characters": characters.characters,
            "character_start_times_seconds": [start / 1000 for start in starts_ms],
            "character_end_times_seconds": [
                (start + duration) / 1000 for start, duration in zip(starts_ms, durations_ms, strict=True)
            ],
        }
    audio = base64.b64encode(payload).decode("ascii")
    return json.dumps({"audio_base64": audio, "alignment": alignment, "normalized_alignment": alignment}).encode()


class ElevenLabsHttp:
    """The routes; errors are refused in ElevenLabs' shape."""

    refuse = staticmethod(refuse)

    def __init__(self, factory: UtteranceFactory, speech: HttpSpeech) -> None:
        self._factory = factory
        self._speech = speech

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(_PATH, self._plain),
            web.post(f"{_PATH}/stream", self._plain),
            web.post(f"{_PATH}/with-timestamps", self._timed_whole),
            web.post(f"{_PATH}/stream/with-timestamps", self._timed),
            web.get("/v1/voices/{voice}", self._voice),
            web.get("/v2/voices", self._voices),
        ]

    async def _plain(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, None)

    async def _timed(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, _Timed)

    async def _timed_whole(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, _TimedWhole)

    async def _answer(self, request: web.Request, timed: type[_Timed] | None) -> web.StreamResponse:
        wanted = await read_json(request, _ElevenLabsRequest)
        if wanted.voice_settings is not None:
            check_speed(wanted.voice_settings.speed, "voice_settings.speed")
        query: dict[str, Any] = dict(request.query)
        given = {"language_code": wanted.language_code, "seed": wanted.seed}
        query |= {name: str(value) for name, value in given.items() if value is not None}
        options = read_options(EndpointRequest(request.match_info, query), self._factory)
        audio_format = options.audio_format
        body = timed(wanted.text, audio_format.sample_rate_hz) if timed else ResponseBody(audio_format.media_type)
        start = options.start(ONE_SHOT_UTTERANCE, words=body.words, pacing="none")
        return await self._speech.answer(request, OneShotProtocol("elevenlabs", start, wanted.text, body), refuse)

    async def _voice(self, request: web.Request) -> web.Response:
        name = self._factory.find_voice(request.match_info["voice"])
        document = next(each for each in voice_documents(self._factory) if each["voice_id"].lower() == name)
        return json_reply(HTTPStatus.OK, document).response()

    async def _voices(self, _: web.Request) -> web.Response:
        voices = voice_documents(self._factory)
        document = {"voices": voices, "has_more": False, "total_count": len(voices), "next_page_token": None}
        return json_reply(HTTPStatus.OK, document).response()
