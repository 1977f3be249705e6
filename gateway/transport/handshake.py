"""Authenticates WebSocket clients: from the handshake where possible, else from the first message.

A refusal during the handshake is an HTTP response; after it, an error message and a close.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from voxgate.pipeline.errors import BadMessage, VoxgateError
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from ..access.auth import (
    AccessControl,
    Credential,
    credential_scheme,
    find_credential,
    offered_subprotocols,
    origin_and_host,
    single_value,
)
from ..access.caller import Grant, caller_name
from ..errors import QUOTED_CHARACTERS, Unauthorized
from ..messages.connection import CloseCode
from ..observability.events import Observer
from ..observability.log import DefectLog
from ..protocols.endpoint import EndpointRequest, FirstMessageKey, WebSocketEndpoint, find_endpoint
from ..protocols.one_shot import voice_header
from ..protocols.reply import Reply, ReportableError, error_reply, not_found, refusal
from ..session.utterance_factory import UtteranceFactory
from .connection import SocketClosed
from .sessions import Sessions
from .websocket import CLOSE_TIMEOUT_S, BoundedConnection

KEY_TIMEOUT_S = 5.0
"""Seconds that a socket may be open before its first message with the API key arrives."""
IDLE_PING_TIMEOUT_S = 300.0
"""Seconds in which a ping must be answered by clients that do not read while nothing is spoken.

