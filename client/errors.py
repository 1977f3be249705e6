"""What can go wrong on the client's side of the socket.

ClientError
├── Unreachable         nothing answers at the address
├── Refused             the gateway answered the upgrade with an HTTP status (503: full or draining)
├── SessionLost         the socket closed under way; `code` and `reason` as in the close frame
├── ProtocolViolation   the gateway sent something docs/protocol.md does not allow
└── SpeechError         the gateway's own `error` message; act on `code` and `retryable`
"""

from __future__ import annotations


class ClientError(Exception):
    """Any failure of a session or an utterance; `retryable` says whether trying again can help."""

    retryable = False


class Unreachable(ClientError):
    """No gateway answers at the address."""

    retryable = True


class Refused(ClientError):
    """The gateway refused the upgrade; `retry_after_ms` when it said how long to wait."""

    def __init__(self, status: int, message: str, *, code: str = "", retry_after_ms: int | None = None) -> None:
        super().__init__(f"refused with HTTP {status}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.retryable = status in (429, 503)


class SessionLost(ClientError):
    """The socket closed before the speech was complete."""

    def __init__(self, code: int | None, reason: str) -> None:
        super().__init__(f"connection lost: {reason or 'no reason given'} (code {code})")
        self.code = code
        self.reason = reason
        self.retryable = code != 1008


class ProtocolViolation(ClientError):
    """The gateway broke the protocol: a gap in `seq` or `pts`, a malformed message."""


class SpeechError(ClientError):
    """An `error` from the gateway, told apart by `code`."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        param: str | None = None,
        retry_after_ms: int | None = None,
        partial_audio: bool = False,
    ) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.retryable = retryable
        self.param = param
        self.retry_after_ms = retry_after_ms
        self.partial_audio = partial_audio
