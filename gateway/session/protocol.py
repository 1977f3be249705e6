"""The interface of a wire protocol: a synchronous translator between a client's messages and the session's.

The session decides what happens to utterances and speaks in `gateway.messages`; a wire protocol says the same in the
format of its clients. A new one is a subclass of `WireProtocol` and an entry in `protocols.registry`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from voxgate.pipeline.errors import BadMessage, TextTooLong

from ..errors import DuplicateUtterance, NotHeld, RateLimited, UnknownUtterance, UtteranceEnded
from ..messages.client import ClientMessage
from ..messages.connection import CloseCode
from ..messages.parsing import MessageReference
from ..messages.resumption import ResumeOffer
from ..messages.server import ServerMessage
from .outbox import AudioPacket


@dataclass(frozen=True, slots=True)
class SendPayload:
    """Send a text or binary message."""

    payload: str | bytes


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the socket; nothing follows."""

    code: CloseCode
    reason: str = ""


ProtocolOutput = SendPayload | Disconnect
"""What a protocol sends to its client."""
ProtocolAction = ClientMessage | ProtocolOutput
"""What a protocol has the session do."""


class Resumption(Protocol):
    """What keeps a session alive when its connection is lost."""

    @property
    def offer(self) -> ResumeOffer:
        """What the client needs in order to resume."""

    def confirm(self, messages: int) -> None:
        """The client has received that many messages. Raises BadMessage for more than were sent."""

    def lose(self) -> None:
        """Gives up the connection, whose client does not read; the client may resume."""


class WireProtocol:
    """One socket's translator. Its methods are called in order; times are those of the event loop's clock."""

    name: str
    """Name in logs and metrics."""
    reports_spoken_text: ClassVar[bool] = True
    """Whether clients are told which text was spoken before an interrupt; it takes work to find out."""
    plays_in_order: ClassVar[bool] = False
    """Whether utterances are played one after another, so that audio sent ahead for one delays the next."""
    voice: str | None = None
    """The voice of all its utterances, where the client asks for it before the first; the answer's headers name it."""
    clients_buffer: ClassVar[bool] = False
    """Whether its clients keep audio in buffers of their own, so that all that is generated may be sent at once."""
    holds_utterances: ClassVar[bool] = False
    """Whether its clients can have an interrupted utterance kept, and go on."""
    resumption: Resumption | None = None
    """Keeps the session alive when its connection is lost; None where the session ends with it."""
    resumable: bool = False
    """Whether the client can resume, so that the session gets a `resumption`."""
    checkpoints: bool = False
    """Whether the client wants checkpoints of its utterances."""
    slow_consumer_close_code: ClassVar[CloseCode] = CloseCode.POLICY
    """Close code for a client that stopped reading."""

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:
        """Translates a message of the client. `tick` is called before it when due.

        Raises VoxgateError (such as BadMessage), which is sent to the client.
        """
        raise NotImplementedError

    def refers_to(self, payload: str) -> MessageReference:
        """Returns what a refused message refers to, as far as it can be read. Never raises."""
        del payload
        return MessageReference()

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        """Translates a message of the session."""
        raise NotImplementedError

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> str | bytes | None:
        """Returns the message that carries a packet; None when no message is sent for it."""
        raise NotImplementedError

    def tick(self, now_s: float) -> Iterable[ProtocolAction]:
        """Does what is due at `next_wake_s`."""
        del now_s
        return ()

    def next_wake_s(self) -> float:
        """When `tick` has something to do; infinity for never, a past time for now."""
        return math.inf


MESSAGE_ERROR_CODES = frozenset(
    error.code
    for error in (
        BadMessage,
        TextTooLong,
        RateLimited,
        UnknownUtterance,
        DuplicateUtterance,
        UtteranceEnded,
        NotHeld,
    )
)
"""Codes of errors that refuse one message; every other error ends its utterance (docs/protocol.md, "Errors")."""
