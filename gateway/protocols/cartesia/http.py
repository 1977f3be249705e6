"""Cartesia over plain HTTP: `POST /tts/bytes`, `POST /tts/sse`, and the list of voices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from voxgate.pipeline.interface import VoiceInfo

from ...messages.server import DoneMessage, WordFields
from ...session.outbox import AudioPacket
from ...session.utterance_factory import UtteranceFactory
from ..catalog import LANGUAGES
from ..endpoint import DocumentEndpoint, EndpointRequest, SpeechEndpoint, query_number
from ..one_shot import ONE_SHOT_UTTERANCE, OneShotProtocol, ResponseBody
from ..payloads import base64_text, server_sent_event
from ..reply import Reply, json_reply
from .request import NAME, SpeechOptions, read_options, refuse, word_timestamps

_MAX_PAGE = 100
"""Most voices of one page."""
_GENDERS = {"female": "feminine", "male": "masculine"}
"""Cartesia's words by the native ones."""


class _CartesiaRequest(SpeechOptions):
    """The body. Other fields are accepted and ignored."""

    transcript: str


class _EventStream(ResponseBody):
    """Encodes packets and words as server-sent events, whose data are the messages of the socket."""

    def __init__(self, asked: SpeechOptions) -> None:
        super().__init__("text/event-stream")
        self.wants_words = bool(asked.add_timestamps)
        self._context = {} if asked.context_id is None else {"context_id": asked.context_id}
        self._words: list[WordFields] = []
        """Words that were not sent yet."""

    def add_words(self, words: Sequence[WordFields]) -> None:
        self._words += words

    def encode_audio(self, packet: AudioPacket) -> bytes | None:
        events = self._take_words()
        if packet.payload:
            events += self._event("chunk", data=base64_text(packet.payload), step_time=0.0)
        return events or None

    def encode_end(self, done: DoneMessage) -> bytes | None:
        del done
        return self._take_words() + self._event("done", HTTPStatus.OK, done=True)

    def _take_words(self) -> bytes:
        words, self._words = self._words, []
        return self._event("timestamps", word_timestamps=word_timestamps(words)) if words else b""

    def _event(
        self, type: str, status: HTTPStatus = HTTPStatus.PARTIAL_CONTENT, *, done: bool = False, **fields: Any
    ) -> bytes:
        return server_sent_event(
            {"type": type, "status_code": status.value, "done": done, **self._context, **fields}, type
        )


def _open_bytes(_: EndpointRequest, body: _CartesiaRequest, factory: UtteranceFactory) -> OneShotProtocol:
    """Raises the errors of `read_options`."""
    options = read_options(body, factory, ("raw", "wav", "mp3"))
    start = replace(options, words=False).start(ONE_SHOT_UTTERANCE, pacing="none")
    return OneShotProtocol(NAME, start, body.transcript, ResponseBody(options.audio_format.media_type))


def _open_events(_: EndpointRequest, body: _CartesiaRequest, factory: UtteranceFactory) -> OneShotProtocol:
    """Raises the errors of `read_options`."""
    options = read_options(body, factory, ("raw",))
    start = options.start(ONE_SHOT_UTTERANCE, pacing="none")
    return OneShotProtocol(NAME, start, body.transcript, _EventStream(body))


def _voice_document(voice: VoiceInfo, factory: UtteranceFactory) -> dict[str, Any]:
    languages = [code for code, name in LANGUAGES.items() if name in voice.languages]
    owner = voice.ownership.owner
    return {
        "id": voice.name,
        "name": voice.display or voice.name,
        "tagline": "",
        "description": voice.description,
        "language": next(iter(languages), "en"),
        "locales": [{"locale": code, "is_native": code == languages[0]} for code in languages],
        "access": "public" if owner == "" or voice.ownership.shared else "private",
        "visibility": "all" if owner == "" or voice.ownership.shared else "owner",
        "is_owner": factory.key is not None and owner == factory.key,
        **({"gender": _GENDERS[voice.gender]} if voice.gender in _GENDERS else {}),
        "created_at": "1970-01-01T00:00:00Z",
    }


def _list_voices(request: EndpointRequest, factory: UtteranceFactory) -> Reply:
    """One page of the voices: those behind `starting_after` or before `ending_before`, at most `limit`."""
    query = request.query
    limit = min(int(query_number(query, "limit", _MAX_PAGE, whole=True)), _MAX_PAGE) or _MAX_PAGE
    documents = [_voice_document(voice, factory) for voice in factory.voices.values()]
    if query.get("is_owner") == "true":
        documents = [each for each in documents if each["is_owner"]]
    if wanted := query.get("q", "").lower():
        documents = [each for each in documents if any(wanted in each[name].lower() for name in _SEARCHED)]
    ids = [each["id"] for each in documents]
    start, end = 0, len(documents)
    if (after := query.get("starting_after")) in ids:
        start = ids.index(after) + 1
    if (before := query.get("ending_before")) in ids:
        end = ids.index(before)
        start = max(start, end - limit)
    page = documents[start : min(end, start + limit)]
    return json_reply(HTTPStatus.OK, {"data": page, "has_more": start + len(page) < end})


_SEARCHED = ("id", "name", "description")
"""Fields of a voice that `q` is looked for in."""


def _describe_voice(request: EndpointRequest, factory: UtteranceFactory) -> Reply:
    voice = factory.voices[factory.find_voice(request.path["voice"])]
    return json_reply(HTTPStatus.OK, _voice_document(voice, factory))


SPEECH_ENDPOINTS = (
    SpeechEndpoint("/tts/bytes", _CartesiaRequest, _open_bytes, refuse),
    SpeechEndpoint("/tts/sse", _CartesiaRequest, _open_events, refuse),
)
DOCUMENT_ENDPOINTS = (
    DocumentEndpoint("/voices", _list_voices, refuse),
    DocumentEndpoint("/voices/{voice}", _describe_voice, refuse),
)