LiveKit keeps a socket in its pool for as long. While something is spoken, the slow-consumer timeout judges the client.
"""
MAX_PENDING = 64
"""Sockets that may wait for their first message at once. A client that has a key sends it within milliseconds."""

log = logging.getLogger(__name__)


class HandshakeAuthenticator:
    """Authenticates the clients of one listener. `endpoints` are the WebSocket paths it serves.

    A client without a valid key learns nothing but that it needs one: its protocol is opened after authentication.
    """

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
        self._defects = DefectLog(log)

    def process_request(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answers a handshake: None accepts it, with slot and protocol set on `connection`; a response refuses it.

        The slot is reserved before the answer, so that two handshakes cannot take the last one.
        """
        assert isinstance(connection, BoundedConnection)
        refuse: Callable[[ReportableError], Reply] = error_reply
        reached: str | None = None
        try:
            path, query = _split_target(request.path)
            if (found := find_endpoint(self._endpoints, path)) is None:
                return self._refuse(connection, not_found(path), "not_found")
            endpoint, parts = found
            refuse = endpoint.refuse
            offered = offered_subprotocols(request.headers.get_all)
            target = EndpointRequest(parts, query, subprotocols=offered)
            self._accept(connection, request.headers, endpoint, target)
        except VoxgateError as error:
            reply, reason, reached = refuse(error), error.code, error.reached
        except Exception as error:
            self._defects.report("a handshake failed", error, asyncio.get_running_loop().time())
            reply, reason = refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the handshake failed"), "internal"
        else:
            return None
        if connection.slot is not None:
            connection.slot.release()
        return self._refuse(connection, reply, reason, reached)

    def _accept(
        self, connection: BoundedConnection, headers: Headers, endpoint: WebSocketEndpoint, request: EndpointRequest
    ) -> None:
        """Raises VoxgateError."""
        single_value("Host", headers.get_all)  # RFC 9112, section 3.2
        connection.client_address = self._client_address(connection, headers)
        connection.open_protocol = functools.partial(endpoint.open, request)
        if not endpoint.reads_when_idle:
            connection.ping_timeout = IDLE_PING_TIMEOUT_S
        connection.chosen_subprotocol = choose_subprotocol(request.subprotocols, endpoint.subprotocol)
        self._access.check_origin(*origin_and_host(headers.get_all("Origin"), headers.get_all("Host")))
        credential = find_credential(headers.get_all, request.query)
        reader = endpoint.first_message_key
        if reader is not None and (session := reader.resumed_session(request)) is not None:
            if credential is not None or not reader.expected(request):
                connection.grant = self._grant(credential, connection)
            connection.resumes = session
            connection.require_first_message(reader)
        elif credential is None and self._access.requires_key and reader is not None and reader.expected(request):
            self._sessions.check_capacity()
            connection.require_first_message(reader)
        else:
            self._authorise(connection, credential)

    async def authenticate(self, connection: BoundedConnection) -> bool:
        """Authorises a client that sends its key in the first message; returns whether it may proceed.

        Returns at once for a client authenticated by its handshake. Closes the socket of a client that sends no valid
        key within `KEY_TIMEOUT_S`, or that others evict.
        """
        if (reader := connection.first_message_key) is None:
            return True
        try:
            with self._pending.admit(caller_name(None, connection.client_address), connection.evict):
                async with asyncio.timeout(KEY_TIMEOUT_S):
                    message = await connection.receive()
            key = reader.find_key(message) if isinstance(message, str) else None
            credential = None if key is None else Credential(key)
            if connection.resumes is not None:
                self._resume(connection, connection.resumes, reader, message, credential)
            else:
                self._authorise(connection, credential)
        except VoxgateError as error:
            self._observer.handshake_refused(error.code, error.reached)
            with contextlib.suppress(SocketClosed):
                connection.send(reader.encode_error(error))
            await self._close(connection, error.code)
        except TimeoutError:
            self._observer.handshake_refused(Unauthorized.code)
            await self._close(connection, Unauthorized.code)
        except SocketClosed:
            if connection.evicted:
                self._observer.handshake_refused(Unauthorized.code)
        else:
            connection.accept_first(message if connection.resumes is None else None)
            return True
        return False

    def _resume(
        self,
        connection: BoundedConnection,
        session: str,
        reader: FirstMessageKey,
        message: str | bytes,
        credential: Credential | None,
    ) -> None:
        """Has the connection replace that of `session`, with the token in the first message. Raises VoxgateError."""
        assert reader.find_resume is not None
        resume = reader.find_resume(message) if isinstance(message, str) else None
        if resume is None:
            raise BadMessage("the first message of a socket opened with ?resume=SESSION must be resume")
        grant = connection.grant or self._grant(credential, connection)
        connection.go_on_with(self._sessions.resume(session, resume, grant, connection), grant.caller.name)

    async def _close(self, connection: BoundedConnection, reason: str) -> None:
        """Waits for the client's close frame: with unread data, an earlier end would destroy error and close frame.

        Meanwhile another connection may take the place.
        """
        connection.make_room()
        await connection.close_within(CloseCode.POLICY, reason, CLOSE_TIMEOUT_S)

    def _authorise(self, connection: BoundedConnection, credential: Credential | None) -> None:
        """Reserves the slot of the caller and opens its protocol.

        Raises Unauthorized, Forbidden, KeyLimit, Draining, AtCapacity, and the errors of the endpoint.
        """
        grant = self._grant(credential, connection)
        connection.hold_slot(self._sessions.reserve_slot(grant))
        connection.wire_protocol = connection.open_protocol(self._factory.for_key(grant.key))

    def _grant(self, credential: Credential | None, connection: BoundedConnection) -> Grant:
        """Raises Unauthorized, Forbidden."""
        grant = self._access.authenticate(credential, connection.client_address)
        grant.check(WebSocketEndpoint.requires)
        return grant

    def _client_address(self, connection: ServerConnection, headers: Headers) -> str:
        peer = str(connection.remote_address[0]) if connection.remote_address else "?"
        return self._access.proxies.client_address(peer, headers.get_all("X-Forwarded-For"))

    def _refuse(self, connection: BoundedConnection, reply: Reply, reason: str, reached: str | None = None) -> Response:
        connection.make_room()
        self._observer.handshake_refused(reason, reached)
        headers = Headers(reply.headers)
        headers["Content-Type"] = reply.content_type
        headers["Content-Length"] = str(len(reply.body))
        headers["Connection"] = "close"
        return Response(reply.status.value, reply.status.phrase, headers, reply.body)


def _split_target(target: str) -> tuple[str, dict[str, str]]:
    """The path and the query of a request, of a repeated parameter the first value. Raises BadMessage."""
    try:
        url = urlsplit(target)
        return url.path, dict(reversed(parse_qsl(url.query)))
    except ValueError:
        raise BadMessage(f"the request target must be a URL, got {target[:QUOTED_CHARACTERS]!r}") from None


def choose_subprotocol(offered: Sequence[str], spoken: str | None) -> str | None:
    """The subprotocol to confirm: the one that the endpoint speaks, or `token` of a key that is sent as `token, KEY`.

    A browser closes the socket when the response confirms none of the subprotocols it named.
    """
    return spoken if spoken in offered else credential_scheme(offered)


def complete_response(connection: ServerConnection, _: Request, response: Response) -> None:
    """Names the voice of the socket, and confirms the subprotocol that was chosen."""
    assert isinstance(connection, BoundedConnection)
    if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
        return
    if connection.chosen_subprotocol is not None:
        response.headers["Sec-WebSocket-Protocol"] = connection.chosen_subprotocol
    if connection.slot is not None:  # a client whose key comes in its first message has no protocol yet
        for name, value in voice_header(connection.wire_protocol.voice).items():
            response.headers[name] = value


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
