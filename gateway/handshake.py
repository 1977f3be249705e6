"""Whom the gateway lets open a WebSocket: decided from the handshake, refused while the port still speaks HTTP."""

from __future__ import annotations

import asyncio
import contextlib
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
from .effects import CloseCode
from .errors import Unauthorized
from .http.reply import Reply, not_found
from .observer import Observer
from .opening import Offer
from .sessions import Sessions
from .strangers import Strangers
from .websocket import BoundedConnection, SocketClosed

_SWITCHING = HTTPStatus.SWITCHING_PROTOCOLS
_KEY_S = 5.0
"""How long a socket may be open without having said whose it is."""
_SHUT_S = 1.0


class Door:
    """Answers handshakes from the state of the moment."""

    def __init__(self, access: Access, offer: Offer, sessions: Sessions, observer: Observer) -> None:
        self._access = access
        self._offer = offer
        self._sessions = sessions
        self._observer = observer
        self._strangers = Strangers()

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Give the connection its place and its dialect, and return None; or the refusal."""
        assert isinstance(connection, BoundedConnection)
        url = urlsplit(request.path)
        if (found := find_endpoint(ENDPOINTS, url.path)) is None:
            return self._refuse(not_found(url.path), "not_found")
        endpoint, parts = found
        headers, query = request.headers, dict(parse_qsl(url.query))
        origin, host = origin_and_host(headers.get_all("Origin"), headers.get_all("Host"))
        credential = credential_of(headers, query)
        try:
            self._access.check_origin(origin, host)
            if credential is None and self._access.keyed:
                connection.late_key = endpoint.late_key
            if connection.late_key is None:
                self._take_place(connection, credential)
            else:
                self._sessions.check_room()
            connection.dialect = endpoint.open(Handshake(parts, query), self._offer)
        except VoxgateError as error:
            if connection.place is not None:
                connection.place.give_back()
            return self._refuse(endpoint.refuse(error), error.code)
        return None

    async def introduce(self, connection: BoundedConnection) -> bool:
        """Learn who is calling from the first message, where the handshake did not tell; False if nobody may."""
        if (late := connection.late_key) is None:
            return True
        now_s, crowded_out = asyncio.get_running_loop().time, False
        try:
            async with asyncio.timeout(_KEY_S) as patience:

                def send_away() -> None:
                    nonlocal crowded_out
                    crowded_out = True
                    patience.reschedule(now_s())

                with self._strangers.waiting(_address(connection), send_away):
                    connection.first = await connection.receive()
            key = late.find(connection.first) if isinstance(connection.first, str) else None
            self._take_place(connection, key)
        except VoxgateError as error:
            self._observer.handshake_refused(error.code)
            with contextlib.suppress(SocketClosed):
                connection.send(late.tell(error))
            await connection.shut(CloseCode.POLICY, error.code, _SHUT_S)
        except TimeoutError:
            self._observer.handshake_refused(Unauthorized.code)
            # In a crowd nobody is waited for.
            await connection.shut(CloseCode.POLICY, Unauthorized.code, 0.0 if crowded_out else _SHUT_S)
        except SocketClosed:
            pass
        else:
            return True
        return False

    def _take_place(self, connection: BoundedConnection, credential: str | None) -> None:
        """Raises Unauthorized, KeyLimit, Draining, AtCapacity."""
        caller = self._access.identify(credential, _address(connection))
        connection.hold(self._sessions.take_place(caller))

    def _refuse(self, reply: Reply, reason: str) -> Response:
        self._observer.handshake_refused(reason)
        headers = Headers(reply.headers)
        headers["Content-Type"] = reply.content_type
        headers["Content-Length"] = str(len(reply.body))
        headers["Connection"] = "close"
        return Response(reply.status.value, reply.status.phrase, headers, reply.body)


def _address(connection: ServerConnection) -> str:
    return str(connection.remote_address[0]) if connection.remote_address else "?"


def confirm_subprotocol(_: ServerConnection, request: Request, response: Response) -> None:
    """Browsers hand in a key as the subprotocols `token, KEY`, and insist that one they named is confirmed."""
    scheme, comma, _key = request.headers.get("Sec-WebSocket-Protocol", "").partition(",")
    if comma and scheme.strip().lower() in ("token", "bearer") and response.status_code == _SWITCHING:
        response.headers["Sec-WebSocket-Protocol"] = scheme.strip()
