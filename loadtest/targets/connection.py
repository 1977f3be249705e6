"""What a load test needs of a connection to a speech server, and the WebSocket that most targets share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode

import websockets
from voxgate.client.address import ServerAddress
from websockets.asyncio.client import ClientConnection, connect

MAX_MESSAGE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Address of the server, and the options of every utterance. Empty options leave the choice to the server."""

    url: str
    voice: str = ""
    key: str = ""
    model: str = ""
    codec: str = "pcm"
    frames: int | None = None
    """Frames of 80 ms after which an utterance is cut, for targets that support it."""
    paced: bool = True
    """Whether audio arrives at the pace of playback, or as fast as it is made, for targets that support it."""
    open_timeout_s: float = 10.0


class TargetRefused(Exception):
    """The server refused an utterance; `code` is its reason, or an HTTP status."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class TargetConnection(Protocol):
    """One utterance on one connection.

    Methods raise TargetRefused, and OSError or an error of the target's library for a lost connection.
    """

    rate_hz: int

    @property
    def queue_ms(self) -> float | None:
        """Time that the server had the utterance wait, where it reports it."""

    @property
    def server_ms(self) -> float | None:
        """Time from the first text to the first audio as the server reports it, known at the end."""

    async def send(self, text: str) -> None:
        """Sends a piece of the text."""

    async def end(self) -> None:
        """Ends the text."""

    async def interrupt(self, played_ms: int) -> None:
        """Stops the speech at the playback position `played_ms`, where the server takes it."""

    def audio(self) -> AsyncIterator[bytes]:
        """Yields s16le mono samples as they arrive, to the end of the speech or the confirmation of an interrupt."""

    async def close(self) -> None: ...

    def abort(self) -> None:
        """Cuts the connection without closing it."""

    async def stall(self, seconds: float) -> None:
        """Reads nothing from the network for `seconds`."""


class WebSocketTargetConnection:
    """A connection over a WebSocket with JSON messages; targets derive from it."""

    rate_hz = 24_000
    queue_ms: float | None = None
    server_ms: float | None = None

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send_json(self, **message: Any) -> None:
        await self._socket.send(json.dumps(message))

    async def close(self) -> None:
        await self._socket.close()

    def abort(self) -> None:
        self._socket.transport.abort()

    async def stall(self, seconds: float) -> None:
        await stall(self._socket.transport, seconds)


async def open_socket(options: TargetOptions, path: str, headers: Mapping[str, str], **query: str) -> ClientConnection:
    """Opens a WebSocket at `path` of the server. Raises TargetRefused for an HTTP status other than 101."""
    try:
        return await connect(
            socket_url(options.url, path, **query),
            additional_headers=dict(headers),
            open_timeout=options.open_timeout_s,
            compression=None,
            max_size=MAX_MESSAGE_BYTES,
            proxy=None,
        )
    except websockets.InvalidStatus as refusal:
        raise TargetRefused(_reason(refusal)) from refusal


def socket_url(url: str, path: str, **query: str) -> str:
    """The WebSocket URL of `path` under a server's base URL, which may have a path of its own."""
    address = ServerAddress.parse(url)
    return address.websocket_url(address.path.rstrip("/") + path, urlencode(query))


def _reason(refusal: websockets.InvalidStatus) -> str:
    try:
        code = json.loads(refusal.response.body or b"")["error"]
    except (ValueError, KeyError, TypeError):
        code = None
    return code if isinstance(code, str) else f"http_{refusal.response.status_code}"


async def stall(transport: asyncio.Transport | None, seconds: float) -> None:
    """Pauses reading at the transport: a client that merely waits still has its library read into a buffer."""
    if transport is not None and not transport.is_closing():
        transport.pause_reading()
        try:
            await asyncio.sleep(seconds)
        finally:
            transport.resume_reading()
