"""The native protocol (docs/protocol.md): the session's own messages as JSON, audio behind a binary header."""

from __future__ import annotations

from collections.abc import Iterable

from ..messages import CloseCode, ServerMessage, parse_message
from ..session.outbox import AudioPacket
from ..session.protocol import ProtocolAction, ProtocolOutput, SendPayload, WireProtocol
from .endpoint import WebSocketEndpoint


class NativeProtocol(WireProtocol):
    """Stateless: it says what the session says."""

    name = "native"
    slow_consumer_close_code = CloseCode.SLOW_CONSUMER

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:  # noqa: ARG002 - nothing here takes time
        return (parse_message(payload),)

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        return (SendPayload(message.encode()),)

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> bytes:  # noqa: ARG002 - as above
        return packet.header.pack() + packet.payload


SPEECH_PATH = "/v1/speech"
ENDPOINT = WebSocketEndpoint(SPEECH_PATH, lambda handshake, factory: NativeProtocol())  # noqa: ARG005 - it needs neither
