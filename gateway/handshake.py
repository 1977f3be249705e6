"""Whom the gateway lets open a WebSocket: decided from the handshake, refused while the port still speaks HTTP."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from ..pipeline.errors import VoxgateError
from .access.access import Access
from .access.credential import credential_of
from .access.origins import origin_and_host
from .dialects.endpoint import Handshake, find_endpoint
from .dialects.registry import ENDPOINTS
from .http.reply import Reply, not_found
from .observer import Observer
from .opening import Offer
from .sessions import Sessions
from .websocket import BoundedConnection

_SWITCHING = HTTPStatus.SWITCHING_PROTOCOLS


class Door:
    """Answers handshakes from the state of the moment."""

    def __init__(self, access: Access, offer: Offer, sessions: Sessions, observer: Observer) -> None:
        self._access = access
        self._offer = offer
        self._sessions = sessions
        self._observer = observer

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Give the connection its caller and its dialect, and return None; or the refusal."""
        assert isinstance(connection, BoundedConnection)
        url = urlsplit(request.path)
        if (found := find_endpoint(ENDPOINTS, url.path)) is None:
            return self._refuse(not_found(url.path), "not_found")
        endpoint, parts = found
        headers, query = request.headers, dict(parse_qsl(url.query))
        origin, host = origin_and_host(headers.get_all("Origin"), headers.get_all("Host"))
        peer = str(connection.remote_address[0]) if connection.remote_address else "?"
        try:
            connection.caller = self._access.admit(credential_of(headers, query), origin, host, peer)
            connection.caller.check_socket()
            self._sessions.check_room()
            connection.dialect = endpoint.open(Handshake(parts, query), self._offer)
        except VoxgateError as error:
            return self._refuse(endpoint.refuse(error), error.code)
        return None

    def _refuse(self, reply: Reply, reason: str) -> Response:
        self._observer.handshake_refused(reason)
        headers = Headers(reply.headers)
        headers["Content-Type"] = reply.content_type
        headers["Content-Length"] = str(len(reply.body))
        headers["Connection"] = "close"
        return Response(reply.status.value, reply.status.phrase, headers, reply.body)


def confirm_subprotocol(_: ServerConnection, request: Request, response: Response) -> None:
    """Browsers hand in a key as the subprotocols `token, KEY`, and insist that one they named is confirmed."""
    scheme, comma, _key = request.headers.get("Sec-WebSocket-Protocol", "").partition(",")
    if comma and scheme.strip().lower() in ("token", "bearer") and response.status_code == _SWITCHING:
        response.headers["Sec-WebSocket-Protocol"] = scheme.strip()
