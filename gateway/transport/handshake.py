"""Authenticates WebSocket clients: from the handshake where possible, else from the first message.

A refusal during the handshake is an HTTP response; after it, an error message and a close.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from voxgate.pipeline.errors import VoxgateError
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from ..access.auth import AccessControl, find_credential, origin_and_host
from ..access.caller import caller_name
from ..errors import Unauthorized
from ..messages import CloseCode
from ..observability.events import Observer
from ..protocols.endpoint import EndpointRequest, WebSocketEndpoint, find_endpoint
from ..protocols.reply import Reply, not_found
from ..session.utterance_factory import UtteranceFactory
from .connection import SocketClosed
from .sessions import Sessions
from .websocket import CLOSE_TIMEOUT_S, BoundedConnection

KEY_TIMEOUT_S = 5.0
"""Seconds that a socket may be open before its first message with the API key arrives."""
MAX_PENDING = 64
"""Sockets that may wait for their first message at once. A client that has a key sends it within milliseconds."""


class HandshakeAuthenticator:
    """Authenticates the clients of one listener. `endpoints` are the WebSocket paths it serves."""

    def __init__(
        self,
        endpoints: Sequence[WebSocketEndpoint],
        access: AccessControl,
        factory: UtteranceFactory,
        sessions: Sessions,
        observer: Observer,
    ) -> None:
        self._endpoints = endpoints
        self._access = access
        self._factory = factory
        self._sessions = sessions
        self._observer = observer
        self._pending = PendingAuthentication(MAX_PENDING)

    def process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answers a handshake: None accepts it, with slot and protocol set on `connection`; a response refuses it.

        The slot is reserved before the answer, so that two handshakes cannot take the last one.
        """
        assert isinstance(connection, BoundedConnection)
        url = urlsplit(request.path)
        if (found := find_endpoint(self._endpoints, url.path)) is None:
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
        """Reserves the slot of a client that sends its key in the first message; returns whether it may proceed.

        Returns at once for a client authenticated by its handshake. Closes the socket of a client that sends no valid
        key within `KEY_TIMEOUT_S`, or that others evict.
        """
        if (reader := connection.first_message_key) is None:
            return True
        now_s, evicted = asyncio.get_running_loop().time, False
        try:
            async with asyncio.timeout(KEY_TIMEOUT_S) as deadline:

                def evict() -> None:
                    nonlocal evicted
                    evicted = True
                    deadline.reschedule(now_s())

                with self._pending.admit(caller_name(None, _address(connection)), evict):
                    message = await connection.receive()
            connection.first_message = message
            key = reader.find_key(message) if isinstance(message, str) else None
            self._reserve_slot(connection, key)
        except VoxgateError as error:
            self._observer.handshake_refused(error.code)
            with contextlib.suppress(SocketClosed):
                connection.send(reader.encode_error(error))
            await connection.close_within(CloseCode.POLICY, error.code, CLOSE_TIMEOUT_S)
        except TimeoutError:
            self._observer.handshake_refused(Unauthorized.code)
            # An evicted socket is cut at once: under a flood, closing handshakes would hold the memory.
            timeout_s = 0.0 if evicted else CLOSE_TIMEOUT_S
            await connection.close_within(CloseCode.POLICY, Unauthorized.code, timeout_s)
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
    """Confirms the subprotocol of a browser that sends its key as the subprotocols `token, KEY`.

    A browser closes the socket when the response confirms none of the subprotocols it named.
    """
    scheme, comma, _key = request.headers.get("Sec-WebSocket-Protocol", "").partition(",")
    accepted = response.status_code == HTTPStatus.SWITCHING_PROTOCOLS
    if accepted and comma and scheme.strip().lower() in ("token", "bearer"):
        response.headers["Sec-WebSocket-Protocol"] = scheme.strip()


class PendingAuthentication:
    """Limits unauthenticated sockets to `limit`; when full, evicts the oldest one of the address that holds most.

    A flood from one address therefore evicts its own sockets before those of other addresses.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending: dict[object, tuple[str, Callable[[], None]]] = {}
        """Address and eviction callback of each socket, the oldest first."""

    def __len__(self) -> int:
        return len(self._pending)

    @contextmanager
    def admit(self, address: str, evict: Callable[[], None]) -> Iterator[None]:
        """Counts a socket of `address` during the block; calls `evict` if another socket needs its place."""
        if len(self._pending) >= self._limit:
            self._evict_one()
        entry = object()
        self._pending[entry] = (address, evict)
        try:
            yield
        finally:
            self._pending.pop(entry, None)

    def _evict_one(self) -> None:
        addresses = [address for address, _ in self._pending.values()]
        busiest = max(addresses, key=addresses.count)
        entry = next(entry for entry, (address, _) in self._pending.items() if address == busiest)
        _, evict = self._pending.pop(entry)
        evict()
