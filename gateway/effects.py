"""What a session wants done in the world; its connection does it, in order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from .utterance import Utterance


class CloseCode(IntEnum):
    """Why the gateway closes a socket (RFC 6455, section 7.4; 4001 is the protocol's own)."""

    NORMAL = 1000
    NOT_ACCEPTABLE = 1003
    POLICY = 1008
    RESTARTING = 1012
    SLOW_CONSUMER = 4001


@dataclass(frozen=True, slots=True)
class SendMessage:
    """A message that is no audio of an utterance under way."""

    message: str | bytes


@dataclass(frozen=True, slots=True)
class SendAudio:
    """A packet of `utterance` leaves; None where the dialect has nothing to say for it (yet)."""

    utterance: Utterance
    message: str | bytes | None


@dataclass(frozen=True, slots=True)
class Listen:
    """Read the chunks of the utterance's open speech, while its outbox has room."""

    utterance: Utterance


@dataclass(frozen=True, slots=True)
class Retire:
    """Close the utterance's speech, if one is open, then give its ticket back."""

    utterance: Utterance


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the client whether it has read everything so far, and tell `Session.has_read` when it has."""


@dataclass(frozen=True, slots=True)
class CloseSocket:
    """Close the socket; nothing follows. After `patience_s` it is cut, whether or not the client agreed."""

    code: CloseCode
    reason: str
    patience_s: float = 1.0


Effect = SendMessage | SendAudio | Listen | Retire | Probe | CloseSocket
