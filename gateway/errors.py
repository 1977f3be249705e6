"""The gateway's own branch of the error tree (see `pipeline.errors`): order, limits, the end of the process.

VoxgateError
├── RequestError
│   ├── UnknownUtterance / DuplicateUtterance / UtteranceEnded   wrong order
│   ├── TooManyUtterances                                        more at once than one socket may have
│   ├── SlowConsumer                                             stopped reading; the socket closes
│   └── ClientGone                                               closed the socket; told to nobody, only counted
├── AccessError
│   ├── Unauthorized                                             no key, or not a valid one
│   ├── Forbidden                                                a web page that is not listed
│   └── KeyLimit                                                 as much in use as this key may have
├── RateLimited             too many messages; try again after `retry_after_ms`
└── Draining                the gateway is shutting down
"""

from __future__ import annotations

from voxgate.pipeline.errors import RequestError, VoxgateError


class UnknownUtterance(RequestError):
    """No utterance of that name is under way on this socket."""

    code = "unknown_utterance"


class DuplicateUtterance(RequestError):
    """The name is in use by an utterance that is still under way."""

    code = "duplicate_utterance"


class UtteranceEnded(RequestError):
    """The utterance takes no such message any more: its text or its speech has ended."""

    code = "utterance_ended"


class TooManyUtterances(RequestError):
    """The socket already has as many utterances under way as it may."""

    code = "too_many_utterances"


class SlowConsumer(RequestError):
    """The client stopped reading for longer than the stall limit."""

    code = "slow_consumer"


class ClientGone(RequestError):
    """The socket closed under the utterance."""

    code = "client_gone"


class AccessError(VoxgateError):
    """The caller may not come in, or not now."""

    code = "forbidden"


class Unauthorized(AccessError):
    """Keys are configured, and none was given, or one that is unknown, expired or forged."""

    code = "unauthorized"


class Forbidden(AccessError):
    """A browser speaks for a page whose origin is not listed."""


class KeyLimit(AccessError):
    """The key has as many sockets or utterances as it may; others are not concerned."""

    code = "key_limit"
    retryable = True


class RateLimited(VoxgateError):
    """Messages come faster than the limits allow; this one was not taken."""

    code = "rate_limited"
    retryable = True


class Draining(VoxgateError):
    """The gateway is shutting down; another replica will serve."""

    code = "draining"
    retryable = True
