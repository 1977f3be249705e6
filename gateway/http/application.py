"""JSON bodies of requests: bounded, in time, and checked."""
# TODO-DOC Lets the web pages that are listed read answers over plain HTTP (Fetch Standard, section 3.2, "CORS
# TODO-DOC protocol").
# TODO-DOC Plain HTTP on aiohttp's server: one table of routes, one shape of error, connections from the doorstep.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web
from voxgate.pipeline.errors import BadMessage, VoxgateError

from ..access.auth import AccessControl, find_credential, origin_and_host
from ..access.usage import Caller
from ..messages import Model, parse_json
from ..protocols.reply import Reply, error_reply, not_found, refusal
from ..transport.buffer_limits import ReadSizeLimit
from .connection import WRITE_TIMEOUT_S, HttpConnection

_READ_S = 10.0


async def read_json(request: web.Request, model: type[Model], default: bytes = b"") -> Model:
    """The body, `default` when it is empty, as a `model`.

    Raises BadMessage, whose `param` is the path of the first bad field; also when it takes too long to come.
    """
    try:
        async with asyncio.timeout(_READ_S):
            body = await request.read()
    except TimeoutError:
        raise BadMessage("the body did not arrive in time") from None
    return parse_json(model, body or default)


_HEADERS = "authorization, content-type, xi-api-key"
_READABLE = "retry-after, dg-error, dg-request-id"
_REMEMBER_S = 600


class CorsPolicy:
    """`listed` says whether pages of an origin may use the gateway from elsewhere."""

    def __init__(self, listed: Callable[[str], bool]) -> None:
        self._listed = listed

    def preflight(self, request: web.Request) -> web.Response | None:
        """The answer to a browser that asks before it sends; None when this is no such request."""
        method = request.headers.get("Access-Control-Request-Method")
        if request.method != "OPTIONS" or method is None or not self._listed(request.headers.get("Origin", "")):
            return None
        headers = {
            "Access-Control-Allow-Methods": method,
            "Access-Control-Allow-Headers": _HEADERS,
            "Access-Control-Max-Age": str(_REMEMBER_S),
        }
        return web.Response(status=HTTPStatus.NO_CONTENT, headers=headers)

    async def sign(self, request: web.Request, response: web.StreamResponse) -> None:
        """Say in the headers of an answer that the page may read it; called before they are sent."""
        origin = request.headers.get("Origin", "")
        if self._listed(origin):
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = _READABLE
            response.headers["Vary"] = "Origin"


MAX_BODY_BYTES = 1 << 20
"""Largest body of a request; a route that takes more reads it as a stream."""
_KEEP_ALIVE_S = 30.0
"""How long a connection may be idle between requests, and take for the head of its next one."""
_CODES = {HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed", HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "body_too_large"}

CALLER = web.RequestKey("caller", Caller)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)

_noise = logging.getLogger(f"{__name__}.noise")
"""Where the server reports what is not HTTP, with a traceback each: anybody could fill the log with that."""
_noise.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class RouteGroup:
    """Routes, and the shape in which they tell errors."""

    routes: Sequence[web.RouteDef]
    refuse: Callable[[VoxgateError], Reply] = error_reply

    def names(self) -> Iterator[tuple[str, str]]:
        """Method and path of each."""
        for route in self.routes:
            yield route.method, route.path
            if route.method == "GET":
                yield "HEAD", route.path


class HttpApplication:
    """Serves `public` routes to everyone and `keyed` ones to callers; it listens to nothing itself.

    A handler is cancelled when its client goes away. It may raise VoxgateError, which becomes a refusal in the
    shape of its `RouteGroup`. The caller of a keyed route is `request[CALLER]`.
    """

    def __init__(
        self,
        public: RouteGroup,
        keyed: Iterable[RouteGroup],
        access: AccessControl,
        connections: int,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        """`write_timeout_s`: how long a client may take nothing."""
        self._public = frozenset(public.names())
        keyed = list(keyed)
        self._refuse = {name: routes.refuse for routes in keyed for name in routes.names()}
        self._access = access
        self._connections, self._write_timeout_s = connections, write_timeout_s
        self._cors = CorsPolicy(access.lists_origin)
        application = web.Application(middlewares=[self._guard], client_max_size=MAX_BODY_BYTES)
        application.add_routes([*public.routes, *(route for routes in keyed for route in routes.routes)])
        application.on_response_prepare.append(self._cors.sign)
        application.on_response_prepare.append(_unsigned)
        self._runner = web.AppRunner(
            application,
            handler_cancellation=True,
            access_log=None,
            logger=_noise,
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

    def connection(self, socket: Callable[[], asyncio.Protocol | ReadSizeLimit]) -> asyncio.Protocol | None:
        """Serve one more connection: the protocol that does; None when there are too many.

        `socket` makes the one that takes over should the connection become a WebSocket after all.
        """
        if len(self._server.connections) >= self._connections:
            return None
        return HttpConnection(self._server(), self._write_timeout_s, socket)

    async def close(self) -> None:
        """Let answers under way finish for a moment, then cut every connection."""
        await self._runner.cleanup()

    def _caller(self, request: web.Request) -> Caller:
        credential = find_credential(request.headers, request.query)
        peer = request.remote or "?"
        if request.method in ("GET", "HEAD"):
            # A page of another origin cannot read the answer, and asking changes nothing.
            return self._access.caller_of(credential, peer)
        headers = request.headers
        origin, host = origin_and_host(headers.getall("Origin", []), headers.getall("Host", []))
        return self._access.authenticate(credential, origin, host, peer)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Who may ask, and what becomes of an error."""
        if (preflight := self._cors.preflight(request)) is not None:
            return preflight
        resource = request.match_info.route.resource
        route = None if resource is None else (request.method, resource.canonical)
        try:
            if route is not None and route not in self._public:
                request[CALLER] = self._caller(request)
            return await handler(request)
        except VoxgateError as error:
            refuse = self._refuse.get(route, error_reply) if route is not None else error_reply
            return refuse(error).response()
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


async def _unsigned(_: web.Request, response: web.StreamResponse) -> None:
    """Which library answers, in which version, is nobody's business."""
    response.headers.popall("Server", None)
