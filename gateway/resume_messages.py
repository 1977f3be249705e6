"""Messages with which a session outlives its connection (docs/protocol.md, "A lost connection")."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

from .message_parsing import Count, MessageId, StrictMessage

Secret = Annotated[str, StringConstraints(min_length=1, max_length=4096)]


class Resume(StrictMessage):
    """Client, first message of a socket opened with `?resume=SESSION`: continues that session.

    `received` counts the gateway's messages that arrived. `key` is the API key or token of a client that sends it in
    its first message.
    """

    type: Literal["resume"]
    id: MessageId | None = None
    token: Secret
    received: Count
    key: Secret | None = None


class Received(StrictMessage):
    """Client: `messages` of the gateway's messages arrived, which need not be kept any longer."""

    type: Literal["received"]
    id: MessageId | None = None
    messages: Count


class ReceivedMessage(StrictMessage):
    """Gateway: `messages` of the client's messages arrived."""

    type: Literal["received"] = "received"
    messages: int


class ResumeOffer(StrictMessage):
    """How the session can be resumed: with `token`, up to `within_ms` after a loss.

    The gateway sends at most `unconfirmed_bytes` beyond what the client has confirmed.
    """

    token: str
    within_ms: int
    unconfirmed_bytes: int


class ResumedMessage(StrictMessage):
    """Gateway, first message of a socket that resumes: `received` of the client's messages arrived."""

    type: Literal["resumed"] = "resumed"
    session: str
    received: int
    resume: ResumeOffer
