"""Messages with which a session outlives its connection, and an utterance its gateway (docs/protocol.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from .parsing import Count, GatewayMessage, MessageId, StrictMessage, UtteranceId

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


class ClientProgress(StrictMessage):
    """What a client has of an utterance: so many audio messages, the `last` one among them or not, words, visemes.

    `words_end_ms`: where the last of these words ends, so that the next ones do not begin before.
    """

    messages: Count
    last: bool = False
    words: Count = 0
    words_end_ms: Count = 0
    visemes: Count = 0


class CheckpointParts(StrictMessage):
    """Client: further parts of the checkpoint of a `restore`, before its text."""

    type: Literal["checkpoint"]
    id: MessageId | None = None
    utterance: UtteranceId
    parts: Annotated[tuple[str, ...], Field(min_length=1)]


class CheckpointMessage(GatewayMessage):
    """Gateway: the next part of the checkpoint of an utterance."""

    type: Literal["checkpoint"] = "checkpoint"
    utterance: str
    part: str
