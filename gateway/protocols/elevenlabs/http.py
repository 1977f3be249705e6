"""ElevenLabs over plain HTTP: text in one request, audio in the answer, with character times on request."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict

from ...messages.server import DoneMessage, WordFields
from ...session.outbox import AudioPacket
from ...session.utterance_factory import UtteranceFactory
from ..catalog import voice_documents
from ..endpoint import DocumentEndpoint, EndpointRequest, SpeechEndpoint
from ..one_shot import ONE_SHOT_UTTERANCE, OneShotProtocol, ResponseBody
from ..payloads import base64_text
from ..reply import Reply, json_reply
from .character_alignment import CharacterAlignment, CharacterTimes
from .fields import DictionaryLocators, VoiceSettings, dictionary_names
from .websocket import ElevenLabs, read_options, refuse

_PATH = "/v1/text-to-speech/{voice}"


class _ElevenLabsRequest(BaseModel):
    """The body. Other fields are accepted and ignored."""

    model_config = ConfigDict(extra="ignore")

    text: str
    language_code: str | None = None
    seed: int | None = None
    voice_settings: VoiceSettings | None = None
    pronunciation_dictionary_locators: DictionaryLocators = None


class _TimedBody(ResponseBody):
    """Keeps the character times of one utterance for the subclass, which encodes them with its audio."""

    wants_words = True

    def __init__(self, text: str, rate_hz: int) -> None:
        super().__init__("application/json")
        self._rate_hz = rate_hz
        self._alignment = CharacterAlignment(absolute=True)
        self._alignment.add_text(text)

    def add_words(self, words: Sequence[WordFields]) -> None:
        self._alignment.add_words(words)

    def _take_until_end_of(self, packet: AudioPacket) -> CharacterTimes | None:
        end = packet.header.pts + packet.header.samples
        return self._alignment.take_until(end * 1000 / self._rate_hz)


class _TimedLines(_TimedBody):
    """Encodes audio and character times as JSON, one line per packet."""

    def encode_audio(self, packet: AudioPacket) -> bytes | None:
        return self._line(packet.payload, self._take_until_end_of(packet))

    def encode_end(self, done: DoneMessage) -> bytes | None:
        del done
        return self._line(b"", self._alignment.take_rest())

    def _line(self, payload: bytes, characters: CharacterTimes | None) -> bytes | None:
        if not payload and characters is None:
            return None
        alignment = None if characters is None else _alignment_fields(characters)
        line = {"audio_base64": base64_text(payload), "alignment": alignment, "normalized_alignment": alignment}
        return json.dumps(line).encode() + b"\n"


_BASE64_GROUP_BYTES = 3
"""Only base64 texts of multiples of this many bytes can be joined."""


class _TimedDocument(_TimedBody):
    """Writes audio and character times as one JSON document, of the form that `json.dumps` gives, packet by packet.

    The times follow the audio. Until then they are kept as JSON, so that the end takes no longer than a packet.
    """

    def __init__(self, text: str, rate_hz: int) -> None:
        super().__init__(text, rate_hz)
        self._begun = False
        self._incomplete = b""
        """Bytes of audio that do not fill a base64 group."""
        self._times: dict[str, list[str]] = {}
        """Items of each list of the alignment, as JSON."""

    def encode_audio(self, packet: AudioPacket) -> bytes | None:
        self._keep_times(self._take_until_end_of(packet))
        payload = self._incomplete + packet.payload
        complete = len(payload) - len(payload) % _BASE64_GROUP_BYTES
        self._incomplete = payload[complete:]
        return self._continue(payload[:complete]) if complete else None

    def encode_end(self, done: DoneMessage) -> bytes | None:
        del done
        self._keep_times(self._alignment.take_rest())
        fields = ", ".join(f'"{name}": [{", ".join(items)}]' for name, items in self._times.items())
        alignment = f"{{{fields}}}" if fields else "null"
        end = f'", "alignment": {alignment}, "normalized_alignment": {alignment}}}'
        return self._continue(self._incomplete) + end.encode()

    def _keep_times(self, characters: CharacterTimes | None) -> None:
        if characters is not None:
            for name, values in _alignment_fields(characters).items():
                self._times.setdefault(name, []).append(json.dumps(values)[1:-1])

    def _continue(self, payload: bytes) -> bytes:
        start, self._begun = b"" if self._begun else b'{"audio_base64": "', True
        return start + base64.b64encode(payload)


def _alignment_fields(characters: CharacterTimes) -> dict[str, Sequence[Any]]:
    starts_ms, durations_ms = characters.starts_ms, characters.durations_ms
    return {
        "characters": characters.characters,
        "character_start_times_seconds": [start / 1000 for start in starts_ms],
        "character_end_times_seconds": [
            (start + duration) / 1000 for start, duration in zip(starts_ms, durations_ms, strict=True)
        ],
    }


def _open(
    request: EndpointRequest, body: _ElevenLabsRequest, factory: UtteranceFactory, timed: type[_TimedBody] | None
) -> OneShotProtocol:
    """Raises UnknownVoice, UnknownLanguage, UnsupportedFormat, UnsupportedOption, BadMessage, EngineNotReady."""
    fields = {"language_code": body.language_code, "seed": body.seed}
    query = {**request.query, **{name: str(value) for name, value in fields.items() if value is not None}}
    options = read_options(EndpointRequest(request.path, query), factory)
    audio_format = options.audio_format
    response = timed(body.text, audio_format.sample_rate_hz) if timed else ResponseBody(audio_format.media_type)
    start = options.start(
        ONE_SHOT_UTTERANCE,
        words=response.wants_words,
        pacing="none",
        rate=(body.voice_settings or VoiceSettings()).rate,
        dictionaries=dictionary_names(body.pronunciation_dictionary_locators),
    )
    return OneShotProtocol(ElevenLabs.name, start, body.text, response)


def _endpoint(path: str, timed: type[_TimedBody] | None) -> SpeechEndpoint[Any]:
    return SpeechEndpoint(
        path, _ElevenLabsRequest, lambda request, body, factory: _open(request, body, factory, timed), refuse
    )


def _describe_voice(request: EndpointRequest, factory: UtteranceFactory) -> Reply:
    name = factory.find_voice(request.path["voice"])
    document = next(each for each in voice_documents(factory) if each["voice_id"].lower() == name)
    return json_reply(HTTPStatus.OK, document)


def _list_voices(_: EndpointRequest, factory: UtteranceFactory) -> Reply:
    voices = voice_documents(factory)
    document = {"voices": voices, "has_more": False, "total_count": len(voices), "next_page_token": None}
    return json_reply(HTTPStatus.OK, document)


SPEECH_ENDPOINTS = (
    _endpoint(_PATH, None),
    _endpoint(f"{_PATH}/stream", None),
    _endpoint(f"{_PATH}/with-timestamps", _TimedDocument),
    _endpoint(f"{_PATH}/stream/with-timestamps", _TimedLines),
)
DOCUMENT_ENDPOINTS = (
    DocumentEndpoint("/v1/voices/{voice}", _describe_voice, refuse),
    DocumentEndpoint("/v2/voices", _list_voices, refuse),
)
