"""Errors of the client.

ClientError
├── Unreachable         no gateway answers at the address
├── Refused             the gateway answered the WebSocket upgrade with an HTTP status (503: full or draining)
├── SessionLost         the connection closed during the session; `code` and `reason` as in the close frame
├── ProtocolViolation   the gateway sent a message that docs/protocol.md does not allow
└── SpeechError         an `error` message of the gateway; decide by `code` and `retryable`
"""

from __future__ import annotations


class ClientError(Exception):
    """Any failure of a session or an utterance; `retryable` says whether another attempt can succeed."""

    retryable = False


class Unreachable(ClientError):
    """No gateway answers at the address."""

    retryable = True


class Refused(ClientError):
    """The gateway refused the connection with an HTTP status; `retry_after_ms` is set where it asked for a pause."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        retry_after_ms: int | None = None,
        reached: str | None = None,
    ) -> None:
        super().__init__(f"refused with HTTP {status}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.reached = reached
        """The limit that refused it (docs/limits.md)."""
        self.retryable = status in (429, 503)


MISTAKE_CLOSE_CODES = frozenset({1003, 1007, 1008, 1009})
"""Close codes that answer a mistake of the client, which the next connection would meet again: a binary message,
invalid UTF-8, a flood or bad messages, a message that is too large. 4001 (slow consumer) is none: a network that stalls
may recover."""


class SessionLost(ClientError):
    """The connection closed before the speech was complete; `code` is None without a close frame."""

    def __init__(self, code: int | None, reason: str, *, broken: bool = False) -> None:
        super().__init__(f"connection lost: {reason or 'no reason given'} (code {code})")
        self.code = code
        self.reason = reason
        self.broken = broken
        """Whether neither side closed it, so that the session might have been resumed."""
        self.retryable = code not in MISTAKE_CLOSE_CODES


class ProtocolViolation(ClientError):
    """The gateway broke the protocol: a malformed message, or a gap in `seq` or `pts`."""


class SpeechError(ClientError):
    """An `error` message of the gateway, identified by `code` (docs/protocol.md, "Errors")."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        param: str | None = None,
        retry_after_ms: int | None = None,
        partial_audio: bool = False,
        characters: int | None = None,
        reached: str | None = None,
        message_id: str | None = None,
    ) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.retryable = retryable
        self.param = param
        """The option that the gateway refused."""
        self.retry_after_ms = retry_after_ms
        self.partial_audio = partial_audio
        """Whether audio of the utterance was sent before the error."""
        self.reached = reached
        """The limit that refused it (docs/limits.md)."""
        self.message_id = message_id
        """Of the message that the gateway refused: the kind of the call and its number, such as "text-3"."""
        self.characters = characters
        """Text that the gateway had accepted when it refused a message: what follows is missing."""
