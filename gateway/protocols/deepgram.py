"""What a Deepgram client asks for in a URL, and how it is told that this is not offered."""
# TODO-DOC Deepgram over WebSockets: text in JSON, audio in binary messages, one turn after another; `/v1/speak` here.
# TODO-DOC A turn is an utterance from its first text to `Flush`; its talker slot is free between turns.
# TODO-DOC docs/service_protocols.md has the rules in full, `deepgram_v2.py` the words of Flux.
# TODO-DOC Deepgram over plain HTTP: `POST /v1/speak`, and the same at `/v2/speak`.

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field
from voxgate.codecs.format import FormatError, OutputFormat
from voxgate.pipeline.errors import BadMessage, EmptyText, UnsupportedFormat, VoxgateError

from ..http.application import read_json
from ..http.streaming import HttpSpeech
from ..messages import (
    TEXT_WAITED_OUT,
    CloseCode,
    Count,
    DoneMessage,
    ErrorMessage,
    FormatFields,
    Interrupt,
    InterruptedMessage,
    QueuedMessage,
    ServerMessage,
    SessionMessage,
    Start,
    StartedMessage,
    WarningMessage,
    parse_json,
)
from ..session.outbox import AudioPacket
from ..session.protocol import (
    MESSAGE_ERROR_CODES,
    Disconnect,
    ProtocolAction,
    ProtocolOutput,
    SendPayload,
    WireProtocol,
)
from ..session.utterance_factory import UtteranceFactory
from .catalog import MODEL, check_query_speed
from .endpoint import EndpointRequest, WebSocketEndpoint
from .one_shot import ONE_SHOT_UTTERANCE, OneShotProtocol, ResponseBody
from .reply import Reply, json_reply, retry_headers, status_of
from .turn_queue import SpeechTurn, TurnQueue

_RAW = {"linear16": "pcm", "mulaw": "mulaw", "alaw": "alaw"}
"""Encodings on sockets, by our names."""
_DEFAULT_RATES = {"linear16": 24_000, "mulaw": 8000, "alaw": 8000, "mp3": 22_050, "opus": 48_000}
_DEFAULT_BIT_RATES = {"mp3": 48_000, "opus": 32_000}
_HEADER_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class DeepgramOptions:
    """One URL's: every turn on its socket has the same."""

    voice: str
    audio_format: OutputFormat
    request_id: str

    def start(self, utterance: str, pacing: Literal["playback", "none"] = "playback") -> Start:
        """The message that begins an utterance."""
        wanted = FormatFields.of(self.audio_format)
        return Start(type="start", utterance=utterance, voice=self.voice, format=wanted, pacing=pacing)


def read_options(handshake: EndpointRequest, factory: UtteranceFactory) -> DeepgramOptions:
    """A socket's. Raises UnknownVoice, UnsupportedFormat, UnsupportedOption, BadMessage, EngineNotReady."""
    encoding = handshake.query.get("encoding", "linear16")
    if encoding not in _RAW:
        raise UnsupportedFormat(f"encoding is one of {', '.join(_RAW)}", param="encoding")
    return _options(handshake.query, factory, encoding, _RAW[encoding])


def read_http_options(query: Mapping[str, str], factory: UtteranceFactory) -> DeepgramOptions:
    """A request's, which can have containers too. Raises the same."""
    encoding = query.get("encoding", "mp3")
    codecs = _RAW | {"mp3": "mp3", "opus": "ogg_opus"}
    if encoding not in codecs:
        raise UnsupportedFormat(f"encoding is one of {', '.join(codecs)}", param="encoding")
    codec = codecs[encoding]
    if encoding == "linear16" and query.get("container", "wav") == "wav":
        codec = "wav"
    return _options(query, factory, encoding, codec)


