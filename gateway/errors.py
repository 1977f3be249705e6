"""The gateway's branch of the error tree. `pipeline.errors` has the root, the pipeline's branch, and the attributes.

VoxgateError
├── RequestError              the client's mistake; the same request fails again
│   ├── UnknownUtterance        no utterance of that name on this socket
│   ├── DuplicateUtterance      the name belongs to an utterance that has not ended
│   ├── UtteranceEnded          the utterance accepts no such message any more
│   ├── NotHeld                 `continue` for an utterance that is not held
│   ├── BodyTooLarge            the body of an HTTP request is larger than one may be
│   ├── TooManyUtterances       the socket has as many utterances as it may have
│   ├── UtteranceTimeout        the utterance lasted too long for its audio
│   ├── SlowConsumer            the client stopped reading; the socket closes
│   ├── ClientGone              the socket closed; never sent, only counted
│   ├── ResumeFailed            no session can be resumed with this token
│   │   └── ResumeElsewhere       the session is not of this process
│   └── CheckpointElsewhere     the checkpoint is of another model or version (a CheckpointRefused)
├── AccessError
│   ├── Unauthorized            API key missing, unknown, expired or forged
│   ├── Forbidden               origin or key without permission
│   ├── UnknownHost             the Host header does not name this gateway
│   └── KeyLimit                the key has as many sockets or utterances as it may have
├── RateLimited               messages or text arrive too fast; retry after `retry_after_ms`
└── Draining                  the gateway is shutting down; retry elsewhere

Errors are recognised by type and `code`, never by message text. Each message states the violated constraint.
"""

from __future__ import annotations

from enum import StrEnum

from voxgate.pipeline.errors import CheckpointRefused, RequestError, VoxgateError


class Limit(StrEnum):
    """The limits by which errors say that they refuse (`VoxgateError.reached`); docs/limits.md describes each."""

    QUEUE = "queue"
    QUEUE_SHARE = "queue_share"
    QUEUE_WAIT = "queue_wait"
    SOCKETS = "sockets"
    SOCKET_SHARE = "socket_share"
    CONNECTIONS = "connections"
    UPLOADS = "uploads"
    KEY_SOCKETS = "key_sockets"
    KEY_UTTERANCES = "key_utterances"
    KEY_CHARACTERS = "key_characters"
    MESSAGES = "messages"
    STARTS = "starts"
    INTERRUPTS = "interrupts"
    TURNS = "turns"
    UTTERANCES = "utterances"


SOCKETS_RETRY_MS = 2000
"""Retry time of a refused socket, in ms: sockets close at the rate at which conversations end."""
UTTERANCES_RETRY_MS = 1000
"""Retry time of an utterance refused by a key's limit, in ms: utterances last a few seconds."""
QUEUE_RETRY_MIN_MS = 250
"""Least retry time when the queue is full, in ms: below it, refused clients would retry in a tight loop."""
NOT_READY_RETRY_MS = 2000
"""Retry time while the engine loads or restarts, in ms."""
DRAINING_RETRY_MS = 1000
"""Retry time while the gateway shuts down, in ms: the load balancer sends the retry to another replica."""

QUOTED_CHARACTERS = 200
"""Errors quote at most this many characters of what they refuse, so that a client cannot request long answers."""


class UnknownUtterance(RequestError):
    """No utterance of that name is active on this socket."""

    code = "unknown_utterance"


class DuplicateUtterance(RequestError):
    """An active utterance has that name."""

    code = "duplicate_utterance"


class UtteranceEnded(RequestError):
    """The utterance accepts no such message any more: its text or its speech has ended."""

    code = "utterance_ended"


class NotHeld(RequestError):
    """The utterance is to be continued, and is not held."""

    code = "not_held"


class BodyTooLarge(RequestError):
    """The body of an HTTP request is larger than one may be."""

    code = "body_too_large"


class TooManyUtterances(RequestError):
    """The socket has as many active utterances as it may have."""

    code = "too_many_utterances"


class UtteranceTimeout(RequestError):
    """The utterance lasted longer than its audio and the utterance timeout allow."""

    code = "utterance_timeout"


class SlowConsumer(RequestError):
    """The client did not read or play for longer than the slow-consumer timeout."""

    code = "slow_consumer"


class ClientGone(RequestError):
    """The socket closed before the utterance ended."""

    code = "client_gone"


class ResumeFailed(RequestError):
    """No session can be resumed with this token: it is unknown, replaced, of another key, or its session has ended."""

    code = "resume_failed"


class ResumeElsewhere(ResumeFailed):
    """The session is not of this process: another one behind the same address may have it."""

    code = "resume_elsewhere"
    retryable = True


class CheckpointElsewhere(CheckpointRefused):
    """The checkpoint is of another model, or of another version: another replica may have it."""

    code = "checkpoint_elsewhere"
    retryable = True


class AccessError(VoxgateError):
    """The caller is not allowed to do this, or not now."""

    code = "forbidden"


class Unauthorized(AccessError):
    """API keys are configured, and the request has none, or one that is unknown, expired or forged."""

    code = "unauthorized"


class Forbidden(AccessError):
    """The origin of the web page is not listed, or the key lacks the permission."""


class UnknownHost(AccessError):
    """The Host header of a request does not name this gateway, which may be DNS rebinding."""

    code = "unknown_host"


class KeyLimit(AccessError):
    """The key has as many sockets or utterances as it may have; other keys are not affected."""

    code = "key_limit"
    retryable = True


class RateLimited(VoxgateError):
    """Messages or text arrive faster than the limits allow; this message was ignored."""

    code = "rate_limited"
    retryable = True


class Draining(VoxgateError):
    """The gateway is shutting down; another replica will serve the request."""

    code = "draining"
    retryable = True

    def __init__(self, message: str = "the gateway is shutting down") -> None:
        super().__init__(message, retry_after_ms=DRAINING_RETRY_MS)
