"""Whom the gateway lets open a WebSocket: decided from the handshake, refused while the port still speaks HTTP."""
# TODO-DOC Sockets that have not said yet whose they are: few at a time, and a flood of them crowds out itself before
# TODO-DOC others.

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from voxgate.pipeline.errors import VoxgateError
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from ..access.auth import AccessControl, find_credential, origin_and_host
from ..errors import Unauthorized
from ..messages import CloseCode
from ..observability.events import Observer
from ..protocols.endpoint import EndpointRequest, find_endpoint
from ..protocols.registry import WEBSOCKET_ENDPOINTS
from ..protocols.reply import Reply, not_found
from ..session.utterance_factory import UtteranceFactory
from .connection import SocketClosed
from .sessions import Sessions
from .websocket import BoundedConnection

_SWITCHING = HTTPStatus.SWITCHING_PROTOCOLS
_KEY_S = 5.0
"""How long a socket may be open without having said whose it is."""
_SHUT_S = 1.0


class HandshakeAuthenticator:
    """Answers handshakes from the state of the moment."""

    def __init__(
        self, access: AccessControl, factory: UtteranceFactory, sessions: Sessions, observer: Observer
    ) -> None:
        self._access = access
        self._factory = factory
        self._sessions = sessions
        self._observer = observer
        self._pending = PendingAuthentication()

    def admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Give the connection its slot and its dialect, and return None; or the refusal."""
        assert isinstance(connection, BoundedConnection)
        url = urlsplit(request.path)
        if (found := find_endpoint(WEBSOCKET_ENDPOINTS, url.path)) is None:
            return self._refuse(not_found(url.path), "not_found")
        endpoint, parts = found
        headers, query = request.headers, dict(parse_qsl(url.query))
        origin, host = origin_and_host(headers.get_all("Origin"), headers.get_all("Host"))
        credential = find_credential(headers, query)
        try:
            self._access.check_origin(origin, host)
            if credential is None and self._access.requires_key:
                connection.first_message_key = endpoint.first_message_key
            if connection.first_message_key is None:
                self._reserve_slot(connection, credential)
            else:
                self._sessions.check_capacity()
            connection.wire_protocol = endpoint.open(EndpointRequest(parts, query), self._factory)
        except VoxgateError as error:
            if connection.slot is not None:
                connection.slot.release()
            return self._refuse(endpoint.refuse(error), error.code)
        return None

    async def authenticate(self, connection: BoundedConnection) -> bool:
        """Learn who is calling from the first message, where the handshake did not tell; False if nobody may."""
        if (late := connection.first_message_key) is None:
            return True
        now_s, crowded_out = asyncio.get_running_loop().time, False
        try:
            async with asyncio.timeout(_KEY_S) as patience:

                def evict() -> None:
                    nonlocal crowded_out
                    crowded_out = True
                    patience.reschedule(now_s())

                with self._pending.waiting(_address(connection), evict):
                    connection.first = await connection.receive()
            key = late.find_key(connection.first) if isinstance(connection.first, str) else None
            self._reserve_slot(connection, key)
        except VoxgateError as error:
            self._observer.handshake_refused(error.code)
            with contextlib.suppress(SocketClosed):
                connection.send(late.encode_error(error))
            await connection.close_within(CloseCode.POLICY, error.code, _SHUT_S)
        except TimeoutError:
            self._observer.handshake_refused(Unauthorized.code)
            # In a crowd nobody is waited for.
            await connection.close_within(CloseCode.POLICY, Unauthorized.code, 0.0 if crowded_out else _SHUT_S)
        except SocketClosed:
            pass
        else:
            return True
        return False

    def _reserve_slot(self, connection: BoundedConnection, credential: str | None) -> None:
        """Raises Unauthorized, KeyLimit, Draining, AtCapacity."""
        caller = self._access.caller_of(credential, _address(connection))
        connection.hold_slot(self._sessions.reserve_slot(caller))

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


MAX_PENDING = 64


class PendingAuthentication:
    """At limit `limit` wait. One more takes the place of the longest waiting of the address that most of them have.

    Who means to give a key gives it at once: who waits has come for something else, or for nothing.
    """

    def __init__(self, limit: int = MAX_PENDING) -> None:
        self._limit = limit
        self._waiting: dict[object, tuple[str, Callable[[], None]]] = {}
        """In the order of their coming: address, and how to send them away."""

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def waiting(self, address: str, evict: Callable[[], None]) -> Iterator[None]:
        """While one of that address waits; `evict` is called when it has to make room."""
        if len(self._waiting) >= self._limit:
            self._make_room()
        visit = object()
        self._waiting[visit] = (address, evict)
        try:
            yield
        finally:
            self._waiting.pop(visit, None)

    def _make_room(self) -> None:
        addresses = [address for address, _ in self._waiting.values()]
        crowd = max(addresses, key=addresses.count)
        visit = next(visit for visit, (address, _) in self._waiting.items() if address == crowd)
        _, evict = self._waiting.pop(visit)
        evict()