def _options(query: Mapping[str, str], factory: UtteranceFactory, encoding: str, codec: str) -> DeepgramOptions:
    check_query_speed(query)
    model = query.get("model")
    voice = factory.default_voice if model is None else factory.find_voice(model)
    rate_hz = _whole_number(query, "sample_rate", _DEFAULT_RATES[encoding])
    bit_rate = _whole_number(query, "bit_rate", _DEFAULT_BIT_RATES.get(encoding, 0))
    try:
        audio_format = OutputFormat(codec, rate_hz, bit_rate) if bit_rate else OutputFormat(codec, rate_hz)
    except FormatError as refused:
        raise UnsupportedFormat(str(refused), param=refused.param) from refused
    return DeepgramOptions(voice, audio_format, str(uuid.uuid4()))


def _whole_number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise BadMessage(f"{name} is a whole number", param=name)
    return int(text)


def refuse(error: VoxgateError | ErrorMessage) -> Reply:
    """A refused handshake or request: the reason is in headers too, which is where clients look."""
    request_id = str(uuid.uuid4())
    reason = " ".join(error.message.encode("ascii", "replace").decode().split())[:_HEADER_CHARACTERS]
    headers = {"dg-error": reason, "dg-request-id": request_id, **retry_headers(error.retry_after_ms)}
    document = {"err_code": error.code.upper(), "err_msg": error.message, "request_id": request_id}
    return json_reply(status_of(error), document, headers)


VERSION = "1"


class PlaybackOffset(BaseModel):
    """How much of the session's audio was played, in milliseconds."""

    value: Count


class DeepgramMessage(BaseModel):
    """Any message of a client; fields that we do nothing with are let pass."""

    model_config = ConfigDict(extra="ignore")

    type: str
    text: str = ""
    playback_offset: PlaybackOffset | None = None
    speed: float | None = Field(None, allow_inf_nan=False)


class Deepgram(WireProtocol):
    """What both versions have in common."""

    name = "deepgram"
    plays_in_order = True

    def __init__(self, options: DeepgramOptions) -> None:
        self._options = options
        self._turns = TurnQueue(options.start)
        self._closing = False

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:
        del now_s
        incoming = parse_json(DeepgramMessage, payload)
        return () if self._closing else self._take(incoming)

    def _take(self, incoming: DeepgramMessage) -> Iterable[ProtocolAction]:
        match incoming.type:
            case "Speak":
                return tuple(self._turns.speak(incoming.text))
            case "Flush":
                return tuple(self._flush())
            case "Close":
                return tuple(self._close())
        raise BadMessage(f"unknown type {incoming.type[:50]!r}", param="type")

    def _flush(self) -> Iterable[ProtocolAction]:
        yield from self._turns.complete()
        if self._turns.finished:
            yield from self._end_turn()

    def _close(self) -> Iterable[ProtocolAction]:
        """What was said is finished, then the socket closes."""
        self._closing = True
        if self._turns.open_turn is not None:
            yield from self._flush()
        elif self._turns.idle:
            yield from self._hang_up()

    def tick(self, now_s: float) -> Iterable[ProtocolAction]:
        del now_s
        steps = list(self._turns.next())
        if self._turns.finished:
            steps += self._end_turn()
        return steps

    def next_wake_s(self) -> float:
        return self._turns.next_wake_s()

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        if isinstance(message, SessionMessage):
            return (self._greeting(),)
        if isinstance(message, WarningMessage):
            if message.code == TEXT_WAITED_OUT:
                self._turns.close(message.utterance)
            return (self._warning(message.code.upper(), message.message),)
        if isinstance(message, ErrorMessage) and message.utterance is None:
            return (self._error(message),)
        turn = self._turns.live
        if turn is None or turn.name != getattr(message, "utterance", None):
            return ()
        match message:
            case QueuedMessage():
                turn.taken = True
            case StartedMessage():
                turn.taken = True
                return self._started(turn)
            case DoneMessage():
                turn.over = True
                turn.characters = message.characters
            case InterruptedMessage():
                turn.characters = len(message.text_spoken) + len(message.text_remaining)
                return tuple(self._interrupted(turn, message))
            case ErrorMessage():
                return tuple(self._failed(turn, message))
        return tuple(self._end_turn()) if self._turns.finished else ()

    def _failed(self, turn: SpeechTurn, failed: ErrorMessage) -> Iterable[ProtocolOutput]:
        if turn.over:
            return  # its text came in the same breath as what was refused: one error is enough
        if failed.code != EmptyText.code:  # nothing to say is no mistake here
            turn.failed = True
            yield self._error(failed)
        if failed.code not in MESSAGE_ERROR_CODES or not turn.taken:
            # The end mark belongs to the client's Flush: a turn that fails before takes the rest of its text in.
            turn.over = True
            if turn.complete:
                yield from self._end_turn()

    def _end_turn(self) -> Iterable[ProtocolOutput]:
        turn = self._turns.live
        assert turn is not None
        self._turns.live = None
        yield from self._end_marks(turn)
        if self._closing and self._turns.idle:
            yield from self._hang_up()

    def _cut(self, turn: SpeechTurn, played_ms: int | None) -> Iterable[ProtocolAction]:
        """Stop the live turn and forget those behind it."""
        if turn.started and not turn.over:
            self._turns.drop()
            self._turns.live = turn  # until its answer is there
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

    # In the words of each version

    def _greeting(self) -> ProtocolOutput:
        raise NotImplementedError

    def _started(self, turn: SpeechTurn) -> Iterable[ProtocolOutput]:
        raise NotImplementedError

    def _end_marks(self, turn: SpeechTurn) -> Iterable[ProtocolOutput]:
        raise NotImplementedError

    def _interrupted(self, turn: SpeechTurn, message: InterruptedMessage) -> Iterable[ProtocolOutput]:
        raise NotImplementedError

    def _warning(self, code: str, description: str) -> ProtocolOutput:
        return say(type="Warning", code=code, description=description, warn_code=code, warn_msg=description)

    def _error(self, failed: ErrorMessage) -> ProtocolOutput:
        raise NotImplementedError

    def _hang_up(self) -> Iterable[ProtocolOutput]:
        yield Disconnect(CloseCode.NORMAL)


