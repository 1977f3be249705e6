"""Plain HTTP on aiohttp's server: one table of routes, one shape of error, connections from the doorstep."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus

from aiohttp import web

from ...pipeline.errors import VoxgateError
from .origins import origin_allowed, origin_and_host
from .reply import error_reply, not_found, refusal

MAX_BODY_BYTES = 1 << 20
"""Largest body of a request; a route that takes more reads it as a stream."""
_KEEP_ALIVE_S = 30.0
"""How long a connection may be idle between requests, and take for the head of its next one."""
_CODES = {HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed", HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "body_too_large"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


class HttpService:
    """Serves `routes` on connections it is given; it listens to nothing itself.

    A handler is cancelled when its client goes away. It may raise VoxgateError, which becomes a refusal in the
    gateway's own shape unless the route answers in another.
    """

    def __init__(
        self, routes: Iterable[web.AbstractRouteDef], allowed_origins: tuple[str, ...], connections: int
    ) -> None:
        self._allowed_origins = allowed_origins
        self._connections = connections
        application = web.Application(middlewares=[self._guard], client_max_size=MAX_BODY_BYTES)
        application.add_routes(routes)
        self._runner = web.AppRunner(
            application,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=_KEEP_ALIVE_S,
            lingering_time=0.0,
            shutdown_timeout=0.5,
        )
        self._server: web.Server

    async def open(self) -> None:
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        self._server = server

    def connection(self) -> asyncio.Protocol | None:
        """Serve one more connection: the protocol that does; None when there are too many."""
        return self._server() if len(self._server.connections) < self._connections else None

    async def close(self) -> None:
        """Let answers under way finish for a moment, then cut every connection."""
        await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Who may ask, and what becomes of an error."""
        headers = request.headers
        origin, host = origin_and_host(headers.getall("Origin", []), headers.getall("Host", []))
        if request.method not in ("GET", "HEAD") and not origin_allowed(origin, host, self._allowed_origins):
            return refusal(HTTPStatus.FORBIDDEN, "forbidden", "this origin is not allowed").response()
        try:
            return await handler(request)
        except VoxgateError as error:
            return error_reply(error).response()
        except web.HTTPNotFound:
            return not_found(request.path).response()
        except web.HTTPException as error:
            status = HTTPStatus(error.status)
            code = _CODES.get(status, "bad_request")
            response = refusal(status, code, error.text or status.phrase).response()
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
            return response
        except Exception:
            log.exception("a request failed", extra={"peer": request.remote})
            return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the request failed").response()
