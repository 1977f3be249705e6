"""Messages to the client about its connection: limits, shutdown, answers to pings; and close codes."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Literal

from .parsing import GatewayMessage, StrictMessage
from .resumption import ResumeOffer

SUBPROTOCOL = "voxgate.v1"
"""WebSocket subprotocol of a client that ignores messages and fields that it does not know."""


class Limits(StrictMessage):
    """Limits of a socket, sent in the `session` message. `Settings.session_limits` fills it in."""

    lead_ms: int
    lead_max_ms: int
    utterances_per_session: int
    characters_per_utterance: int
    message_bytes: int
    messages_per_s: float
    starts_per_s: float
    interrupts_per_s: float
    queue_wait_ms: int
    stall_limit_ms: int
    hold_max_ms: int


class Quota(StrictMessage):
    """Limits of the client's key (without keys, of its address) and what is left of them; None where unlimited."""

    sockets: int | None = None
    sockets_left: int | None = None
    utterances: int | None = None
    characters_per_minute: int | None = None
    characters_left: int | None = None


CAPABILITIES = (
    "auth",
    "checkpoints",
    "defaults",
    "framing",
    "generated",
    "hold_ms",
    "lead_ms",
    "limits",
    "offsets",
    "resume",
    "retract",
    "starving",
    "traceparent",
    "visemes",
)
"""What this gateway's native protocol has beyond the first edition of version 1."""


class SessionMessage(GatewayMessage):
    """First message on a socket: its name, the voices, formats and limits; the model where it sends checkpoints."""

    type: Literal["session"] = "session"
    protocol: int = 1
    session: str
    voices: str = "/v1/voices"
    default_voice: str
    formats: tuple[dict[str, Any], ...]
    capabilities: tuple[str, ...] = CAPABILITIES
    limits: Limits
    quota: Quota
    resume: ResumeOffer | None = None
    model: str | None = None


class LimitsMessage(GatewayMessage):
    """Answers a request for the limits."""

    type: Literal["limits"] = "limits"
    id: str | None = None
    limits: Limits
    quota: Quota


class GoingAwayMessage(GatewayMessage):
    """The gateway is shutting down; active utterances may finish within `deadline_ms`.

    `restore_elsewhere`: the client has all parts of their checkpoints, and can go on at another gateway at once.
    """

    type: Literal["going_away"] = "going_away"
    deadline_ms: int
    restore_elsewhere: bool | None = None


class PongMessage(GatewayMessage):
    """Answers a `ping`."""

    type: Literal["pong"] = "pong"
    id: str | None = None


class CloseCode(IntEnum):
    """WebSocket close codes of the gateway (RFC 6455, section 7.4, and its registry; 4001 is in the private range)."""

    NORMAL = 1000
    GOING_AWAY = 1001
    NOT_ACCEPTABLE = 1003
    POLICY = 1008
    RESTARTING = 1012
    TRY_AGAIN_LATER = 1013
    SLOW_CONSUMER = 4001
    LOST = 4002
    """Of a client that gives its connection up and resumes."""
