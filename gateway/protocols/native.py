"""The native protocol (docs/protocol.md): the session's own messages as JSON, audio behind a binary header."""

from __future__ import annotations

from collections.abc import Iterable

from ..messages import AcceptedMessage, CloseCode, MessageReference, ServerMessage, parse_message, read_reference
from ..session.outbox import AudioPacket
from ..session.protocol import ProtocolAction, ProtocolOutput, SendPayload, WireProtocol
from .endpoint import WebSocketEndpoint

SPEECH_PATH = "/v1/speech"


class NativeProtocol(WireProtocol):
    """Passes messages through unchanged; it has no state."""

    name = "native"
    slow_consumer_close_code = CloseCode.SLOW_CONSUMER

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:  # noqa: ARG002 - messages carry no time
        return (parse_message(payload),)

    def refers_to(self, payload: str) -> MessageReference:
        return read_reference(payload)

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        return () if isinstance(message, AcceptedMessage) else (SendPayload(message.encode()),)

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> bytes:  # noqa: ARG002 - as above
        return packet.header.pack() + packet.payload


ENDPOINT = WebSocketEndpoint(
    SPEECH_PATH,
    lambda request, factory: NativeProtocol(),  # noqa: ARG005 - options come with the start message
)
