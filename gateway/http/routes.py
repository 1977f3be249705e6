"""The gateway's own routes: probes and limits, metrics, tokens, the page, and the documents of the protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from importlib import resources

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from ..access.auth import AccessControl
from ..access.tokens import DEFAULT_TTL_S, MAX_TTL_S
from ..engine import EngineStatus
from ..observability.metrics import CONTENT_TYPE
from ..protocols.endpoint import DocumentEndpoint, EndpointRequest, WebSocketEndpoint
from ..protocols.reply import Reply, json_reply, refusal
from ..session.admission import Admission
from ..session.utterance_factory import UtteranceFactory
from ..transport.sessions import Sessions
from .application import GRANT, RouteGroup, read_json, to_response
from .browsers import PAGE_HEADERS
from .connection import HttpConnection, request_head


def probe_routes(engine: EngineStatus, draining: Callable[[], bool]) -> list[web.RouteDef]:
    """Returns /healthz, /readyz, and /health, the name of the latter on other servers; they need no key."""

    def readyz() -> Reply:
        reason = "the gateway is shutting down" if draining() else engine.reason
        if reason is None:
            return json_reply(HTTPStatus.OK, {"ready": True, "state": engine.state})
        document = {"ready": False, "state": engine.state, "reason": reason}
        return json_reply(HTTPStatus.SERVICE_UNAVAILABLE, document, {"Retry-After": "2"})

    def healthz() -> Reply:
        return json_reply(HTTPStatus.OK, {"status": "ok"})

    return [_get("/healthz", healthz), _get("/readyz", readyz), _get("/health", readyz)]


def limits_route(
    factory: UtteranceFactory, admission: Admission, engine: EngineStatus, sessions: Sessions
) -> web.RouteDef:
    """Returns /v1/limits, current use and limits, which needs no key."""

    def limits() -> Reply:
        settings, draining = factory.settings, sessions.draining
        document = {
            "accepting": not draining and sessions.total_open < settings.sockets,
            "ready": not draining and engine.reason is None,
            "key_needed": settings.requires_key,
            "sockets": {"open": sessions.total_open, "limit": settings.sockets},
            "utterances": {"active": admission.active, "limit": admission.slots},
            "queue": {"waiting": admission.queued, "limit": settings.queue_length},
            "session": factory.limits.model_dump(),
        }
        return json_reply(HTTPStatus.OK, document)

    return _get("/v1/limits", limits)


def _get(path: str, answer: Callable[[], Reply]) -> web.RouteDef:
    async def handler(_: web.Request) -> web.Response:
        return to_response(answer())

    return web.get(path, handler)


def metrics_route(
    exposition: Callable[[], Awaitable[bytes]], check_host: Callable[[str | None], None] | None = None
) -> web.RouteDef:
    """Returns /metrics. `check_host` refuses pages of foreign names where no key does."""

    async def metrics(request: web.Request) -> web.Response:
        if check_host is not None:
            check_host(request.headers.get("Host"))
        return web.Response(body=await exposition(), headers={"Content-Type": CONTENT_TYPE})

    return web.get("/metrics", metrics)


def upgrade_routes(endpoints: Iterable[WebSocketEndpoint]) -> list[web.RouteDef]:
    """Returns routes at the WebSocket paths, for clients that upgrade a connection after plain HTTP requests."""
    return [web.get(endpoint.pattern, _upgrade) for endpoint in endpoints]


async def _upgrade(request: web.Request) -> web.StreamResponse:
    """Upgrades the connection, or answers 426 to a request without an upgrade."""
    connection = None if request.transport is None else request.transport.get_protocol()
    requested = request.headers.get("Upgrade", "").lower() == "websocket"
    if requested and isinstance(connection, HttpConnection):
        connection.switch_to_websocket(request_head(request))
        await asyncio.get_running_loop().create_future()  # never done: the upgrade cancels this request
    message = "speech requires a WebSocket: send an upgrade"
    response = to_response(refusal(HTTPStatus.UPGRADE_REQUIRED, "upgrade_required", message))
    response.headers["Upgrade"] = "websocket"
    return response


def document_routes(endpoints: Iterable[DocumentEndpoint], factory: UtteranceFactory) -> list[RouteGroup]:
    """Returns routes that answer GET with the documents of the protocols."""

    def route(endpoint: DocumentEndpoint) -> web.RouteDef:
        async def handler(request: web.Request) -> web.Response:
            asked = EndpointRequest(request.match_info, dict(request.query), request.headers)
            return to_response(endpoint.answer(asked, factory.for_key(request[GRANT].key)))

        return web.get(endpoint.pattern, handler)

    return [RouteGroup(endpoint.requires, [route(endpoint)], endpoint.refuse) for endpoint in endpoints]


class _TokenRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ttl_s: int = Field(DEFAULT_TTL_S, ge=1, le=MAX_TTL_S)


def token_routes(access: AccessControl) -> list[web.RouteDef]:
    """`POST /v1/tokens`: a short-lived token for a browser, issued to the holder of an API key."""

    async def issue(request: web.Request) -> web.Response:
        body = await read_json(request, _TokenRequest, default=b"{}")
        token, expires = access.issue_token(request[GRANT], body.ttl_s)
        document = {"token": token, "expires_at": expires.isoformat()}
        return to_response(json_reply(HTTPStatus.CREATED, document, {"Cache-Control": "no-store"}))

    return [web.post("/v1/tokens", issue)]


_CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


CLIENT_FILES = (
    "voxgate.js",
    "voxgate_audio.js",
    "voxgate_errors.js",
    "voxgate_restore.js",
    "voxgate_socket.js",
    "voxgate_utterance.js",
)
"""Files of the JavaScript client."""


def page_routes() -> list[web.RouteDef]:
    """Routes of the browser page and its files, read once at the start."""
    return [_route(path, reply) for path, reply in web_files().items()]


def web_files() -> dict[str, Reply]:
    """Files of the page by URL path."""
    files = {}
    page = resources.files("voxgate.web")
    for entry in (*page.iterdir(), *(page / "client" / name for name in CLIENT_FILES)):
        content_type = _CONTENT_TYPES.get(entry.name.rpartition(".")[2])
        if entry.is_file() and content_type is not None:
            headers = {"Cache-Control": "no-cache", **PAGE_HEADERS}
            files[f"/{entry.name}"] = Reply(HTTPStatus.OK, entry.read_bytes(), content_type, headers)
    if "/index.html" in files:
        files["/"] = files["/index.html"]
    return files


def _route(path: str, reply: Reply) -> web.RouteDef:
    async def answer(_: web.Request) -> web.Response:
        return to_response(reply)

    return web.get(path, answer)
