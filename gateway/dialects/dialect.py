"""What a wire protocol is to a session: a translator with a little state, which waits for nothing.

The session decides what happens to utterances and speaks in `messages`; a dialect says the same in the words of
its clients. A new one is a file with a subclass, and a line in `registry.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from ..effects import CloseCode
from ..messages import ClientMessage, ServerMessage
from ..outbox import AudioPacket


@dataclass(frozen=True, slots=True)
class Say:
    """Send a text or binary message."""

    payload: str | bytes


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the socket; nothing follows."""

    code: CloseCode
    reason: str = ""


Output = Say | HangUp
Step = ClientMessage | Output


class Dialect:
    """One socket's translator. Everything it is told comes in order; times are of the loop's clock."""

    name: str
    """In logs and metrics."""
    serial: ClassVar[bool] = False
    """Its utterances are heard one after another, so the lead of one counts for the next."""
    slow_consumer: ClassVar[CloseCode] = CloseCode.POLICY
    """What closes a socket whose client stopped reading."""

    def receive(self, payload: str, now_s: float) -> Iterable[Step]:
        """A message of the client; `tick` was called before when it was due.

        Raises VoxgateError (BadMessage and the like), which the client is told.
        """
        raise NotImplementedError

    def tell(self, message: ServerMessage) -> Iterable[Output]:
        """What the session has to say."""
        raise NotImplementedError

    def audio(self, utterance: str, packet: AudioPacket, now_s: float) -> str | bytes | None:
        """The message that carries a packet leaving now; None when there is nothing to send for it."""
        raise NotImplementedError

    def tick(self, now_s: float) -> Iterable[Step]:
        """What it does by itself, now that `next_wake_s` has come."""
        del now_s
        return ()

    def next_wake_s(self) -> float:
        """When `tick` has something to do; infinity for never, the past for now."""
        return math.inf
