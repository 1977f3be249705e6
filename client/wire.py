"""One connection to the gateway: how it is opened, and its messages."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import websockets
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.typing import Subprotocol

from .address import ServerAddress
from .errors import Refused, SessionLost, Unreachable

SPEECH_PATH = "/v1/speech"
NEW_SESSION = "new"
"""Value of the query parameter `resume` for a new session."""
SUBPROTOCOL = Subprotocol("voxgate.v1")
"""Tells the gateway that messages and fields that this client does not know are ignored."""
MAX_MESSAGE_BYTES = 1 << 20
"""Larger messages of the gateway close the connection."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
"""Hosts that are never reached through the proxy named in the environment."""
HEADER_VALUE = re.compile(r"[\t -~\x80-\xff]*")
"""What HTTP can carry as the value of a header."""
CLOSE_S = 2.0
"""Seconds in which the gateway must answer a close; then the connection is cut."""
NO_PONG = 1011
"""Close code of a side that got no answer to a ping."""


class Wire(Protocol):
    """One connection."""

    async def send(self, text: str) -> None:
        """Sends a message. Raises SessionLost."""

    async def receive(self) -> str | bytes:
        """Returns the next message. Raises SessionLost. Cancelling it loses no message."""

    def abort(self) -> None:
        """Cuts the connection."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Closes the connection."""


class WebSocketWire:
    """A `Wire` over a WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, text: str) -> None:
        """Sends a message. Raises SessionLost."""
        try:
            await self.socket.send(text)
        except websockets.ConnectionClosed as closed:
            raise _lost(closed) from closed

    async def receive(self) -> str | bytes:
        """Returns the next message. Raises SessionLost. Cancelling it loses no message."""
        try:
            return await self.socket.recv()
        except websockets.ConnectionClosed as closed:
            raise _lost(closed) from closed

    def abort(self) -> None:
        """Cuts the connection."""
        self.socket.transport.abort()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Closes the connection. Drops what arrives meanwhile: unread messages would hold up the gateway's answer."""
        dropping = asyncio.create_task(self._drop_messages())
        try:
            await self.socket.close(code, reason[:120])
        finally:
            dropping.cancel()

    async def _drop_messages(self) -> None:
        with suppress(websockets.ConnectionClosed, websockets.ConcurrencyError):  # another task may read them
            while True:
                await self.socket.recv()


@dataclass(frozen=True, slots=True)
class Connector:
    """How connections to one gateway are opened; the fields are arguments of `session.connect`."""

    url: str
    key: str | None = None
    headers: Mapping[str, str] | None = None
    tls: ssl.SSLContext | None = None
    auth_message: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for a key or header that no request can carry, without its value, which may be secret."""
        if self.key and not self.auth_message and not (self.key.isascii() and self.key.isprintable()):
            raise ValueError("key must have printable ASCII characters only; others need auth_message=True")
        for name, value in (self.headers or {}).items():
            if not HEADER_VALUE.fullmatch(value):
                raise ValueError(
                    f"value of header {name!r} must have Latin-1 characters, none of them control characters"
                )

    @property
    def key_in_message(self) -> str | None:
        """The key, if the first message holds it."""
        return self.key if self.auth_message else None

    async def open(self, resume: str | None, timeout_s: float) -> WebSocketWire:
        """Opens a connection; `resume` is the value of that query parameter: a session, or NEW_SESSION.

        Raises Unreachable, Refused, and ValueError for a malformed address.
        """
        address = ServerAddress.parse(self.url)
        path = SPEECH_PATH if address.path in ("", "/") else address.path
        in_message = self.key_in_message is not None
        checkpoints = "checkpoints=1" if resume == NEW_SESSION else ""
        resuming = f"resume={resume}" if resume else ""
        parameters = (address.query, "auth=message" if in_message else "", resuming, checkpoints)
        authorization = {"Authorization": f"Bearer {self.key}"} if self.key and not in_message else {}
        try:
            socket = await open_socket(
                address.websocket_url(path, "&".join(filter(None, parameters))),
                subprotocols=[SUBPROTOCOL],
                proxy=None if address.host in LOOPBACK_HOSTS else True,
                additional_headers={**(self.headers or {}), **authorization},
                ssl=(self.tls or True) if address.tls else None,  # True: the system's certificates
                open_timeout=timeout_s,
                close_timeout=CLOSE_S,
                max_size=MAX_MESSAGE_BYTES,
                compression=None,  # audio does not compress, and control messages are small
            )
        except websockets.InvalidStatus as refusal:
            raise _refused(refusal) from refusal
        except (OSError, TimeoutError, websockets.InvalidHandshake) as error:
            raise Unreachable(f"no gateway answers at {self.url}: {error}") from error
        return WebSocketWire(socket)


def _lost(closed: websockets.ConnectionClosed) -> SessionLost:
    closes = [close.code for close in (closed.rcvd, closed.sent) if close is not None]
    broken = not closes or NO_PONG in closes
    code, reason = (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (None, "")
    return SessionLost(code, reason, broken=broken)


def _refused(refusal: websockets.InvalidStatus) -> Refused:
    response = refusal.response
    try:
        body = json.loads(response.body or b"")
        code, message = str(body["error"]), str(body["message"])
        retry_after_ms, reached = body.get("retry_after_ms"), body.get("reached")
    except (ValueError, KeyError, TypeError):
        code, message, retry_after_ms, reached = "", response.reason_phrase, None, None
    seconds = response.headers.get("Retry-After", "")
    if retry_after_ms is None and seconds.isdecimal():
        retry_after_ms = 1000 * int(seconds)
    return Refused(response.status_code, message, code=code, retry_after_ms=retry_after_ms, reached=reached)