class DeepgramV1(Deepgram):
    """Aura: `Flushed` after the audio of each flush, `Clear` to stop."""

    def __init__(self, options: DeepgramOptions) -> None:
        super().__init__(options)
        self._sequence_id = 0

    def _take(self, incoming: DeepgramMessage) -> Iterable[ProtocolAction]:
        if incoming.type == "Clear":
            turn = self._turns.live
            return (self._numbered("Cleared"),) if turn is None else tuple(self._cut(turn, None))
        return super()._take(incoming)

    def _greeting(self) -> ProtocolOutput:
        options = self._options
        return say(
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
        self._turns.drop()
        yield self._numbered("Cleared")

    def _error(self, failed: ErrorMessage) -> ProtocolOutput:
        code = failed.code.upper()
        return say(type="Error", code=code, description=failed.message, err_code=code, err_msg=failed.message)

    def _numbered(self, type: str) -> ProtocolOutput:
        said = say(type=type, sequence_id=self._sequence_id)
        self._sequence_id += 1
        return said


def say(**fields: Any) -> SendPayload:
    """A message of these fields."""
    return SendPayload(json.dumps(fields))


ENDPOINT = WebSocketEndpoint("/v1/speak", lambda asked, factory: DeepgramV1(read_options(asked, factory)), refuse)


class _DeepgramRequest(BaseModel):
    model_config = ConfigDict(extra="ignore")

    text: str


class DeepgramHttp:
    """The routes; errors are refused in Deepgram's shape."""

    refuse = staticmethod(refuse)

    def __init__(self, factory: UtteranceFactory, speech: HttpSpeech) -> None:
        self._factory = factory
        self._speech = speech

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/speak", self._speak), web.post("/v2/speak", self._speak)]

    async def _speak(self, request: web.Request) -> web.StreamResponse:
        options = read_http_options(request.query, self._factory)
        wanted = await read_json(request, _DeepgramRequest)
        start = options.start(ONE_SHOT_UTTERANCE, pacing="none")
        body = ResponseBody(options.audio_format.media_type)
        return await self._speech.answer(request, OneShotProtocol("deepgram", start, wanted.text, body), refuse)
