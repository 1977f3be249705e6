"""What a wire protocol is to a session: a translator with a little state, which waits for nothing.

The session decides what happens to utterances and speaks in `messages`; a protocol says the same in the words of
its clients. A new one is a file with a subclass, and a line in `registry.py`.
"""
# TODO-DOC Which errors refuse a message, and which end the utterance it was about.

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from voxgate.pipeline.errors import BadMessage, TextTooLong

from ..errors import DuplicateUtterance, RateLimited, UnknownUtterance, UtteranceEnded
from ..messages import ClientMessage, CloseCode, ServerMessage
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
ProtocolAction = ClientMessage | ProtocolOutput


class WireProtocol:
    """One socket's translator. Everything it is told comes in order; times are of the loop's clock."""

    name: str
    """In logs and metrics."""
    plays_in_order: ClassVar[bool] = False
    """Its utterances are heard one after another, so the lead of one counts for the next."""
    slow_consumer_close_code: ClassVar[CloseCode] = CloseCode.POLICY
    """What closes a socket whose client stopped reading."""

    def receive(self, payload: str, now_s: float) -> Iterable[ProtocolAction]:
        """A message of the client; `tick` was called before when it was due.

        Raises VoxgateError (BadMessage and the like), which the client is told.
        """
        raise NotImplementedError

    def encode(self, message: ServerMessage) -> Iterable[ProtocolOutput]:
        """What the session has to say."""
        raise NotImplementedError

    def encode_audio(self, utterance: str, packet: AudioPacket, now_s: float) -> str | bytes | None:
        """The message that carries a packet leaving now; None when there is nothing to send for it."""
        raise NotImplementedError

    def tick(self, now_s: float) -> Iterable[ProtocolAction]:
        """What it does by itself, now that `next_wake_s` has come."""
        del now_s
        return ()

    def next_wake_s(self) -> float:
        """When `tick` has something to do; infinity for never, the past for now."""
        return math.inf


MESSAGE_ERROR_CODES = frozenset(
    error.code for error in (BadMessage, TextTooLong, RateLimited, UnknownUtterance, DuplicateUtterance, UtteranceEnded)
)
"""Codes of errors after which an utterance goes on, if there was one (docs/protocol.md, "Errors")."""
