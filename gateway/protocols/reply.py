"""HTTP answers with a complete body, and the HTTP status of each error; for plain requests and refused handshakes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from voxgate.pipeline.errors import (
    AtCapacity,
    AudioTooLarge,
    DictionaryExists,
    EngineNotReady,
    TooManyDictionaries,
    TooManyVoices,
    UnknownDictionary,
    VoiceExists,
    VoxgateError,
)

from ..errors import (
    QUOTED_CHARACTERS,
    BodyTooLarge,
    Draining,
    Forbidden,
    KeyLimit,
    RateLimited,
    Unauthorized,
    UnknownHost,
)
from ..messages.server import ErrorMessage

ReportableError = VoxgateError | ErrorMessage
"""An error as it was raised, or as a session reported it: both say code, message, whether to retry, and the limit."""

_STATUS = {
    VoxgateError.code: HTTPStatus.INTERNAL_SERVER_ERROR,
    Unauthorized.code: HTTPStatus.UNAUTHORIZED,
    Forbidden.code: HTTPStatus.FORBIDDEN,
    UnknownHost.code: HTTPStatus.MISDIRECTED_REQUEST,
    VoiceExists.code: HTTPStatus.CONFLICT,
    TooManyVoices.code: HTTPStatus.CONFLICT,
    UnknownDictionary.code: HTTPStatus.NOT_FOUND,
    DictionaryExists.code: HTTPStatus.CONFLICT,
    TooManyDictionaries.code: HTTPStatus.CONFLICT,
    AudioTooLarge.code: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    BodyTooLarge.code: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    RateLimited.code: HTTPStatus.TOO_MANY_REQUESTS,
    KeyLimit.code: HTTPStatus.TOO_MANY_REQUESTS,
    AtCapacity.code: HTTPStatus.SERVICE_UNAVAILABLE,
    Draining.code: HTTPStatus.SERVICE_UNAVAILABLE,
    EngineNotReady.code: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""HTTP status by error code. Errors that are not listed give 500 if they are retryable, 400 otherwise."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response, independent of the library that sends it."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def closing_bytes(reply: Reply) -> bytes:
    """The HTTP response that sends `reply` and closes its connection."""
    fixed = {"Content-Type": reply.content_type, "Content-Length": len(reply.body), "Connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**reply.headers, **fixed}.items())
    return f"HTTP/1.1 {reply.status.value} {reply.status.phrase}\r\n{lines}\r\n".encode() + reply.body


def status_of(error: ReportableError, overrides: Mapping[str, HTTPStatus] | None = None) -> HTTPStatus:
    """The HTTP status that reports `error`; `overrides`, by error code, are those of one group of routes."""
    if overrides and error.code in overrides:
        return overrides[error.code]
    fallback = HTTPStatus.INTERNAL_SERVER_ERROR if error.retryable else HTTPStatus.BAD_REQUEST
    return _STATUS.get(error.code, fallback)


def json_reply(status: HTTPStatus, document: Any, headers: Mapping[str, str] | None = None) -> Reply:
    """A response whose body is `document` as JSON."""
    return Reply(status, json.dumps(document, ensure_ascii=False).encode(), headers=headers or {})


def refusal(
    status: HTTPStatus, error: str, message: str, retry_after_ms: int | None = None, reached: str | None = None
) -> Reply:
    """An error response in the gateway's own shape; `retry_after_ms` also sets the Retry-After header."""
    document: dict[str, Any] = {"error": error, "message": message}
    if retry_after_ms is not None:
        document["retry_after_ms"] = retry_after_ms
    if reached is not None:
        document["reached"] = reached
    return json_reply(status, document, retry_headers(retry_after_ms))


def retry_headers(retry_after_ms: int | None) -> dict[str, str]:
    """The Retry-After header in whole seconds, rounded up; empty without a time."""
    return {} if retry_after_ms is None else {"Retry-After": str(-(-retry_after_ms // 1000))}


def error_reply(error: ReportableError, overrides: Mapping[str, HTTPStatus] | None = None) -> Reply:
    """The response that reports `error` in the gateway's own shape; `overrides` as for `status_of`."""
    reply = refusal(status_of(error, overrides), error.code, error.message, error.retry_after_ms, error.reached)
    if error.code == Unauthorized.code:
        return replace(reply, headers={**reply.headers, "WWW-Authenticate": "Bearer"})
    return reply


def not_found(path: str) -> Reply:
    """The 404 response for a path that nothing serves."""
    return refusal(HTTPStatus.NOT_FOUND, "not_found", f"nothing at {path[:QUOTED_CHARACTERS]}")
