"""Deepgram: text in JSON, audio in binary messages, one turn after another (`/v1/speak`), and `POST /v1/speak`.

A turn is an utterance from its first text to `Flush`; no talker slot is held between turns. `Deepgram` is common to
both versions, `v2.py` adds Flux. docs/service_protocols.md has all rules.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from voxgate.codecs.format import FormatError, OutputFormat
from voxgate.pipeline.errors import BadMessage, EmptyText, UnsupportedFormat

from ...messages.client import Interrupt, Start
from ...messages.connection import CloseCode, SessionMessage
from ...messages.parsing import Count, parse_json
from ...messages.server import (
    TEXT_WAITED_OUT,
    AcceptedMessage,
    DoneMessage,
    ErrorMessage,
    InterruptedMessage,
    ServerMessage,
    StartedMessage,
    WarningMessage,
)
from ...messages.start_fields import FormatFields
from ...session.outbox import AudioPacket
from ...session.protocol import (
    MESSAGE_ERROR_CODES,
    Disconnect,
    ProtocolAction,
    ProtocolOutput,
    WireProtocol,
)
from ...session.utterance_factory import UtteranceFactory
from ..catalog import MODEL, NATURAL_SPEED, read_query_speed
from ..endpoint import EndpointRequest, SpeechEndpoint, WebSocketEndpoint, query_number
from ..one_shot import ONE_SHOT_UTTERANCE, OneShotProtocol, ResponseBody
from ..payloads import json_message
from ..reply import Reply, ReportableError, json_reply, retry_headers, status_of
from ..turn_queue import SpeechTurn, TurnQueue

_RAW = {"linear16": "pcm", "mulaw": "mulaw", "alaw": "alaw"}
"""Native codecs by Deepgram's `encoding` on sockets."""
_DEFAULT_RATES = {"linear16": 24_000, "mulaw": 8000, "alaw": 8000, "mp3": 22_050, "opus": 48_000, "flac": 24_000}
_DEFAULT_BIT_RATES = {"mp3": 48_000, "opus": 32_000}
_CONTAINERS: Mapping[str, Mapping[str, str]] = {
    "linear16": {"wav": "wav", "none": "pcm"},
    "mulaw": {"wav": "wav_mulaw", "none": "mulaw"},
    "alaw": {"wav": "wav_alaw", "none": "alaw"},
    "mp3": {"none": "mp3"},
    "opus": {"ogg": "ogg_opus"},
    "flac": {"none": "flac"},
}
"""Native codecs of a `POST` by `encoding` and `container`; the first container is the default."""
_HEADER_CHARACTERS = 300
"""Characters of a refusal's reason in its header."""


@dataclass(frozen=True, slots=True)
class DeepgramOptions:
    """The options of a URL, which all turns of its socket share."""

    voice: str
    audio_format: OutputFormat
    request_id: str
    speed: float = NATURAL_SPEED

    def start(self, utterance: str, pacing: Literal["playback", "none"] = "playback") -> Start:
        """The message that starts `utterance`."""
        fields = FormatFields.of(self.audio_format)
        return Start(type="start", utterance=utterance, voice=self.voice, format=fields, pacing=pacing, rate=self.speed)


def read_options(request: EndpointRequest, factory: UtteranceFactory) -> DeepgramOptions:
    """The options of a socket.

    Raises UnknownVoice, UnsupportedFormat, UnsupportedOption, BadMessage, EngineNotReady.
    """
    encoding = request.query.get("encoding", "linear16")
    if encoding not in _RAW:
        raise UnsupportedFormat(f"encoding must be one of {', '.join(_RAW)}", param="encoding")
    if request.query.get("container", "none") != "none":
        raise UnsupportedFormat("container must be none on a socket", param="container")
    return _options(request.query, factory, encoding, _RAW[encoding])


def read_http_options(query: Mapping[str, str], factory: UtteranceFactory) -> DeepgramOptions:
    """The options of a `POST`, which may have containers. Raises the same as `read_options`."""
    encoding = query.get("encoding", "mp3")
    if (codecs := _CONTAINERS.get(encoding)) is None:
        raise UnsupportedFormat(f"encoding must be one of {', '.join(_CONTAINERS)}", param="encoding")
    container = query.get("container", next(iter(codecs)))
    if container not in codecs:
        raise UnsupportedFormat(f"container of {encoding} must be {' or '.join(codecs)}", param="container")
    return _options(query, factory, encoding, codecs[container])


