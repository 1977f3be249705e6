"""Plain HTTP on aiohttp's server: routes, callers, CORS, errors, connections from the protocol sniffer."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web
from voxgate.pipeline.errors import BadMessage, VoxgateError

from ..access.auth import AccessControl, find_credential, origin_and_host
from ..access.caller import Grant
from ..access.rights import PUBLIC, Requirement
from ..errors import BodyTooLarge
from ..messages.parsing import Model, parse_json
from ..observability.log import DefectLog
from ..protocols.reply import Reply, ReportableError, error_reply, not_found, refusal
from ..transport.connection_pool import ConnectionPlace
from .browsers import CorsPolicy
from .connection import WRITE_TIMEOUT_S, HttpConnection
from .request_handler import RequestHandler
from .sniffer import FULL, PROBE_PATHS, ServerFactory

_BODY_TIMEOUT_S = 10.0
"""Seconds in which the body of a request must arrive."""


async def read_json(request: web.Request, model: type[Model], default: bytes = b"") -> Model:
    """The JSON body of a request, or `default` when the body is empty, as a `model`.

    Raises BadMessage with the path of the first invalid field as `param`, also when the body arrives too late, and
    HTTPRequestEntityTooLarge before a body that says that it is too long is read.
    """
    if (length := request.content_length or 0) > request.client_max_size:
        raise web.HTTPRequestEntityTooLarge(request.client_max_size, length)
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            body = await request.read()
    except TimeoutError:
        raise BadMessage(f"the body must arrive within {_BODY_TIMEOUT_S:g} s") from None
    return parse_json(model, body or default)


def to_response(reply: Reply) -> web.Response:
    """The aiohttp response that sends `reply`."""
    headers = {**reply.headers, "Content-Type": reply.content_type}
    return web.Response(status=reply.status.value, body=reply.body, headers=headers)


_BYTES_PER_CHARACTER = 12
"""The longest form of a character in JSON: two escaped surrogates."""
_BODY_OVERHEAD_BYTES = 16_384
"""Bytes of a body beside its text: other fields and instructions."""
_READ_BUFFER_BYTES = 16_384
"""Bytes of a body that a connection holds before they are read; aiohttp allows twice as many."""


def max_body_bytes(max_characters: int) -> int:
    """Maximum size of a body with a text of `max_characters`, 64 KiB for 4096; uploads are read as a stream."""
    return _BODY_OVERHEAD_BYTES + _BYTES_PER_CHARACTER * max_characters


_KEEP_ALIVE_S = 30.0
"""Maximum idle time of a connection between requests, and for the head of the next one, in seconds."""
_CODES = {HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed"}

GRANT = web.RequestKey("grant", Grant)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)

_noise = logging.getLogger(f"{__name__}.noise")
"""Logger of aiohttp's server, silenced: what a client does would fill it."""
_noise.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class RouteGroup:
    """Routes with the same requirement (PUBLIC for none) and the same shape of error responses.

    `any_host`: whether they are the same for all clients, so that a page of any name may read them.
    """

    requires: Requirement | None
    routes: Sequence[web.RouteDef]
    refuse: Callable[[ReportableError], Reply] = error_reply
    any_host: bool = False

    def names(self) -> Iterator[tuple[str, str]]:
        """Method and path of every route."""
        for route in self.routes:
            yield route.method, route.path
            if route.method == "GET":
                yield "HEAD", route.path


