"""`nari.speech.v1`, the live text of Nari Labs' benchmark: one utterance on a socket, each fragment acknowledged."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from voxgate.pipeline.errors import BadMessage
from voxgate.pipeline.interface import FinishReason

from ..messages.client import End, Interrupt, Start, Text
from ..messages.connection import CloseCode, SessionMessage
from ..messages.parsing import Count, Name, parse_json
from ..messages.server import (
    AcceptedMessage,
    DoneMessage,
    ErrorMessage,
    InterruptedMessage,
    ServerMessage,
    StartedMessage,
)
from ..messages.start_fields import INSTRUCTIONS_CHARACTERS, FormatFields
from ..session.outbox import AudioPacket
from ..session.protocol import Disconnect, ProtocolAction, ProtocolOutput, WireProtocol
from ..session.utterance_factory import UtteranceFactory
from .endpoint import WebSocketEndpoint
from .payloads import json_message

SUBPROTOCOL = "nari.speech.v1"
RATE_HZ = 24_000
_AUDIO = {"encoding": "pcm_s16le", "sample_rate": RATE_HZ, "channels": 1}
_UTTERANCE = "speech"
"""The name of the only utterance."""


class NariMessage(BaseModel):
    """Any message of a client. Other fields are accepted and ignored."""

    model_config = ConfigDict(extra="ignore")

    type: str
    voice: str | None = None
    language: Name = "auto"
    instructions: str | None = Field(None, max_length=INSTRUCTIONS_CHARACTERS)
    response_format: Literal["pcm"] = "pcm"
    seed: Count | None = None
    sequence: Count | None = None
    text: str = ""


class NariSpeech(WireProtocol):
    """One utterance. Every error ends the socket, as its clients expect."""

    name = "nari"
    reports_spoken_text = False

    def __init__(self, factory: UtteranceFactory) -> None:
        self._factory = factory
        self._request_id = str(uuid.uuid4())
        self._started = False
        """Whether the utterance was requested."""
        self._text_complete = False
        self._sequence = 0
        """Number of the next message with text."""
        self._audio_messages = 0

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:
        del now_s
        incoming = parse_json(NariMessage, payload)
        if incoming.type == "request.start" and not self._started:
            return (self._start(incoming),)
        if not self._started:
            raise BadMessage("the first message must be request.start", param="type")
        match incoming.type:
            case "input_text.append" if not self._text_complete:
                return (Text(type="text", utterance=_UTTERANCE, text=incoming.text), self._acknowledge(incoming))
            case "input_text.end" if not self._text_complete:
                acknowledgement = self._acknowledge(incoming)
                self._text_complete = True
                return (acknowledgement, End(type="end", utterance=_UTTERANCE))
            case "response.cancel":
                return (Interrupt(type="interrupt", utterance=_UTTERANCE),)
        raise BadMessage(f"a message of type {incoming.type[:50]!r} is not expected here", param="type")

    def _start(self, incoming: NariMessage) -> Start:
        """Raises UnknownVoice, EngineNotReady."""
        voice = self._factory.find_voice(incoming.voice or self._factory.default_voice)
        self._started = True
        return Start(
            type="start",
            utterance=_UTTERANCE,
            voice=voice,
            language=incoming.language.lower(),
            instructions=incoming.instructions or None,
            seed=incoming.seed,
            format=FormatFields(codec="pcm", sample_rate=RATE_HZ),
            pacing="none",
        )

    def _acknowledge(self, incoming: NariMessage) -> ProtocolOutput:
        """Raises BadMessage for a message out of order."""
        if incoming.sequence != self._sequence:
            raise BadMessage(f"sequence must be {self._sequence}, got {incoming.sequence}", param="sequence")
        self._sequence += 1
        return json_message(type="input_text.ack", event=incoming.type, sequence=incoming.sequence)

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        match message:
            case SessionMessage():
                return (json_message(type="session.created", protocol=SUBPROTOCOL, audio=_AUDIO),)
            case AcceptedMessage():
                return (json_message(type="request.configured"),)
            case StartedMessage():
                return (json_message(type="response.started", request_id=self._request_id, audio=_AUDIO),)
            case DoneMessage():
                return self._end("stop" if message.reason == FinishReason.END else message.reason)
            case InterruptedMessage():
                return self._end("cancelled")
            case ErrorMessage():
                error: dict[str, Any] = {"code": message.code, "message": message.message}
                return (json_message(type="error", error=error), Disconnect(CloseCode.POLICY, message.code))
        return ()

    def _end(self, stop_reason: str) -> Iterable[ProtocolOutput]:
        yield json_message(
            type="response.done",
            request_id=self._request_id,
            stop_reason=stop_reason,
            audio_chunks=self._audio_messages,
        )
        yield Disconnect(CloseCode.NORMAL)

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> bytes | None:
        del utterance, now_s
        self._audio_messages += bool(packet.payload)
        return packet.payload or None


ENDPOINT = WebSocketEndpoint(
    "/v1/audio/speech/ws",
    lambda request, factory: NariSpeech(factory),  # noqa: ARG005 - options come with the first message
    subprotocol=SUBPROTOCOL,
)