def _options(query: Mapping[str, str], factory: UtteranceFactory, encoding: str, codec: str) -> DeepgramOptions:
    speed = read_query_speed(query)
    model = query.get("model")
    voice = factory.default_voice if model is None else factory.find_voice(model)
    rate_hz = int(query_number(query, "sample_rate", _DEFAULT_RATES[encoding], whole=True))
    bit_rate = int(query_number(query, "bit_rate", _DEFAULT_BIT_RATES.get(encoding, 0), whole=True))
    try:
        audio_format = OutputFormat(codec, rate_hz, bit_rate) if bit_rate else OutputFormat(codec, rate_hz)
    except FormatError as refused:
        raise UnsupportedFormat(str(refused), param=refused.param) from refused
    return DeepgramOptions(voice, audio_format, str(uuid.uuid4()), speed)


def refuse(error: ReportableError) -> Reply:
    """The response that reports `error` in Deepgram's shape; its clients read the reason from headers."""
    request_id = str(uuid.uuid4())
    reason = " ".join(error.message.encode("ascii", "replace").decode().split())[:_HEADER_CHARACTERS]
    headers = {"dg-error": reason, "dg-request-id": request_id, **retry_headers(error.retry_after_ms)}
    document = {"err_code": error.code.upper(), "err_msg": error.message, "request_id": request_id}
    return json_reply(status_of(error), document, headers)


VERSION = "1"


class PlaybackOffset(BaseModel):
    """The part of the session's audio that was played, in milliseconds."""

    value: Count


class DeepgramMessage(BaseModel):
    """Any message of a client. Other fields are accepted and ignored."""

    model_config = ConfigDict(extra="ignore")

    type: str
    text: str = ""
    playback_offset: PlaybackOffset | None = None
    speed: float | None = Field(None, allow_inf_nan=False)


class Deepgram(WireProtocol):
    """The behaviour of turns, common to both versions."""

    name = "deepgram"
    plays_in_order = True
    clients_buffer = True

    def __init__(self, options: DeepgramOptions) -> None:
        self.voice = options.voice
        self._options = options
        self._turns = TurnQueue(options.start)
        self._closing = False

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:
        del now_s
        incoming = parse_json(DeepgramMessage, payload)
        return () if self._closing else self._apply(incoming)

    def _apply(self, incoming: DeepgramMessage) -> Iterable[ProtocolAction]:
        match incoming.type:
            case "Speak":
                return tuple(self._turns.add_text(incoming.text))
            case "Flush":
                return tuple(self._flush())
            case "Close":
                return tuple(self._close())
        raise BadMessage(f"unknown type {incoming.type[:50]!r}", param="type")

    def _flush(self) -> Iterable[ProtocolAction]:
        yield from self._turns.complete_text()
        if self._turns.live_finished:
            yield from self._end_turn()

    def _close(self) -> Iterable[ProtocolAction]:
        """Finishes all turns, then closes the socket."""
        self._closing = True
        if self._turns.open_turn is not None:
            yield from self._flush()
        elif self._turns.idle:
            yield from self._disconnect()

    def tick(self, now_s: float) -> Iterable[ProtocolAction]:
        del now_s
        actions = list(self._turns.start_next())
        if self._turns.live_finished:
            actions += self._end_turn()
        return actions

    def next_wake_s(self) -> float:
        return self._turns.next_wake_s()

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        if isinstance(message, SessionMessage):
            return (self._greeting(),)
        if isinstance(message, WarningMessage):
            if message.code == TEXT_WAITED_OUT:
                self._turns.complete_live(message.utterance)
            return (self._warning(message.code.upper(), message.message),)
        if isinstance(message, ErrorMessage) and message.utterance is None:
            return (self._error(message),)
        turn = self._turns.live
        if turn is None or turn.name != getattr(message, "utterance", None):
            return ()
        match message:
            case AcceptedMessage():
                turn.accepted = True
            case StartedMessage():
                return self._started(turn)
            case DoneMessage():
                turn.ended = True
                turn.characters, turn.pauses = message.characters, message.pauses
            case InterruptedMessage():
                turn.characters = len(message.text_spoken) + len(message.text_remaining)
                return tuple(self._interrupted(turn, message))
            case ErrorMessage():
                return tuple(self._on_error(turn, message))
        return tuple(self._end_turn()) if self._turns.live_finished else ()

    def _on_error(self, turn: SpeechTurn, error: ErrorMessage) -> Iterable[ProtocolOutput]:
        if turn.ended:
            return  # start and text were refused together: one error is enough
        if error.code != EmptyText.code:  # an empty turn is valid here
            turn.error_sent = True
            yield self._error(error)
        if error.code not in MESSAGE_ERROR_CODES or not turn.accepted:
            # The end mark answers the client's Flush; until then the turn discards the rest of its text.
            turn.ended = True
            if turn.text_complete:
                yield from self._end_turn()

    def _end_turn(self) -> Iterable[ProtocolOutput]:
        turn = self._turns.live
        assert turn is not None
        self._turns.live = None
        yield from self._end_marks(turn)
        if self._closing and self._turns.idle:
            yield from self._disconnect()

    def _cut(self, turn: SpeechTurn, played_ms: int | None) -> Iterable[ProtocolAction]:
        """Stops the live turn and discards the waiting ones."""
        if turn.requested and not turn.ended:
            self._turns.clear()
            self._turns.live = turn  # until the interrupt is answered
            yield Interrupt(type="interrupt", utterance=turn.name, played_ms=played_ms)
        else:
            nothing = InterruptedMessage(utterance=turn.name, played_ms=0, text_spoken="", text_remaining="")
            yield from self._interrupted(turn, nothing)

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> bytes | None:
        del now_s
        turn = self._turns.live
        if turn is None or turn.name != utterance:
            return None
        turn.samples += packet.header.samples
        return packet.payload or None

    def _audio_ms(self, turn: SpeechTurn) -> int:
        return turn.samples * 1000 // self._options.audio_format.sample_rate_hz

    # Messages that differ between the versions

    def _greeting(self) -> ProtocolOutput:
        raise NotImplementedError

    def _started(self, turn: SpeechTurn) -> Iterable[ProtocolOutput]:
        raise NotImplementedError

    def _end_marks(self, turn: SpeechTurn) -> Iterable[ProtocolOutput]:
        raise NotImplementedError

    def _interrupted(self, turn: SpeechTurn, message: InterruptedMessage) -> Iterable[ProtocolOutput]:
        raise NotImplementedError

    def _warning(self, code: str, description: str) -> ProtocolOutput:
        return json_message(type="Warning", code=code, description=description, warn_code=code, warn_msg=description)

    def _error(self, error: ErrorMessage) -> ProtocolOutput:
        raise NotImplementedError

    def _disconnect(self) -> Iterable[ProtocolOutput]:
        yield Disconnect(CloseCode.NORMAL)