class HttpApplication:
    """Serves routes to the clients that meet the requirement of their group; a route of no group is served to none.

    It does not listen; `connection` accepts one connection at a time. A handler is cancelled when its client
    disconnects, and may raise VoxgateError, which becomes a response in the shape of its `RouteGroup`. The grant
    of a client is `request[GRANT]`, except on public routes.
    """

    def __init__(
        self,
        groups: Iterable[RouteGroup],
        access: AccessControl,
        body_bytes: int,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        """`body_bytes`: maximum size of a body that is read as a whole.

        `write_timeout_s`: seconds without progress after which a connection that is not read is cut.
        """
        groups = tuple(groups)
        self._groups = {name: group for group in groups for name in group.names()}
        self._shapes = [(re.sub("{.*?}", "[^/]+", path), group.refuse) for (_, path), group in self._groups.items()]
        self._access = access
        self._write_timeout_s = write_timeout_s
        self._cors = CorsPolicy(access.lists_origin)
        self._defects = DefectLog(log)
        application = web.Application(middlewares=[_serve_in_place, self._guard], client_max_size=body_bytes)
        application.add_routes([route for group in groups for route in group.routes])
        application.on_response_prepare.append(self._cors.add_headers)
        application.on_response_prepare.append(_remove_server_header)
        self._runner = web.AppRunner(
            application,
            handler_cancellation=True,
            shutdown_timeout=0.5,
        )
        self._server: web.Server

    @property
    def requirements(self) -> Mapping[tuple[str, str], Requirement | None]:
        """What each route requires, by method and path."""
        return {name: group.requires for name, group in self._groups.items()}

    async def open(self) -> None:
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        self._server = server

    def connection(self, place: ConnectionPlace, socket: ServerFactory) -> asyncio.Protocol:
        """The protocol of a new connection; `socket` makes the one that takes over after an upgrade to a WebSocket."""
        handler = RequestHandler(
            self._server,
            self._refuse_at,
            access_log=_noise,
            logger=_noise,
            keepalive_timeout=_KEEP_ALIVE_S,
            lingering_time=0.0,
            read_bufsize=_READ_BUFFER_BYTES,
        )
        return HttpConnection(handler, self._write_timeout_s, place, socket)

    async def close(self) -> None:
        """Lets current answers finish for half a second, then cuts every connection."""
        await self._runner.cleanup()

    def _refuse_at(self, path: str, error: ReportableError) -> Reply:
        matching = (refuse for pattern, refuse in self._shapes if re.fullmatch(pattern, path))
        return next(matching, error_reply)(error)

    def _check_page(self, request: web.Request, group: RouteGroup) -> None:
        """Refuses web pages of foreign origins and names. Raises Forbidden, UnknownHost."""
        headers = request.headers
        origin, host = origin_and_host(headers.getall("Origin", []), headers.getall("Host", []))
        if request.method not in ("GET", "HEAD"):
            self._access.check_origin(origin, host)
        elif not (group.any_host or self._access.requires_key):
            # A page of another origin cannot read the answer, unless its name resolves to this gateway.
            self._access.check_host(host)

    def _grant(self, request: web.Request, requirement: Requirement) -> Grant:
        """Raises Forbidden, Unauthorized, BadMessage."""
        headers = request.headers
        credential = find_credential(lambda name: headers.getall(name, []), request.query)
        peer = self._access.proxies.client_address(request.remote or "?", headers.getall("X-Forwarded-For", []))
        grant = self._access.authenticate(credential, peer)
        grant.check(requirement)
        return grant

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Authenticates the caller and turns errors into responses."""
        response = await self._answer(request, handler)
        if not (response.prepared or request.content.is_eof()):
            response.force_close()  # the server closes the connection of a body that was not read; clients are told
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if (preflight := self._cors.preflight(request)) is not None:
            return preflight
        resource = request.match_info.route.resource
        refuse: Callable[[ReportableError], Reply] = error_reply
        try:
            if resource is not None:
                group = self._groups[request.method, resource.canonical]
                refuse = group.refuse
                self._check_page(request, group)
                if group.requires is not PUBLIC:
                    request[GRANT] = self._grant(request, group.requires)
            return await handler(request)
        except VoxgateError as error:
            return to_response(refuse(error))
        except web.HTTPNotFound:
            return to_response(not_found(request.path))
        except web.HTTPRequestEntityTooLarge as error:
            return to_response(refuse(BodyTooLarge(error.text or "the body is too large")))
        except web.HTTPException as error:
            status = HTTPStatus(error.status)
            code = _CODES.get(status, "bad_request")
            response = to_response(refusal(status, code, error.text or status.phrase))
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
            return response
        except web.RequestPayloadError:
            return to_response(refuse(BadMessage("the body must be encoded as its headers state")))
        except Exception as error:
            self._defects.report("a request failed", error, asyncio.get_running_loop().time())
            return to_response(refuse(VoxgateError("the request failed")))


@web.middleware
async def _serve_in_place(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Counts the connection as serving during the request; refuses the request when no place is free."""
    connection = None if request.transport is None else request.transport.get_protocol()
    if not isinstance(connection, HttpConnection):
        return await handler(request)
    place, probe = connection.place, request.path in PROBE_PATHS
    if not place.may_serve(probe=probe):
        response = to_response(FULL)
        response.force_close()
        return response
    place.serve(probe=probe)
    try:
        return await handler(request)
    finally:
        # Unless a WebSocket has taken over the connection.
        if request.transport is not None:
            place.rest()


async def _remove_server_header(_: web.Request, response: web.StreamResponse) -> None:
    """Removes the name and version of the library."""
    response.headers.popall("Server", None)
