"""The native protocol (docs/protocol.md): the session's own messages as JSON, audio behind a binary header."""

from __future__ import annotations

from collections.abc import Iterable

from voxgate.pipeline.errors import BadMessage

from ..messages.client import Auth, Defaults, Restore, Start, parse_message
from ..messages.connection import SUBPROTOCOL, CloseCode, SessionMessage
from ..messages.parsing import MessageReference, read_reference
from ..messages.resumption import Received, Resume
from ..messages.server import AcceptedMessage, ErrorMessage, GeneratedMessage, ServerMessage
from ..session.outbox import AudioPacket
from ..session.protocol import ProtocolAction, ProtocolOutput, SendPayload, WireProtocol
from ..session.utterance_factory import UtteranceFactory
from .endpoint import CHECKPOINTS_QUERY, RESUME_NEW, RESUME_QUERY, EndpointRequest, FirstMessageKey, WebSocketEndpoint

SPEECH_PATH = "/v1/speech"


class NativeProtocol(WireProtocol):
    """Passes messages through unchanged, with the client's defaults.

    `extended`: whether the client ignores messages that it does not know; otherwise it gets none that the first edition
    of version 1 did not have, unless it asks for them. `model`: identity of the model, for a client that asks for
    checkpoints.
    """

    name = "native"
    holds_utterances = True
    slow_consumer_close_code = CloseCode.SLOW_CONSUMER

    def __init__(self, *, extended: bool = False, resumable: bool = False, model: str | None = None) -> None:
        self._extended, self._model = extended, model
        self.resumable, self.checkpoints = resumable, model is not None
        self._defaults: Defaults | None = None

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:  # noqa: ARG002 - messages carry no time
        message = parse_message(payload)
        match message:
            case Defaults():
                self._defaults = message
                return ()
            case Auth():
                return ()
            case Resume():
                raise BadMessage("resume must be the first message of a socket opened with ?resume=SESSION")
            case Received():
                if self.resumption is not None:
                    self.resumption.confirm(message.messages)
                return ()
            case Start() if self._defaults is not None and not isinstance(message, Restore):
                return (message.over(self._defaults),)
        return (message,)

    def refers_to(self, payload: str) -> MessageReference:
        return read_reference(payload)

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        if isinstance(message, AcceptedMessage) or (isinstance(message, GeneratedMessage) and not self._extended):
            return ()
        if isinstance(message, SessionMessage):
            offer = None if self.resumption is None else self.resumption.offer
            message = message.model_copy(update={"resume": offer, "model": self._model})
        return (SendPayload(message.encode()),)

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> bytes:  # noqa: ARG002 - as above
        return packet.header.pack() + packet.payload


def find_key(payload: str) -> str | None:
    """Returns the key of an `auth` or `resume` message; None for any other message."""
    try:
        message = parse_message(payload)
    except BadMessage:
        return None
    return message.key if isinstance(message, Auth | Resume) else None


def find_resume(payload: str) -> Resume | None:
    """Returns a `resume` message; None for any other message."""
    try:
        message = parse_message(payload)
    except BadMessage:
        return None
    return message if isinstance(message, Resume) else None


def _wants_auth_message(request: EndpointRequest) -> bool:
    """Whether the client says in the query that its key comes in the first message; others are refused with 401."""
    return request.query.get("auth") == "message"


def _open(request: EndpointRequest, factory: UtteranceFactory) -> NativeProtocol:
    extended = SUBPROTOCOL in request.subprotocols
    resumable = request.query.get(RESUME_QUERY) == RESUME_NEW and factory.settings.resume_s > 0
    asked = request.query.get(CHECKPOINTS_QUERY) == "1" and resumable and factory.checkpoints is not None
    model = factory.synthesizer.identity if asked else None
    return NativeProtocol(extended=extended, resumable=resumable, model=model)


ENDPOINT = WebSocketEndpoint(
    SPEECH_PATH,
    _open,
    first_message_key=FirstMessageKey(
        find_key, lambda error: ErrorMessage.of(error).encode(), _wants_auth_message, find_resume
    ),
    subprotocol=SUBPROTOCOL,
)
