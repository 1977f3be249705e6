"""HTTP answers that are known whole, and errors as statuses; the same for plain requests and refused handshakes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from aiohttp import web
from voxgate.pipeline.errors import AtCapacity, EngineNotReady, VoxgateError

from ..errors import Draining, Forbidden, KeyLimit, RateLimited, Unauthorized
from ..messages import ErrorMessage

_QUOTED_CHARACTERS = 200
"""A refusal quotes what it refuses; a client must not make us send long answers."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> web.Response:
        """As the HTTP server sends it."""
        headers = {**self.headers, "Content-Type": self.content_type}
        return web.Response(status=self.status.value, body=self.body, headers=headers)


def json_reply(status: HTTPStatus, document: Any, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status, json.dumps(document, ensure_ascii=False).encode(), headers=headers or {})


def refusal(status: HTTPStatus, error: str, message: str, retry_after_ms: int | None = None) -> Reply:
    """A refused request; with `retry_after_ms` also as Retry-After, in whole seconds."""
    document: dict[str, Any] = {"error": error, "message": message}
    if retry_after_ms is not None:
        document["retry_after_ms"] = retry_after_ms
    return json_reply(status, document, retry_headers(retry_after_ms))


def retry_headers(retry_after_ms: int | None) -> dict[str, str]:
    """Retry-After in whole seconds, rounded up; nothing without a time."""
    return {} if retry_after_ms is None else {"Retry-After": str(-(-retry_after_ms // 1000))}


def error_reply(error: VoxgateError) -> Reply:
    """The refusal that reports `error`, in the gateway's own shape."""
    reply = refusal(status_of(error), error.code, error.message, error.retry_after_ms)
    if isinstance(error, Unauthorized):
        return replace(reply, headers={**reply.headers, "WWW-Authenticate": "Bearer"})
    return reply


def status_of(error: VoxgateError | ErrorMessage) -> HTTPStatus:
    """The HTTP status of what ends a request before its answer began."""
    return _STATUS.get(error.code) or (HTTPStatus.INTERNAL_SERVER_ERROR if error.retryable else HTTPStatus.BAD_REQUEST)


_STATUS = {
    VoxgateError.code: HTTPStatus.INTERNAL_SERVER_ERROR,
    Unauthorized.code: HTTPStatus.UNAUTHORIZED,
    Forbidden.code: HTTPStatus.FORBIDDEN,
    RateLimited.code: HTTPStatus.TOO_MANY_REQUESTS,
    KeyLimit.code: HTTPStatus.TOO_MANY_REQUESTS,
    AtCapacity.code: HTTPStatus.SERVICE_UNAVAILABLE,
    Draining.code: HTTPStatus.SERVICE_UNAVAILABLE,
    EngineNotReady.code: HTTPStatus.SERVICE_UNAVAILABLE,
}
"""By code; of the others, those that are worth another try are our fault, the rest the client's."""


def not_found(path: str) -> Reply:
    return refusal(HTTPStatus.NOT_FOUND, "not_found", f"nothing at {path[:_QUOTED_CHARACTERS]}")