class DeepgramV1(Deepgram):
    """Aura (`/v1/speak`): `Flushed` follows the audio of each flush, `Clear` stops."""

    reports_spoken_text = False

    def __init__(self, options: DeepgramOptions) -> None:
        super().__init__(options)
        self._sequence_id = 0

    def _apply(self, incoming: DeepgramMessage) -> Iterable[ProtocolAction]:
        if incoming.type == "Clear":
            turn = self._turns.live
            return (self._numbered("Cleared"),) if turn is None else tuple(self._cut(turn, None))
        return super()._apply(incoming)

    def _greeting(self) -> ProtocolOutput:
        options = self._options
        return json_message(
            type="Metadata",
            request_id=options.request_id,
            model_name=options.voice,
            model_version=VERSION,
            model_uuid=MODEL,
        )

    def _started(self, turn: SpeechTurn) -> Iterable[ProtocolOutput]:
        del turn
        return ()

    def _end_marks(self, turn: SpeechTurn) -> Iterable[ProtocolOutput]:
        del turn
        yield self._numbered("Flushed")

    def _interrupted(self, turn: SpeechTurn, message: InterruptedMessage) -> Iterable[ProtocolOutput]:
        del turn, message
        self._turns.clear()
        yield self._numbered("Cleared")

    def _error(self, error: ErrorMessage) -> ProtocolOutput:
        code = error.code.upper()
        return json_message(type="Error", code=code, description=error.message, err_code=code, err_msg=error.message)

    def _numbered(self, type: str) -> ProtocolOutput:
        message = json_message(type=type, sequence_id=self._sequence_id)
        self._sequence_id += 1
        return message


ENDPOINT = WebSocketEndpoint(
    "/v1/speak",
    lambda request, factory: DeepgramV1(read_options(request, factory)),
    refuse,
    reads_when_idle=False,
)


class _DeepgramRequest(BaseModel):
    model_config = ConfigDict(extra="ignore")

    text: str


def _open(request: EndpointRequest, body: _DeepgramRequest, factory: UtteranceFactory) -> OneShotProtocol:
    """Raises UnknownVoice, UnsupportedFormat, UnsupportedOption, BadMessage, EngineNotReady."""
    options = read_http_options(request.query, factory)
    start = options.start(ONE_SHOT_UTTERANCE, pacing="none")
    return OneShotProtocol(Deepgram.name, start, body.text, ResponseBody(options.audio_format.media_type))


SPEECH_ENDPOINTS = tuple(SpeechEndpoint(path, _DeepgramRequest, _open, refuse) for path in ("/v1/speak", "/v2/speak"))
