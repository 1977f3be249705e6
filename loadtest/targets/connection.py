"""A line to a speech server: what the load needs of one, whatever it speaks; and the socket under most of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit, urlunsplit

import websockets
from websockets.asyncio.client import ClientConnection, connect

MAX_MESSAGE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Where the server is and what is asked of it. `voice` empty: the server's own, where it has one.

    Where the target knows of such things: `frames`, every utterance is cut after so many of 80 ms; `paced`, audio comes
    as it is played, and otherwise as fast as it is made.
    """

    url: str
    voice: str = ""
    key: str = ""
    model: str = ""
    codec: str = "pcm"
    frames: int | None = None
    paced: bool = True
    open_timeout_s: float = 10.0


class TargetRefused(Exception):
    """The server said why it would not speak; `code` is its word for it, or an HTTP status."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class TargetConnection(Protocol):
    """One utterance on one connection. Methods raise TargetRefused, or OSError and the library's own for a lost line."""

    rate_hz: int

    @property
    def queue_ms(self) -> float | None:
        """How long the server had it wait, where it tells."""

    @property
    def server_ms(self) -> float | None:
        """How long the server says it took from the first text to the first audio; known at the end."""

    async def send(self, text: str) -> None:
        """The next piece of text."""

    async def end(self) -> None:
        """No more text follows."""

    async def interrupt(self, played_ms: int) -> None:
        """Stop speaking; what was heard until `played_ms` is told where the server wants to know."""

    def audio(self) -> AsyncIterator[bytes]:
        """s16le mono samples as they come, to the end of the speech, or of what still came after an interrupt."""

    async def close(self) -> None: ...

    def abort(self) -> None:
        """Cut the connection without a word."""

    async def stall(self, seconds: float) -> None:
        """Take nothing from the network for so long."""


async def open_socket(options: TargetOptions, path: str, headers: Mapping[str, str], **query: str) -> ClientConnection:
    """A WebSocket at `path` of the server. Raises TargetRefused when the handshake is answered with a status."""
    try:
        return await connect(
            address(options.url, path, **query),
            additional_headers=dict(headers),
            open_timeout=options.open_timeout_s,
            compression=None,
            max_size=MAX_MESSAGE_BYTES,
            proxy=None,
        )
    except websockets.InvalidStatus as refusal:
        raise TargetRefused(_reason(refusal)) from refusal


def address(url: str, path: str, **query: str) -> str:
    """The WebSocket address for a server's base URL; a path in `url` comes before `path`."""
    scheme, host, base, _, _ = urlsplit(url if "://" in url else f"ws://{url}")
    scheme = {"http": "ws", "https": "wss"}.get(scheme, scheme)
    return urlunsplit((scheme, host, base.rstrip("/") + path, urlencode(query), ""))


def _reason(refusal: websockets.InvalidStatus) -> str:
    try:
        code = json.loads(refusal.response.body or b"")["error"]
    except (ValueError, KeyError, TypeError):
        code = None
    return code if isinstance(code, str) else f"http_{refusal.response.status_code}"


class WebSocketTargetConnection:
    """A line over a WebSocket with JSON messages; the dialects add what they say."""

    rate_hz = 24_000
    queue_ms: float | None = None
    server_ms: float | None = None

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def say(self, **message: Any) -> None:
        await self._socket.send(json.dumps(message))

    async def close(self) -> None:
        await self._socket.close()

    def abort(self) -> None:
        self._socket.transport.abort()

    async def stall(self, seconds: float) -> None:
        await stall(self._socket.transport, seconds)


async def stall(transport: asyncio.Transport | None, seconds: float) -> None:
    """Have `transport` read nothing for so long: what a library has buffered would hide a reader who merely waits."""
    if transport is not None and not transport.is_closing():
        transport.pause_reading()
        try:
            await asyncio.sleep(seconds)
        finally:
            transport.resume_reading()
